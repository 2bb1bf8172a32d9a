// SPDX-License-Identifier: Apache-2.0
//
// What a schema may say. Keywords and their meaning: JSON Schema 2020-12.
#include "text/schema_check.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

Json checked(std::string_view schema) {
  const auto result = check_schema(schema);
  EXPECT_TRUE(result.ok()) << schema << ": " << result.status().to_string();
  return result.ok() ? Json::parse(result->json) : Json();
}

std::string refusal(std::string_view schema, StatusCode code) {
  const auto result = check_schema(schema);
  EXPECT_FALSE(result.ok()) << schema << " is accepted";
  if (result.ok()) return "";
  EXPECT_EQ(result.status().code(), code) << result.status().to_string();
  return std::string(result.status().message());
}

std::string unsupported(std::string_view schema) {
  return refusal(schema, StatusCode::kUnsupported);
}
std::string invalid(std::string_view schema) {
  return refusal(schema, StatusCode::kInvalidArgument);
}

TEST(SchemaCheck, NamesKeywordAndPlaceOfWhatGrammarsCannotKeep) {
  for (const char* keyword :
       {"not", "if", "then", "else", "contains", "minContains", "multipleOf", "patternProperties",
        "propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties",
        "unevaluatedItems", "$dynamicRef", "$anchor", "contentEncoding", "nullable"}) {
    const std::string message = unsupported(fmt::format(
        R"({{"type": "object", "properties": {{"a/b": {{"type": "array", "{}": {{}}}}}}}})",
        keyword));
    EXPECT_EQ(message, fmt::format("the schema at /properties/a~1b: the keyword \"{}\" is not "
                                   "supported",
                                   keyword));
  }
  EXPECT_THAT(unsupported(R"({"type": "array", "uniqueItems": true})"), HasSubstr("uniqueItems"));
  EXPECT_THAT(unsupported(R"({"items": {"$id": "x"}})"), HasSubstr("at /items"));
}

TEST(SchemaCheck, KeepsAnnotations) {
  const std::string schema = R"({"$id": "a", "$schema": "b", "title": "c", "description": "d",
      "type": "string", "default": "e", "examples": ["f"], "deprecated": true, "x-own": 1})";
  EXPECT_EQ(checked(schema), Json::parse(schema));
}

// XGrammar takes one of them and drops the others.
TEST(SchemaCheck, RefusesKeywordsBesideOneThatSaysItAll) {
  EXPECT_THAT(unsupported(R"({"$ref": "#/$defs/a", "type": "string", "$defs": {"a": {}}})"),
              HasSubstr("\"type\" beside \"$ref\""));
  EXPECT_THAT(unsupported(R"({"anyOf": [{"type": "null"}], "minLength": 1})"),
              HasSubstr("\"minLength\" beside \"anyOf\""));
  EXPECT_THAT(unsupported(R"({"enum": ["a"], "const": "a"})"), HasSubstr("beside"));
  EXPECT_THAT(unsupported(R"({"allOf": [{"type": "string"}, {"maxLength": 3}]})"),
              HasSubstr("allOf"));
  EXPECT_THAT(unsupported(R"({"type": "string", "pattern": "a", "maxLength": 3})"),
              HasSubstr("only one"));
  EXPECT_THAT(unsupported(R"({"type": "string", "format": "date", "pattern": "a"})"),
              HasSubstr("only one"));
  checked(R"({"type": "string", "enum": ["a", "b"], "title": "t"})");
  checked(R"({"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "title": "t"})");
}

TEST(SchemaCheck, RefusesValuesThatTheTypeRulesOut) {
  EXPECT_THAT(invalid(R"({"type": "integer", "enum": [1, "a"]})"), HasSubstr("\"a\" is not of"));
  EXPECT_THAT(invalid(R"({"type": "string", "const": null})"), HasSubstr("null is not of"));
  checked(R"({"type": ["integer", "null"], "enum": [1, null]})");
  checked(R"({"type": "number", "const": 1})");
}

TEST(SchemaCheck, WritesOutWhichPropertiesAndItemsThereAre) {
  const Json schema = checked(R"({"type": "object", "properties": {
      "listed": {"type": "object", "properties": {"a": {"type": "null"}}},
      "open": {"type": "object"},
      "said": {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": true},
      "list": {"type": "array"},
      "pair": {"type": "array", "prefixItems": [{"type": "null"}]}}})");
  EXPECT_EQ(schema["additionalProperties"], false);
  const Json& properties = schema["properties"];
  EXPECT_EQ(properties["listed"]["additionalProperties"], false);
  EXPECT_EQ(properties["open"]["additionalProperties"], true);
  EXPECT_EQ(properties["said"]["additionalProperties"], true);
  EXPECT_EQ(properties["list"]["items"], true);
  EXPECT_EQ(properties["pair"]["items"], false);
}

TEST(SchemaCheck, KeepsTheOrderOfProperties) {
  const Json schema = checked(R"({"properties": {"b": {}, "a": {}, "c": {}}})");
  std::vector<std::string> names;
  for (const auto& item : schema["properties"].items())
    names.push_back(item.key());
  EXPECT_THAT(names, ElementsAre("b", "a", "c"));
}

TEST(SchemaCheck, GivesASchemaTheTypeThatItsKeywordsAreAbout) {
  EXPECT_EQ(checked(R"({"properties": {"a": {}}})")["type"], "object");
  EXPECT_EQ(checked(R"({"items": {}})")["type"], "array");
  EXPECT_EQ(checked(R"({"pattern": "a"})")["type"], "string");
  EXPECT_EQ(checked(R"({"minimum": 1})")["type"], "number");
  EXPECT_EQ(checked("{}"), Json::object());
  EXPECT_THAT(unsupported(R"({"items": {}, "minimum": 1})"), HasSubstr("several types"));
}

TEST(SchemaCheck, TellsOfLengthsOfStrings) {
  EXPECT_TRUE(check_schema(R"({"items": {"minLength": 2}})")->has_lengths);
  EXPECT_TRUE(check_schema(R"({"type": "string", "maxLength": 2})")->has_lengths);
  EXPECT_FALSE(check_schema(R"({"type": "integer", "maxLength": 2})")->has_lengths);
}

TEST(SchemaCheck, CollectsThePatternsOfStrings) {
  const auto result = check_schema(
      R"({"items": {"anyOf": [{"pattern": "a+"}, {"type": "string", "pattern": "b"}]}})");
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(result->patterns, ElementsAre("a+", "b"));
}

TEST(SchemaCheck, FollowsReferences) {
  const char* schema = R"({"$ref": "#/$defs/node", "$defs": {
      "node": {"type": "object", "properties": {
          "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}},
      "unused": {"not": {}}}})";
  EXPECT_EQ(checked(schema)["$defs"]["node"]["additionalProperties"], false);
  checked(R"({"properties": {"again": {"$ref": "#"}}})");
  EXPECT_THAT(unsupported(R"({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"not": {}}}})"),
              HasSubstr("at /$defs/a"));
}

TEST(SchemaCheck, RefusesReferencesThatLeadNowhere) {
  EXPECT_THAT(invalid(R"({"$ref": "#/$defs/a"})"), HasSubstr("there is nothing"));
  EXPECT_THAT(invalid(R"({"$ref": "#/~2"})"), HasSubstr("there is nothing"));
  EXPECT_THAT(invalid(R"({"$ref": "#"})"), HasSubstr("back to itself"));
  EXPECT_THAT(invalid(R"({"$ref": "#/$defs/a",
                          "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})"),
              HasSubstr("back to itself"));
  EXPECT_THAT(unsupported(R"({"$ref": "https://elsewhere/schema.json"})"), HasSubstr("$ref"));
  EXPECT_THAT(unsupported(R"({"$ref": "#anchor"})"), HasSubstr("$ref"));
}

TEST(SchemaCheck, RefusesWhatIsNoSchema) {
  for (const char* schema :
       {"", "{", "3", "null", "[]", R"({"type": "thing"})", R"({"type": 3})", R"({"type": []})",
        R"({"properties": []})", R"({"required": "a"})", R"({"items": []})", R"({"enum": []})",
        R"({"anyOf": {}})", R"({"type": "string", "pattern": 3})", R"({"maxItems": -1})",
        R"({"maxItems": 1.5})", R"({"minimum": "1"})", R"({"items": {"type": {}}})"}) {
    invalid(schema);
  }
  EXPECT_THAT(unsupported("false"), HasSubstr("allows nothing"));
  EXPECT_THAT(unsupported(R"({"properties": {"a": false}})"), HasSubstr("at /properties/a"));
  EXPECT_THAT(unsupported(R"({"properties": {"a": {}}, "required": ["b"]})"), HasSubstr("\"b\""));
  EXPECT_THAT(unsupported(R"({"type": "string", "format": "password"})"), HasSubstr("password"));
  checked("true");
}

TEST(SchemaCheck, BoundsDepthAndNumberOfSchemas) {
  std::string deep = "{}";
  for (int i = 1; i < kMaxSchemaDepth; ++i)
    deep = R"({"items": )" + deep + "}";
  checked(deep);
  EXPECT_THAT(invalid(R"({"items": )" + deep + "}"), HasSubstr("deeper"));
  // Values too: what writes them calls itself for each bracket.
  const std::string values = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_THAT(invalid(R"({"const": )" + values + "}"), HasSubstr("deeper than 512"));
  EXPECT_THAT(invalid(R"({"default": )" + values + "}"), HasSubstr("deeper than 512"));
  Json wide = {{"anyOf", std::vector<Json>(kMaxSchemas - 1, Json::object())}};
  checked(wide.dump());
  wide["anyOf"].push_back(Json::object());
  EXPECT_THAT(invalid(wide.dump()), HasSubstr("more than 4096 schemas"));
}

}  // namespace
}  // namespace halfbyte
