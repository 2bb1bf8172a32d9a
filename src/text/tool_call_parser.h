// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_TOOL_CALL_PARSER_H_
#define HALFBYTE_TEXT_TOOL_CALL_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

namespace halfbyte {

/// A call that a model wrote.
struct ToolCall {
  std::string name;
  std::string arguments;  // JSON
};

/// Finds the tool calls of Qwen3 in a text that comes in pieces:
///
///   <tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>
///
/// The result does not depend on where the text is cut. What is no call (not this JSON, or nested
/// deeper than 64), and a call that never ends, is content, unchanged. Around calls, white space
/// alone is dropped; text after a call loses one newline. Thread rule: one thread.
class ToolCallParser {
 public:
  struct Parsed {
    std::string content;
    std::vector<ToolCall> calls;
  };
  Parsed push(std::string_view piece);
  /// The end of the text.
  Parsed finish();

 private:
  bool take_content(Parsed& parsed);
  bool take_call(Parsed& parsed);
  void add_content(std::string_view text, Parsed& parsed);

  std::string pending_;
  bool in_call_ = false;
  bool after_call_ = false;  // nothing but white space since a call
  bool before_text_ = true;  // the same, or since the beginning
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_TOOL_CALL_PARSER_H_
