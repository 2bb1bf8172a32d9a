// SPDX-License-Identifier: Apache-2.0
#include "text/schema_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/json_error.h"
#include "text/json_nesting.h"
#include "text/schema_keywords.h"

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;
using Pointer = Json::json_pointer;
using Use = KeywordUse;
using About = KeywordSubject;

class SchemaWalk {
 public:
  explicit SchemaWalk(Json root) : root_(std::move(root)) {}

  Result<CheckedSchema> run() {
    HALFBYTE_RETURN_IF_ERROR(visit(Pointer(), 1));
    for (const auto& [place, addition] : additions_) {
      root_.at(place).update(addition);
    }
    return CheckedSchema{root_.dump(), std::move(patterns_), has_lengths_};
  }

 private:
  // `place` of the schema under way, and what stands there.
  struct Schema {
    const Pointer& place;
    const Json& json;
    int depth;
  };

  static std::string named(const Pointer& place) {
    const std::string text = place.to_string();
    return text.empty() ? "at the top" : "at " + text;
  }
  // As much of a value as a message can bear.
  static std::string brief(const Json& value) {
    constexpr std::size_t kMaxBytes = 40;
    const std::string text = value.dump(-1, ' ', true);
    return text.size() <= kMaxBytes ? text : text.substr(0, kMaxBytes) + "...";
  }
  static Status unsupported(const Schema& schema, std::string_view what) {
    return {StatusCode::kUnsupported, fmt::format("the schema {}: {}", named(schema.place), what)};
  }
  static Status invalid(const Schema& schema, std::string_view what) {
    return {StatusCode::kInvalidArgument,
            fmt::format("the schema {}: {}", named(schema.place), what)};
  }

  Status visit(const Pointer& place, int depth);
  Status visit_object(const Schema& schema);
  Status check_keyword(const Schema& schema, const std::string& name, const Json& value) const;
  Status check_beside_head(const Schema& schema, std::string_view head) const;
  Status check_values(const Schema& schema) const;
  Status check_types(const Schema& schema, const std::vector<std::string>& types) const;
  Result<std::vector<std::string>> types_of(const Schema& schema);
  Status visit_typed(const Schema& schema);
  Status check_required(const Schema& schema) const;
  Status check_string(const Schema& schema);
  void close_object(const Schema& schema);
  void close_array(const Schema& schema);
  Status visit_children(const Schema& schema);
  Status visit_list(const Schema& schema, const std::string& name);
  Status visit_reference(const Schema& schema, const std::string& uri);
  Status check_circle(const Schema& schema) const;
  Result<Pointer> resolve(const Schema& schema, const std::string& uri) const;

  Json root_;
  std::set<std::string> visited_;                    // places
  std::vector<std::pair<Pointer, Json>> additions_;  // made at the end: places stay what they are
  std::vector<std::string> patterns_;
  bool has_lengths_ = false;  // of strings
};

Status SchemaWalk::visit(const Pointer& place, int depth) {
  if (!visited_.insert(place.to_string()).second) return {};
  const Schema schema{place, root_.at(place), depth};
  if (visited_.size() > kMaxSchemas) {
    return invalid(schema, fmt::format("there are more than {} schemas", kMaxSchemas));
  }
  if (depth > kMaxSchemaDepth) {
    return invalid(schema, fmt::format("it is nested deeper than {} schemas", kMaxSchemaDepth));
  }
  if (schema.json.is_boolean()) {
    return schema.json.get<bool>() ? Status() : unsupported(schema, "false allows nothing");
  }
  if (!schema.json.is_object()) {
    return invalid(
        schema, fmt::format("it is of type {}, want an object or true", schema.json.type_name()));
  }
  return visit_object(schema);
}

Status SchemaWalk::visit_object(const Schema& schema) {
  for (const auto& item : schema.json.items()) {
    HALFBYTE_RETURN_IF_ERROR(check_keyword(schema, item.key(), item.value()));
  }
  for (const Keyword& keyword : schema_keywords()) {
    if (keyword.about != About::kHead || !schema.json.contains(keyword.name)) continue;
    HALFBYTE_RETURN_IF_ERROR(check_beside_head(schema, keyword.name));
    return visit_children(schema);
  }
  return visit_typed(schema);
}

Status SchemaWalk::check_keyword(const Schema& schema,
                                 const std::string& name,
                                 const Json& value) const {
  if (is_annotation(name, schema.place.empty())) return {};
  const Keyword* keyword = find_keyword(name);
  if (keyword == nullptr || (keyword->use == Use::kFalse && value != false)) {
    return unsupported(schema, fmt::format("the keyword \"{}\" is not supported", name));
  }
  if (const char* want = wanted_value(keyword->use, value)) {
    return invalid(schema, fmt::format("\"{}\" is {}, want {}", name, brief(value), want));
  }
  return {};
}

// Grammars are made of the head alone. A type beside values is fine when it says nothing new.
Status SchemaWalk::check_beside_head(const Schema& schema, std::string_view head) const {
  const bool has_values = head == "const" || head == "enum";
  for (const auto& item : schema.json.items()) {
    const std::string& name = item.key();
    if (name == head || is_annotation(name, schema.place.empty())) continue;
    if (name == "type" && has_values) continue;
    return unsupported(schema, fmt::format("\"{}\" beside \"{}\" is not supported", name, head));
  }
  if (head == "allOf" && schema.json.at("allOf").size() > 1) {
    return unsupported(schema, "the keyword \"allOf\" with more than one schema is not supported");
  }
  return has_values ? check_values(schema) : Status();
}

Status SchemaWalk::check_values(const Schema& schema) const {
  const auto type = schema.json.find("type");
  if (type == schema.json.end()) return {};
  const Json types = type->is_string() ? Json::array({*type}) : *type;
  const auto check = [&](const Json& value) -> Status {
    const bool fits = std::any_of(types.begin(), types.end(), [&](const Json& name) {
      return is_of_type(value, name.get_ref<const std::string&>());
    });
    if (fits) return {};
    return invalid(schema, fmt::format("{} is not of \"type\" {}", brief(value), brief(*type)));
  };
  if (const auto constant = schema.json.find("const"); constant != schema.json.end()) {
    return check(*constant);
  }
  for (const Json& value : schema.json.at("enum")) {
    HALFBYTE_RETURN_IF_ERROR(check(value));
  }
  return {};
}

// ---- schemas with a type

Status SchemaWalk::visit_typed(const Schema& schema) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::vector<std::string> types, types_of(schema));
  HALFBYTE_RETURN_IF_ERROR(check_types(schema, types));
  const auto has = [&types](std::string_view type) { return std::ranges::count(types, type) > 0; };
  if (has("string")) HALFBYTE_RETURN_IF_ERROR(check_string(schema));
  if (has("object")) {
    HALFBYTE_RETURN_IF_ERROR(check_required(schema));
    close_object(schema);
  }
  if (has("array")) close_array(schema);
  return visit_children(schema);
}

// Of `type`, or of the keywords where there is none; empty: anything.
Result<std::vector<std::string>> SchemaWalk::types_of(const Schema& schema) {
  if (const auto type = schema.json.find("type"); type != schema.json.end()) {
    if (type->is_array()) return type->get<std::vector<std::string>>();
    return std::vector{type->get<std::string>()};
  }
  std::set<std::string> types;
  for (const auto& item : schema.json.items()) {
    const Keyword* keyword = find_keyword(item.key());
    if (keyword == nullptr || keyword->use == Use::kAnnotation) continue;
    types.emplace(type_of(keyword->about));
  }
  if (types.size() > 1) {
    return unsupported(schema, "its keywords are about several types: give it a \"type\"");
  }
  for (const std::string& type : types) {
    additions_.emplace_back(schema.place, Json{{"type", type}});
  }
  return std::vector<std::string>(types.begin(), types.end());
}

Status SchemaWalk::check_types(const Schema& schema, const std::vector<std::string>& types) const {
  for (const std::string& type : types) {
    if (!is_schema_type(type)) {
      return invalid(schema, fmt::format("there is no \"type\" \"{}\"", type));
    }
  }
  return {};
}

Status SchemaWalk::check_required(const Schema& schema) const {
  const auto required = schema.json.find("required");
  if (required == schema.json.end()) return {};
  const auto properties = schema.json.find("properties");
  for (const Json& name : *required) {
    const auto& text = name.get_ref<const std::string&>();
    if (properties != schema.json.end() && properties->contains(text)) continue;
    return unsupported(
        schema, fmt::format("\"required\" names \"{}\", which \"properties\" does not have", text));
  }
  return {};
}

// Listed properties are all there are, unless the schema says otherwise.
void SchemaWalk::close_object(const Schema& schema) {
  if (schema.json.contains("additionalProperties")) return;
  const auto properties = schema.json.find("properties");
  const bool is_open = properties == schema.json.end() || properties->empty();
  additions_.emplace_back(schema.place, Json{{"additionalProperties", is_open}});
}

void SchemaWalk::close_array(const Schema& schema) {
  if (schema.json.contains("items")) return;
  const bool is_open = !schema.json.contains("prefixItems");
  additions_.emplace_back(schema.place, Json{{"items", is_open}});
}

// One of pattern, format and lengths: the grammar has one of them.
Status SchemaWalk::check_string(const Schema& schema) {
  const auto pattern = schema.json.find("pattern");
  const auto format = schema.json.find("format");
  const bool has_pattern = pattern != schema.json.end();
  const bool has_format = format != schema.json.end();
  const bool has_length = schema.json.contains("minLength") || schema.json.contains("maxLength");
  if (int{has_pattern} + int{has_format} + int{has_length} > 1) {
    return unsupported(schema,
                       "of \"pattern\", \"format\" and \"minLength\" or \"maxLength\" only one is "
                       "supported at a time");
  }
  if (has_pattern) patterns_.push_back(pattern->get<std::string>());
  if (has_format && !is_schema_format(format->get<std::string>())) {
    return unsupported(schema, fmt::format("the \"format\" {} is not supported", brief(*format)));
  }
  has_lengths_ = has_lengths_ || has_length;
  return {};
}

// ---- schemas in schemas

Status SchemaWalk::visit_children(const Schema& schema) {
  for (const auto& item : schema.json.items()) {
    const Keyword* keyword = find_keyword(item.key());
    if (keyword == nullptr) continue;
    switch (keyword->use) {
      case Use::kReference:
        HALFBYTE_RETURN_IF_ERROR(visit_reference(schema, item.value().get<std::string>()));
        break;
      case Use::kSchemas:
      case Use::kProperties:
        HALFBYTE_RETURN_IF_ERROR(visit_list(schema, item.key()));
        break;
      case Use::kSchemaOrBool:
        if (item.value().is_boolean()) break;
        HALFBYTE_RETURN_IF_ERROR(visit(schema.place / item.key(), schema.depth + 1));
        break;
      default:
        break;
    }
  }
  return {};
}

// Of a list or of an object.
Status SchemaWalk::visit_list(const Schema& schema, const std::string& name) {
  const Json& list = schema.json.at(name);
  const Pointer place = schema.place / name;
  if (list.is_object()) {
    for (const auto& item : list.items()) {
      HALFBYTE_RETURN_IF_ERROR(visit(place / item.key(), schema.depth + 1));
    }
    return {};
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    HALFBYTE_RETURN_IF_ERROR(visit(place / i, schema.depth + 1));
  }
  return {};
}

Result<Pointer> SchemaWalk::resolve(const Schema& schema, const std::string& uri) const {
  const bool is_pointer = uri == "#" || uri.starts_with("#/");
  if (!is_pointer || uri.find('%') != std::string::npos) {
    return unsupported(
        schema, fmt::format("\"$ref\" is \"{}\", want \"#\" or \"#/\" and a place in here", uri));
  }
  try {
    Pointer place(uri.substr(1));
    if (root_.contains(place)) return place;
  } catch (const Json::exception&) {  // no pointer: there is nothing at it
  }
  return invalid(schema, fmt::format("\"$ref\" is \"{}\", and there is nothing", uri));
}

Status SchemaWalk::visit_reference(const Schema& schema, const std::string& uri) {
  HALFBYTE_RETURN_IF_ERROR(check_circle(schema));
  HALFBYTE_ASSIGN_OR_RETURN(const Pointer target, resolve(schema, uri));
  return visit(target, schema.depth + 1);
}

// References that lead to references must lead somewhere else in the end.
Status SchemaWalk::check_circle(const Schema& schema) const {
  const Json* at = &schema.json;
  for (int steps = 0; steps <= kMaxSchemaDepth; ++steps) {
    if (!at->is_object() || !at->contains("$ref") || !at->at("$ref").is_string()) return {};
    HALFBYTE_ASSIGN_OR_RETURN(const Pointer target,
                              resolve(schema, at->at("$ref").get<std::string>()));
    at = &root_.at(target);
    if (at == &schema.json) return invalid(schema, "\"$ref\" leads back to itself");
  }
  return {};  // visit() refuses what is as deep
}

// What walks and writes JSON calls itself for each bracket.
bool is_too_deep(std::string_view json) {
  JsonNesting nesting;
  return std::ranges::any_of(json, [&nesting](char c) {
    nesting.push(c);
    return nesting.depth() > kMaxSchemaBrackets;
  });
}

}  // namespace

Result<CheckedSchema> check_schema(std::string_view schema) {
  if (is_too_deep(schema)) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("the schema's brackets are nested deeper than {}", kMaxSchemaBrackets));
  }
  try {
    return SchemaWalk(Json::parse(schema)).run();
  } catch (const Json::exception& e) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the schema is not JSON: {}", plain_json_error(e.what())));
  }
}

}  // namespace halfbyte
