// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_TOOL_CALL_PARSER_H_
#define HALFBYTE_TEXT_TOOL_CALL_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_nesting.h"

namespace halfbyte {

/// What a piece of text adds to a call. A call's first has its name, which no later one has; the
/// pieces of its arguments, one after the other, are its arguments.
struct ToolCallDelta {
  std::size_t index = 0;       // of the call in the text
  std::string name = {};       // never empty in a call's first
  std::string arguments = {};  // JSON, as the model wrote it
};

/// How a model writes calls.
///
///   kQwen3      <tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>
///   kDeepSeek   <|tool_calls_begin|> CALLS <|tool_calls_end|>, a call being either of
///                 <|tool_call_begin|>NAME<|tool_sep|>{...}<|tool_call_end|>            (V3.1)
///                 <|tool_call_begin|>function<|tool_sep|>NAME\n```json\n{...}\n```<|tool_call_end|>
///               with U+FF5C for | and U+2581 for _ inside the markers
enum class ToolCallFormat : std::int32_t { kQwen3, kDeepSeek };

/// The first marker of a format: a vocabulary that has it as one token writes calls so.
std::string_view tool_call_marker(ToolCallFormat format);

/// Finds tool calls in a text that comes in pieces.
///
/// The result does not depend on where the text is cut. What is no call is content, unchanged.
/// Around calls, white space alone is dropped; text after a call loses one newline.
///
/// What has been given cannot be taken back, so one point decides: a call begins with the { of its
/// arguments, once its name stands before it. Until there it may still turn out to be content;
/// from there on everything belongs to it:
///   - up to the } that closes the object, its arguments, given as they come. They are not
///     checked, and a marker inside one of their strings is text. A closing marker outside of
///     strings, or the end of the text, ends the call before: its arguments are what is there.
///   - behind the }, up to the closing marker (or the next call, or the end of the calls), nothing
///     that counts. Where none of them comes, it is content, less what closes a call.
/// A call of kQwen3 that is written otherwise (arguments before the name, no arguments, other
/// members between) is given whole, when it is closed; it is content if it is no JSON object with a
/// name and an object (or nothing, or a string that holds an object) for its arguments, or nested
/// deeper than 64, or never closed. Thread rule: one thread.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolCallFormat format);

  struct Parsed {
    std::string content;
    std::vector<ToolCallDelta> calls;  // at most one for each call
  };
  Parsed push(std::string_view piece);
  /// The end of the text.
  Parsed finish();

  std::size_t num_calls() const { return num_calls_; }  // that have begun
  /// Of them: whose arguments get no more text; whose arguments are a whole object.
  std::size_t num_ended_calls() const { return num_ended_calls_; }
  std::size_t num_whole_calls() const { return num_whole_calls_; }

  struct Syntax;  // of a format

 private:
  // kHead: until the name and the { of the arguments; kWhole: a call that cannot be given in
  // pieces; kTail: behind the arguments.
  enum class State { kContent, kHead, kWhole, kArguments, kTail };
  bool step(Parsed& parsed);
  bool take_content(Parsed& parsed);
  bool take_head(Parsed& parsed);
  bool take_whole(Parsed& parsed);
  bool take_arguments(Parsed& parsed);
  bool take_tail();
  bool skip_section_end();
  std::size_t num_argument_bytes();
  void begin_call(std::string name, std::string arguments, Parsed& parsed);
  void end_arguments(bool are_whole);
  void leave_call();
  void finish_tail(std::string_view rest, Parsed& parsed);
  void add_arguments(std::string_view piece, Parsed& parsed) const;
  void add_content(std::string_view text, Parsed& parsed);

  const Syntax& syntax_;
  State state_ = State::kContent;
  std::string pending_;
  std::string opening_;  // of the call under way, as it was written, with white space before it
  JsonNesting nesting_;  // of its arguments
  std::size_t num_calls_ = 0;
  std::size_t num_ended_calls_ = 0;
  std::size_t num_whole_calls_ = 0;
  bool after_call_ = false;  // nothing but white space since a call
  bool before_text_ = true;  // the same, or since the beginning
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_TOOL_CALL_PARSER_H_
