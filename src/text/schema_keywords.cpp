// SPDX-License-Identifier: Apache-2.0
#include "text/schema_keywords.h"

#include <algorithm>
#include <array>

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;
using Use = KeywordUse;
using About = KeywordSubject;

constexpr auto kKeywords = std::to_array<Keyword>({
    {"type", Use::kType, About::kAnything},
    {"$ref", Use::kReference, About::kHead},
    {"const", Use::kValue, About::kHead},
    {"enum", Use::kValues, About::kHead},
    {"anyOf", Use::kSchemas, About::kHead},
    {"oneOf", Use::kSchemas, About::kHead},
    {"allOf", Use::kSchemas, About::kHead},
    {"properties", Use::kProperties, About::kObject},
    {"required", Use::kNames, About::kObject},
    {"additionalProperties", Use::kSchemaOrBool, About::kObject},
    {"minProperties", Use::kCount, About::kObject},
    {"maxProperties", Use::kCount, About::kObject},
    {"items", Use::kSchemaOrBool, About::kArray},
    {"prefixItems", Use::kSchemas, About::kArray},
    {"minItems", Use::kCount, About::kArray},
    {"maxItems", Use::kCount, About::kArray},
    {"uniqueItems", Use::kFalse, About::kArray},
    {"minLength", Use::kCount, About::kString},
    {"maxLength", Use::kCount, About::kString},
    {"pattern", Use::kText, About::kString},
    {"format", Use::kText, About::kString},
    {"minimum", Use::kNumber, About::kNumber},
    {"maximum", Use::kNumber, About::kNumber},
    {"exclusiveMinimum", Use::kNumber, About::kNumber},
    {"exclusiveMaximum", Use::kNumber, About::kNumber},
    {"$defs", Use::kAnnotation, About::kAnything},  // looked at where they are referred to
    {"definitions", Use::kAnnotation, About::kAnything},
    {"title", Use::kAnnotation, About::kAnything},
    {"description", Use::kAnnotation, About::kAnything},
    {"default", Use::kAnnotation, About::kAnything},
    {"examples", Use::kAnnotation, About::kAnything},
    {"example", Use::kAnnotation, About::kAnything},
    {"deprecated", Use::kAnnotation, About::kAnything},
    {"readOnly", Use::kAnnotation, About::kAnything},
    {"writeOnly", Use::kAnnotation, About::kAnything},
    {"discriminator", Use::kAnnotation, About::kAnything},  // OpenAPI's hint beside oneOf
    {"$comment", Use::kAnnotation, About::kAnything},
    {"$schema", Use::kAnnotation, About::kAnything},
});

constexpr auto kFormats = std::to_array<std::string_view>(
    {"email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri",
     "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"});

constexpr auto kTypes = std::to_array<std::string_view>(
    {"object", "array", "string", "number", "integer", "boolean", "null"});

bool is_count(const Json& value) {
  return value.is_number_integer() && value >= 0;
}

bool is_list_of_strings(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(),
                                         [](const Json& entry) { return entry.is_string(); });
}

}  // namespace

std::span<const Keyword> schema_keywords() {
  return kKeywords;
}

const Keyword* find_keyword(std::string_view name) {
  const auto found = std::ranges::find(kKeywords, name, &Keyword::name);
  return found == kKeywords.end() ? nullptr : &*found;
}

bool is_annotation(std::string_view name, bool is_root) {
  const Keyword* keyword = find_keyword(name);
  if (keyword != nullptr) return keyword->use == Use::kAnnotation;
  // The root's own address changes nothing.
  return name.starts_with("x-") || (is_root && name == "$id");
}

std::string_view type_of(About about) {
  switch (about) {
    case About::kObject:
      return "object";
    case About::kArray:
      return "array";
    case About::kString:
      return "string";
    case About::kNumber:
      return "number";
    default:
      return "";
  }
}

bool is_schema_type(std::string_view name) {
  return std::ranges::count(kTypes, name) > 0;
}

bool is_schema_format(std::string_view name) {
  return std::ranges::count(kFormats, name) > 0;
}

bool is_of_type(const Json& value, std::string_view type) {
  if (type == "integer") return value.is_number_integer();
  return value.type_name() == type;
}

const char* wanted_value(Use use, const Json& value) {
  switch (use) {
    case Use::kText:
    case Use::kReference:
      return value.is_string() ? nullptr : "a string";
    case Use::kCount:
      return is_count(value) ? nullptr : "a whole number from 0";
    case Use::kNumber:
      return value.is_number() ? nullptr : "a number";
    case Use::kNames:
      return is_list_of_strings(value) ? nullptr : "a list of strings";
    case Use::kType:
      return value.is_string() || (is_list_of_strings(value) && !value.empty())
                 ? nullptr
                 : "a type or a list of them";
    case Use::kValues:
    case Use::kSchemas:
      return value.is_array() && !value.empty() ? nullptr : "a list that is not empty";
    case Use::kSchemaOrBool:
      return value.is_object() || value.is_boolean() ? nullptr : "a schema";
    case Use::kProperties:
      return value.is_object() ? nullptr : "an object";
    case Use::kFalse:
    case Use::kAnnotation:
    case Use::kValue:
      return nullptr;
  }
  return nullptr;
}

}  // namespace halfbyte
