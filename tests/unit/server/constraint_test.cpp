// SPDX-License-Identifier: Apache-2.0
//
// The fields that constrain answers (docs/server-api.md, "Constrained output"), on the shipped
// model's text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/generation_request.h"
#include "text/grammar.h"
#include "unit/server/shipped_text.h"

namespace halfbyte::server {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kVocab = 2048;

const ModelText& text_with(std::string_view tool_call_parser) {
  static const std::unique_ptr<ModelText> plain = load_text({.tool_call_parser = "none"});
  static const std::unique_ptr<ModelText> calling = load_text({.tool_call_parser = "qwen3"});
  return tool_call_parser == "none" ? *plain : *calling;
}

std::variant<GenerationRequest, ApiError> read(const std::string& fields,
                                               bool is_chat = true,
                                               const char* tool_call_parser = "qwen3") {
  static GrammarCompiler grammars(answer_vocabulary(text_with("none").tokenizer(), kVocab, {0, 2}));
  const RequestScope scope = {.text = &text_with(tool_call_parser),
                              .model_names = {"model"},
                              .vocab_size = kVocab,
                              .context_tokens = 1024,
                              .random_seed = [] { return 77; },
                              .grammars = &grammars};
  Json body = Json::parse(fields);
  if (!is_chat) {
    body["prompt"] = "Hi";
    return read_completion_request(body, scope);
  }
  body["messages"] = Json::parse(R"([{"role": "user", "content": "Hi"}])");
  return read_chat_request(body, scope);
}

GenerationRequest accepted(const std::string& fields, bool is_chat = true) {
  auto result = read(fields, is_chat);
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << fields << ": " << error->message;
    return {};
  }
  return std::get<GenerationRequest>(std::move(result));
}

void expect_refused(const std::string& fields,
                    const char* param,
                    const char* code,
                    const char* message = "") {
  const auto result = read(fields);
  const auto* error = std::get_if<ApiError>(&result);
  ASSERT_NE(error, nullptr) << fields;
  EXPECT_EQ(error->status, 400) << fields;
  EXPECT_EQ(error->param, param) << fields;
  EXPECT_EQ(error->code, code) << fields;
  EXPECT_THAT(error->message, HasSubstr(message)) << fields;
}

// Whether an answer of these characters, and then the end of text, keeps to the grammar.
bool allows(const GenerationRequest& request, const std::string& text) {
  if (request.grammar == nullptr) return true;
  const auto constraint = request.grammar->make_constraint(Reasoning::kNone);
  const auto ids = text_with("none").tokenizer().encode(text);
  for (const std::int32_t id : ids.value()) {
    if (!constraint->accept(id).ok()) return false;
  }
  return constraint->accept(2).ok();
}

TEST(Constraint, OfEveryFieldHoldsTheAnswer) {
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]})";
  for (const bool is_chat : {true, false}) {
    for (const std::string& fields :
         {R"({"response_format": {"type": "json_schema", "json_schema":
               {"name": "n", "strict": true, "schema": )" +
              schema + "}}}",
          R"({"structured_outputs": {"json": )" + schema + "}}",
          R"({"structured_outputs": {"json": )" + Json(schema).dump() + "}}"}) {
      const GenerationRequest request = accepted(fields, is_chat);
      EXPECT_TRUE(allows(request, "{\"a\": true}")) << fields;
      EXPECT_FALSE(allows(request, "{\"a\": 1}")) << fields;
      EXPECT_FALSE(allows(request, "{\"a\": true, \"b\": 1}")) << fields;
    }
    for (const char* fields : {R"({"response_format": {"type": "json_object"}})",
                               R"({"structured_outputs": {"json_object": true}})"}) {
      const GenerationRequest request = accepted(fields, is_chat);
      EXPECT_TRUE(allows(request, "{\"b\": [1, {}]}")) << fields;
      EXPECT_FALSE(allows(request, "[1]")) << fields;
    }
    for (
        const char* fields :
        {R"({"regex": "[ab]{2}"})", R"({"ebnf": "root ::= [ab] [ab]"})",
         R"({"structured_outputs": {"regex": "[ab]{2}", "choice": null}})",
         R"({"structured_outputs": {"grammar": "root ::= [ab] [ab]"}})",
         R"({"structured_outputs": {"choice": ["ab", "ba"]}, "response_format": {"type": "text"}})"}) {
      const GenerationRequest request = accepted(fields, is_chat);
      EXPECT_TRUE(allows(request, "ab")) << fields;
      EXPECT_FALSE(allows(request, "abc")) << fields;
    }
  }
}

// Free text, in which what begins as a call is one.
TEST(Constraint, OfAStructuralTagHoldsWhatBeginsWithATrigger) {
  const std::string tag = R"({"type": "structural_tag", "triggers": ["<f="], "structures": [
      {"begin": "<f=add>", "schema": {"enum": [1, 2]}, "end": "</f>"},
      {"begin": "<f=stop>", "schema": {"type": "null"}, "end": "</f>"}]})";
  for (const std::string& fields :
       {R"({"structural_tag": )" + tag + "}", R"({"response_format": )" + tag + "}",
        R"({"structural_tag": )" + Json(tag).dump() + "}",
        R"({"structured_outputs": {"structural_tag": )" + Json(tag).dump() + "}}"}) {
    const GenerationRequest request = accepted(fields);
    for (const char* text : {"", "No call.", "<f=add>2</f>", "a <f=stop>null</f> b <f=add>1</f>"})
      EXPECT_TRUE(allows(request, text)) << fields << text;
    for (const char* text : {"<f=add>3</f>", "<f=go>", "a <f=stop>1", "<f=add>2"})
      EXPECT_FALSE(allows(request, text)) << fields << text;
  }
}

TEST(Constraint, OfAStructuralTagIsRefusedByItsField) {
  const auto tag = [](const std::string& structures, const std::string& triggers) {
    return R"({"structural_tag": {"structures": )" + structures + R"(, "triggers": )" + triggers +
           "}}";
  };
  const std::string good = R"([{"begin": "<a>", "schema": {"type": "null"}, "end": "</a>"}])";
  expect_refused(R"({"structural_tag": 3})", "structural_tag", "");
  expect_refused(R"({"structural_tag": "{"})", "structural_tag", "");
  expect_refused(R"({"structural_tag": {"format": {"type": "any_text"}}})", "structural_tag.format",
                 "unsupported_value");
  expect_refused(R"({"structural_tag": {"type": "a"}})", "structural_tag.type", "");
  expect_refused(tag("[]", R"(["<a"])"), "structural_tag", "", "at least one");
  expect_refused(tag(good, "[]"), "structural_tag", "", "at least one");
  expect_refused(tag(good, "[1]"), "structural_tag.triggers", "");
  expect_refused(tag(good, R"([""])"), "structural_tag", "", "empty");
  expect_refused(tag(good, R"(["<a", "<b"])"), "structural_tag", "",
                 "no structure begins with the trigger \"<b\"");
  expect_refused(tag(R"([{"begin": "<a>", "schema": {"type": "null"}, "end": ""},
                         {"begin": "<b>", "schema": {"type": "null"}, "end": ""}])",
                     R"(["<a"])"),
                 "structural_tag", "", "begins with \"<b>\" begins with no trigger");
  expect_refused(tag("[1]", R"(["<a"])"), "structural_tag.structures[0]", "");
  expect_refused(tag(R"([{"begin": "<a>", "schema": {}}])", R"(["<a"])"),
                 "structural_tag.structures[0].end", "");
  expect_refused(tag(R"([{"begin": "<a>", "schema": {"not": {}}, "end": ""}])", R"(["<a"])"),
                 "structural_tag.structures[0].schema", "unsupported_value", "\"not\"");
}

TEST(Constraint, IsNoneWhereNothingIsAskedFor) {
  for (const char* fields : {"{}", R"({"response_format": {"type": "text"}})",
                             R"({"response_format": null, "regex": null, "ebnf": null})",
                             R"({"structured_outputs": {}})",
                             R"({"structured_outputs": {"json": null, "json_object": false}})",
                             R"({"tool_choice": "auto"})", R"({"tool_choice": "none"})"}) {
    EXPECT_EQ(accepted(fields).grammar, nullptr) << fields;
  }
}

TEST(Constraint, IsRefusedByItsField) {
  expect_refused(R"({"response_format": "json"})", "response_format", "");
  expect_refused(R"({"response_format": {}})", "response_format.type", "unsupported_value");
  expect_refused(R"({"response_format": {"type": "xml"}})", "response_format.type",
                 "unsupported_value");
  expect_refused(R"({"response_format": {"type": "json_schema"}})", "response_format.json_schema",
                 "");
  expect_refused(R"({"response_format": {"type": "json_schema", "json_schema": {}}})",
                 "response_format.json_schema.schema", "");
  expect_refused(R"({"response_format": {"type": "json_schema", "json_schema": {"name": 1}}})",
                 "response_format.json_schema.name", "");
  expect_refused(R"({"response_format": {"type": "json_schema", "json_schema": {"schema":
                     {"type": "array", "items": {"not": {}}}}}})",
                 "response_format.json_schema.schema", "unsupported_value", "\"not\"");
  expect_refused(R"({"regex": 3})", "regex", "");
  expect_refused(R"({"regex": ""})", "regex", "");
  expect_refused(R"({"regex": "(a"})", "regex", "", "parenthesis");
  expect_refused(R"({"ebnf": "root ::= other"})", "ebnf", "", "other");
  expect_refused(R"({"structured_outputs": "a"})", "structured_outputs", "");
  expect_refused(R"({"structured_outputs": {"lark": "a"}})", "structured_outputs.lark",
                 "unsupported_value");
  expect_refused(R"({"structured_outputs": {"choice": "a"}})", "structured_outputs.choice", "");
  expect_refused(R"({"structured_outputs": {"choice": [1]}})", "structured_outputs.choice", "");
  expect_refused(R"({"structured_outputs": {"choice": []}})", "structured_outputs.choice", "");
  expect_refused(R"({"structured_outputs": {"json": 3}})", "structured_outputs.json", "");
  expect_refused(R"({"structured_outputs": {"json": "{"}})", "structured_outputs.json", "");
  expect_refused(R"({"structured_outputs": {"json_object": 1}})", "structured_outputs.json_object",
                 "");
}

TEST(Constraint, IsOneAtMost) {
  expect_refused(R"({"regex": "a", "ebnf": "root ::= \"a\""})", "ebnf", "", "regex");
  expect_refused(R"({"response_format": {"type": "json_object"},
                     "structured_outputs": {"choice": ["a"]}})",
                 "structured_outputs", "");
  expect_refused(R"({"structured_outputs": {"regex": "a", "choice": ["a"]}})",
                 "structured_outputs.choice", "");
  expect_refused(R"({"regex": "a", "tool_choice": "required",
                     "tools": [{"type": "function", "function": {"name": "f"}}]})",
                 "tool_choice", "");
}

// ---- tool_choice

constexpr const char* kTools = R"("tools": [
    {"type": "function", "function": {"name": "add", "parameters":
      {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}},
    {"type": "function", "function": {"name": "stop"}}])";

std::string with_tools(const std::string& fields) {
  return "{" + fields + ", " + kTools + "}";
}

constexpr const char* kAdd =
    "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"x\": 12}}\n</tool_call>";
constexpr const char* kStop = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";

TEST(ToolChoice, RequiredDemandsCalls) {
  const GenerationRequest request = accepted(with_tools(R"("tool_choice": "required")"));
  EXPECT_TRUE(request.tool_calls.has_value());
  EXPECT_TRUE(allows(request, kAdd));
  EXPECT_TRUE(allows(request, std::string(kStop) + "\n" + kAdd));
  EXPECT_FALSE(allows(request, "Hello"));
  EXPECT_FALSE(allows(request, ""));
}

TEST(ToolChoice, RequiredDemandsOneCallWithoutParallelOnes) {
  const GenerationRequest request =
      accepted(with_tools(R"("tool_choice": "required", "parallel_tool_calls": false)"));
  EXPECT_TRUE(allows(request, kAdd));
  EXPECT_FALSE(allows(request, std::string(kStop) + "\n" + kAdd));
}

TEST(ToolChoice, ThatNamesAToolDemandsACallOfIt) {
  const GenerationRequest request =
      accepted(with_tools(R"("tool_choice": {"type": "function", "function": {"name": "stop"}})"));
  EXPECT_TRUE(allows(request, kStop));
  EXPECT_FALSE(allows(request, kAdd));
  EXPECT_FALSE(allows(request, std::string(kStop) + "\n" + kStop));
}

TEST(ToolChoice, IsRefusedWhereItMakesNoSense) {
  expect_refused(R"({"tool_choice": "required"})", "tool_choice", "", "no tools");
  expect_refused(with_tools(R"("tool_choice": "always")"), "tool_choice", "");
  expect_refused(with_tools(R"("tool_choice": 3)"), "tool_choice", "");
  expect_refused(with_tools(R"("tool_choice": {})"), "tool_choice.type", "");
  expect_refused(with_tools(R"("tool_choice": {"type": "function"})"), "tool_choice.function", "");
  expect_refused(with_tools(R"("tool_choice": {"type": "function", "function": {}})"),
                 "tool_choice.function.name", "");
  expect_refused(
      with_tools(R"("tool_choice": {"type": "function", "function": {"name": "other"}})"),
      "tool_choice", "", "other");
  expect_refused(R"({"tool_choice": "required", "tools": [{"type": "function", "function":
                     {"name": "f", "parameters": {"type": "object", "not": {}}}}]})",
                 "tools[0].function.parameters", "unsupported_value", "\"not\"");
}

TEST(ToolChoice, NeedsAFormatOfCalls) {
  const auto result = read(with_tools(R"("tool_choice": "required")"), true, "none");
  const auto* error = std::get_if<ApiError>(&result);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->param, "tool_choice");
  EXPECT_EQ(error->code, "unsupported_value");
  EXPECT_THAT(error->message, HasSubstr("--tool-call-parser"));
}

}  // namespace
}  // namespace halfbyte::server
