// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_SCHEMA_CHECK_H_
#define HALFBYTE_TEXT_SCHEMA_CHECK_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/result.h"

namespace halfbyte {

inline constexpr int kMaxSchemaDepth = 128;  // of schemas in schemas, through $ref too
inline constexpr std::size_t kMaxSchemas = 4096;
inline constexpr int kMaxSchemaBrackets = 512;  // in each other: values may be deep, too

/// A schema of which a grammar keeps every word.
struct CheckedSchema {
  std::string json;
  std::vector<std::string> patterns;  // of strings in it
  bool has_lengths = false;           // of strings
};

/// Checks a JSON Schema before a grammar is made of it, for the compiler leaves out silently what
/// it cannot do, and writes out what it means:
///   - objects have the properties that are listed, in that order, and others only where
///     additionalProperties says so, or where none are listed; arrays with prefixItems end there
///     unless there is `items`;
///   - a schema without `type` gets the one that its keywords are about.
/// `pattern` describes the whole string; one under a pattern or a length has no escapes.
/// Annotations are kept and mean nothing.
///
/// @return kUnsupported: a keyword that grammars cannot keep, or not beside another one, by its
///         name and JSON pointer; kInvalidArgument: no JSON, no schema, a reference to nothing or
///         in a circle, or over a limit.
Result<CheckedSchema> check_schema(std::string_view schema);

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_SCHEMA_CHECK_H_
