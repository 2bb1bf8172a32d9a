// SPDX-License-Identifier: Apache-2.0
//
// What answers can be held to, checked and in the form that the compiler takes.
#ifndef HALFBYTE_TEXT_GRAMMAR_SOURCE_H_
#define HALFBYTE_TEXT_GRAMMAR_SOURCE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/result.h"
#include "text/schema_check.h"
#include "text/tool_call_parser.h"

namespace halfbyte {

struct GrammarSource {
  enum class Kind : std::int32_t { kJsonSchema, kRegex, kEbnf, kStructuralTag };

  Kind kind = Kind::kEbnf;
  std::string text;
  // Of JSON schemas: each has to be one that leaves a string of JSON a string.
  std::vector<std::string> string_patterns = {};
  // Of JSON schemas: no token with a control character but for the ends of lines is allowed, for
  // XGrammar lets them into strings whose length is bounded.
  bool forbids_controls = false;
};

/// Bytes of a source at most, alternatives, levels of parentheses and rules: compiling takes stack
/// and time by them.
inline constexpr std::size_t kMaxGrammarBytes = 256 * 1024;
inline constexpr std::size_t kMaxGrammarChoices = 1024;
inline constexpr int kMaxGrammarDepth = 64;
inline constexpr std::size_t kMaxGrammarRules = 1000;
/// Repetitions at most, as repetitions.h counts them: of a grammar, whose masks take time by them,
/// and of a schema's pattern, whose automaton does.
inline constexpr std::size_t kMaxRepetitions = 10000;
inline constexpr std::size_t kMaxPatternRepetitions = 256;

/// White space of JSON comes in runs of at most so many characters: without a bound a model that
/// has lost its way writes nothing else until max_tokens.
inline constexpr int kMaxJsonBlanks = 16;

GrammarSource schema_source(CheckedSchema schema);
/// Any JSON object.
GrammarSource json_object_source();
/// The whole answer matches; `.` is any character. kInvalidArgument: empty, or over a limit.
Result<GrammarSource> regex_source(std::string_view regex);
/// XGrammar's EBNF (like llama.cpp's GBNF); the rule `root` is the answer. Errors: as above.
Result<GrammarSource> ebnf_source(std::string_view grammar);
/// One of these texts. kInvalidArgument: none, an empty one, or over a limit.
Result<GrammarSource> choice_source(const std::vector<std::string>& choices);

/// Between `begin` and `end` stands JSON of a schema.
struct TriggeredTag {
  std::string begin;
  CheckedSchema schema;
  std::string end;
};

/// Any text, in which whatever begins with a trigger is one of the tags. kInvalidArgument: no tag,
/// no trigger, an empty one, a tag that begins with none, one that begins no tag, or over a limit.
Result<GrammarSource> triggered_tags_source(const std::vector<std::string>& triggers,
                                            const std::vector<TriggeredTag>& tags);

/// A tool, and what its arguments must be.
struct CallableTool {
  std::string name;
  CheckedSchema arguments;
};

/// Calls of these tools, at least one, as ToolCallParser reads them: one, or any number. DeepSeek's
/// two layouts are both allowed: the model knows its own.
GrammarSource tool_call_source(ToolCallFormat format,
                               const std::vector<CallableTool>& tools,
                               bool one_call);

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_GRAMMAR_SOURCE_H_
