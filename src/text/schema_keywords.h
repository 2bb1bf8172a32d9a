// SPDX-License-Identifier: Apache-2.0
//
// The keywords of JSON Schema that grammars keep; check_schema() refuses the others.
#ifndef HALFBYTE_TEXT_SCHEMA_KEYWORDS_H_
#define HALFBYTE_TEXT_SCHEMA_KEYWORDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

namespace halfbyte {

/// What a keyword's value is, and what is done with it.
enum class KeywordUse : std::int32_t {
  kAnnotation,    // nothing
  kType,          // a name or a list of them
  kText,          // a string
  kCount,         // a whole number from 0
  kNumber,        // any number
  kNames,         // a list of strings
  kFalse,         // false, which asks for nothing
  kValue,         // any JSON
  kValues,        // a list of any JSON, not empty
  kReference,     // "#/..." or "#"
  kSchemaOrBool,  // true and false are understood
  kSchemas,       // a list of schemas, not empty
  kProperties,    // name -> schema
};

/// The type that a keyword is about; kHead: it says alone what a value is, so that no other keyword
/// may stand beside it.
enum class KeywordSubject : std::int32_t { kAnything, kHead, kObject, kArray, kString, kNumber };

struct Keyword {
  std::string_view name;
  KeywordUse use;
  KeywordSubject about;
};

/// All of them, annotations included.
std::span<const Keyword> schema_keywords();
/// Null: none of this name.
const Keyword* find_keyword(std::string_view name);
/// Whether a member of a schema says nothing about values. `is_root`: of the whole schema.
bool is_annotation(std::string_view name, bool is_root);

/// The name of the type that keywords are about; empty: of none.
std::string_view type_of(KeywordSubject about);
bool is_schema_type(std::string_view name);
/// Formats of strings that are kept.
bool is_schema_format(std::string_view name);

/// Whether a value is of a type, as const and enum have it.
bool is_of_type(const nlohmann::ordered_json& value, std::string_view type);
/// What a keyword's value must be; null: it is that.
const char* wanted_value(KeywordUse use, const nlohmann::ordered_json& value);

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_SCHEMA_KEYWORDS_H_
