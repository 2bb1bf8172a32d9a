// SPDX-License-Identifier: Apache-2.0
#include "server/constraint_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "text/grammar.h"

namespace halfbyte::server {
namespace {

constexpr std::array<std::string_view, 5> kFields = {"response_format", "regex", "ebnf",
                                                     "structured_outputs", "structural_tag"};
// Of structured_outputs, as vLLM has it.
constexpr std::array<std::string_view, 6> kOutputs = {"json",   "json_object", "regex",
                                                      "choice", "grammar",     "structural_tag"};

void fail_with(FieldReader& reader, std::string_view name, const Status& status) {
  reader.fail(name, fmt::format("{}: {}", reader.path_of(name), status.message()),
              status.code() == StatusCode::kUnsupported ? "unsupported_value" : "");
}

// On an HTTP thread, as templates and tokenising are: compiling takes as long as a few thousand
// tokens of a prompt, and each thread serves its own connections meanwhile.
class ConstraintReader {
 public:
  ConstraintReader(const RequestScope& scope,
                   GenerationRequest& request,
                   std::optional<ApiError>& error)
      : scope_(scope), request_(request), error_(error) {}

  void read(const Json& body, std::string_view field);
  void compile(FieldReader& reader, std::string_view name, const Result<GrammarSource>& source);

 private:
  void read_response_format(FieldReader& reader);
  void read_json_schema(FieldReader& format);
  void read_outputs(FieldReader& reader);
  void read_output(FieldReader& outputs, std::string_view name);
  void read_choice(FieldReader& outputs);
  void read_schema(FieldReader& reader, std::string_view name, std::string_view schema);
  void read_structural_tag(FieldReader& reader, std::string_view name);
  void read_tags(FieldReader& reader, std::string_view name, const Json& given);
  TriggeredTag read_tag(const Json& given, const std::string& path);

  const RequestScope& scope_;
  GenerationRequest& request_;
  std::optional<ApiError>& error_;
};

void ConstraintReader::compile(FieldReader& reader,
                               std::string_view name,
                               const Result<GrammarSource>& source) {
  if (!reader.ok()) return;
  if (!source.ok()) return fail_with(reader, name, source.status());
  if (scope_.grammars == nullptr) {
    return reader.fail(name,
                       fmt::format("{}: answers are not constrained with --grammar-backend none",
                                   reader.path_of(name)),
                       "unsupported_value");
  }
  auto grammar = scope_.grammars->compile(*source);
  if (!grammar.ok()) return fail_with(reader, name, grammar.status());
  request_.grammar = std::move(grammar).value();
  request_.constraint_field = reader.path_of(name);
}

void ConstraintReader::read_schema(FieldReader& reader,
                                   std::string_view name,
                                   std::string_view schema) {
  auto checked = check_schema(schema);
  if (!checked.ok()) return fail_with(reader, name, checked.status());
  compile(reader, name, schema_source(std::move(checked).value()));
}

void ConstraintReader::read(const Json& body, std::string_view field) {
  FieldReader reader(body, "", error_);
  if (field == "response_format") return read_response_format(reader);
  if (field == "structured_outputs") return read_outputs(reader);
  if (field == "structural_tag") return read_structural_tag(reader, field);
  const auto text = reader.string(field);
  if (!text) return;
  compile(reader, field, field == "regex" ? regex_source(*text) : ebnf_source(*text));
}

void ConstraintReader::read_response_format(FieldReader& reader) {
  const Json* given = reader.object("response_format");
  if (given == nullptr) return;
  FieldReader format(*given, "response_format", error_);
  const std::string type = format.string("type").value_or("");
  if (type == "json_object") return compile(reader, "response_format", json_object_source());
  if (type == "json_schema") return read_json_schema(format);
  if (type == "structural_tag") return read_tags(reader, "response_format", *given);
  format.fail("type",
              fmt::format("response_format.type is \"{}\", want text, json_object, json_schema or "
                          "structural_tag",
                          type),
              "unsupported_value");
}

void ConstraintReader::read_json_schema(FieldReader& format) {
  const Json* given = format.object("json_schema");
  if (given == nullptr) {
    return format.fail("json_schema", "response_format.json_schema is required with its type");
  }
  FieldReader named(*given, "response_format.json_schema", error_);
  named.string("name");
  named.string("description");
  named.boolean("strict");  // the schema is kept in either case
  const Json* schema = named.object("schema");
  if (schema == nullptr) {
    return named.fail("schema", "response_format.json_schema.schema is required: a JSON Schema");
  }
  read_schema(named, "schema", to_text(*schema));
}

void ConstraintReader::read_outputs(FieldReader& reader) {
  const Json* given = reader.object("structured_outputs");
  if (given == nullptr) return;
  FieldReader outputs(*given, "structured_outputs", error_);
  std::string_view first;
  for (const auto& item : given->items()) {
    if (item.value().is_null() || item.value() == false) continue;
    const auto known = std::ranges::find(kOutputs, item.key());
    if (known == kOutputs.end()) return outputs.refuse(item.key());
    if (!first.empty()) {
      return outputs.fail(item.key(), fmt::format("structured_outputs has both {} and {}, want one",
                                                  first, item.key()));
    }
    first = *known;
  }
  read_output(outputs, first);
}

void ConstraintReader::read_output(FieldReader& outputs, std::string_view name) {
  if (name == "choice") return read_choice(outputs);
  if (name == "json_object") {
    if (outputs.boolean(name)) compile(outputs, name, json_object_source());
    return;
  }
  if (name == "structural_tag") return read_structural_tag(outputs, name);
  const Json* value = outputs.find(name);
  if (name == "json" && value->is_object()) return read_schema(outputs, name, to_text(*value));
  const auto text = outputs.string(name);
  if (!text) return;
  if (name == "regex") return compile(outputs, name, regex_source(*text));
  if (name == "grammar") return compile(outputs, name, ebnf_source(*text));
  read_schema(outputs, name, *text);
}

void ConstraintReader::read_choice(FieldReader& outputs) {
  const Json* given = outputs.array("choice");
  if (given == nullptr) return;
  std::vector<std::string> choices;
  for (const Json& choice : *given) {
    if (!choice.is_string()) return outputs.fail_type("choice", "a list of strings", choice);
    choices.push_back(choice.get<std::string>());
  }
  compile(outputs, "choice", choice_source(choices));
}

// An object, or the text of one.
void ConstraintReader::read_structural_tag(FieldReader& reader, std::string_view name) {
  const Json* given = reader.find(name);
  if (!given->is_string()) {
    if (reader.object(name) != nullptr) read_tags(reader, name, *given);
    return;
  }
  const auto parsed = parse_object(given->get_ref<const std::string&>());
  if (const auto* problem = std::get_if<ApiError>(&parsed)) {
    return reader.fail(name, fmt::format("{}: {}", reader.path_of(name), problem->message));
  }
  read_tags(reader, name, std::get<Json>(parsed));
}

// {"structures": [{begin, schema, end}], "triggers": [TEXT]}
void ConstraintReader::read_tags(FieldReader& reader, std::string_view name, const Json& given) {
  FieldReader fields(given, reader.path_of(name), error_);
  if (fields.string("type").value_or("structural_tag") != "structural_tag") {
    fields.fail("type", fields.path_of("type") + " must be \"structural_tag\"");
  }
  if (fields.find("format") != nullptr) fields.refuse("format");
  std::vector<std::string> triggers;
  const Json* texts = fields.array("triggers");
  for (std::size_t i = 0; texts != nullptr && i < texts->size(); ++i) {
    const Json& text = (*texts)[i];
    if (!text.is_string()) return fields.fail_type("triggers", "a list of strings", text);
    triggers.push_back(text.get<std::string>());
  }
  std::vector<TriggeredTag> tags;
  const Json* structures = fields.array("structures");
  for (std::size_t i = 0; structures != nullptr && i < structures->size() && !error_; ++i) {
    tags.push_back(read_tag((*structures)[i], fields.path_of(fmt::format("structures[{}]", i))));
  }
  if (!error_) compile(reader, name, triggered_tags_source(triggers, tags));
}

TriggeredTag ConstraintReader::read_tag(const Json& given, const std::string& path) {
  if (!check_object(given, path, error_)) return {};
  FieldReader fields(given, path, error_);
  const auto begin = fields.string("begin"), end = fields.string("end");
  const Json* schema = fields.object("schema");
  for (const std::string_view name : {"begin", "schema", "end"}) {
    if (fields.find(name) == nullptr) fields.fail(name, fields.path_of(name) + " is required");
  }
  if (error_) return {};
  auto checked = check_schema(to_text(*schema));
  if (checked.ok()) return {*begin, std::move(checked).value(), *end};
  fail_with(fields, "schema", checked.status());
  return {};
}

// Whether a field is there and asks for something.
bool constrains(const Json& body, std::string_view field) {
  const auto value = body.find(field);
  if (value == body.end() || value->is_null()) return false;
  if (!value->is_object() || field == "structural_tag") return true;
  if (field == "response_format") {
    const auto type = value->find("type");
    return type == value->end() || *type != "text";
  }
  return std::any_of(value->begin(), value->end(),
                     [](const Json& member) { return !member.is_null() && member != false; });
}

// ---- tools

// What the arguments of a tool must be: an object, without members if nothing is said about them.
Json arguments_schema(const Json& function) {
  const auto given = function.find("parameters");
  if (given == function.end() || given->is_null()) {
    return {{"type", "object"}, {"additionalProperties", false}};
  }
  Json schema = *given;
  const bool says_more =
      std::ranges::any_of(std::array{"type", "$ref", "anyOf", "oneOf", "allOf", "const", "enum"},
                          [&schema](const char* keyword) { return schema.contains(keyword); });
  if (!says_more) schema["type"] = "object";
  return schema;
}

std::vector<CallableTool> callable_tools(const Json& body,
                                         const std::string& forced_tool,
                                         std::optional<ApiError>& error) {
  std::vector<CallableTool> tools;
  const Json& given = body.at("tools");
  for (std::size_t i = 0; i < given.size() && !error; ++i) {
    const Json& function = given[i].at("function");
    const auto& name = function.at("name").get_ref<const std::string&>();
    if (!forced_tool.empty() && name != forced_tool) continue;
    auto checked = check_schema(to_text(arguments_schema(function)));
    if (checked.ok()) {
      tools.push_back({name, std::move(checked).value()});
    } else {
      FieldReader reader(function, fmt::format("tools[{}].function", i), error);
      fail_with(reader, "parameters", checked.status());
    }
  }
  return tools;
}

// {"type": "function", "function": {"name": NAME}}
std::string named_tool(FieldReader& reader, std::optional<ApiError>& error) {
  const Json* choice = reader.object("tool_choice");
  if (choice == nullptr) return "";
  FieldReader outer(*choice, "tool_choice", error);
  if (outer.string("type").value_or("") != "function") {
    outer.fail("type", "tool_choice.type is required, and must be \"function\"");
  }
  const Json* function = outer.object("function");
  if (function == nullptr) {
    outer.fail("function", "tool_choice.function is required");
    return "";
  }
  FieldReader inner(*function, "tool_choice.function", error);
  const std::string name = inner.string("name").value_or("");
  if (name.empty()) inner.fail("name", "tool_choice.function.name is required");
  return name;
}

}  // namespace

void read_constraint(const Json& body,
                     const RequestScope& scope,
                     GenerationRequest& request,
                     std::optional<ApiError>& error) {
  std::string_view first;
  for (const std::string_view field : kFields) {
    if (!constrains(body, field)) continue;
    if (!first.empty()) {
      FieldReader reader(body, "", error);
      return reader.fail(field, fmt::format("{} and {} both constrain the answer, want one of them",
                                            first, field));
    }
    first = field;
  }
  if (!first.empty()) ConstraintReader(scope, request, error).read(body, first);
}

ToolChoice read_tool_choice(const Json& body,
                            const std::set<std::string>& names,
                            std::optional<ApiError>& error) {
  FieldReader reader(body, "", error);
  const Json* choice = reader.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return {};
  if (*choice == "none") return {.hides_tools = true};
  if (names.empty()) {
    reader.fail("tool_choice", "tool_choice asks for a call, and no tools are given");
  }
  if (*choice == "required") return {.forced_tool = ""};
  if (choice->is_string()) {
    reader.fail("tool_choice", fmt::format("tool_choice is {}, want none, auto, required or an "
                                           "object that names a tool",
                                           choice->dump()));
  }
  const std::string name = named_tool(reader, error);
  if (!names.contains(name)) {
    reader.fail("tool_choice",
                fmt::format("tool_choice names \"{}\", which is none of the tools", name));
  }
  return {.forced_tool = name};
}

void force_tool_calls(const Json& body,
                      const std::string& forced_tool,
                      const RequestScope& scope,
                      GenerationRequest& request,
                      std::optional<ApiError>& error) {
  FieldReader reader(body, "", error);
  const auto format = scope.text->tool_call_format();
  if (!format) {
    return reader.fail("tool_choice",
                       "the model's vocabulary shows no format of tool calls that could be asked "
                       "for: start the server with --tool-call-parser",
                       "unsupported_value");
  }
  if (request.grammar != nullptr) {
    return reader.fail("tool_choice",
                       "tool_choice asks for a call, and another field constrains the answer");
  }
  const std::vector<CallableTool> tools = callable_tools(body, forced_tool, error);
  if (error) return;
  const bool one_call = request.one_tool_call || !forced_tool.empty();
  ConstraintReader(scope, request, error)
      .compile(reader, "tool_choice", tool_call_source(*format, tools, one_call));
}

}  // namespace halfbyte::server
