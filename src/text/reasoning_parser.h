// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_REASONING_PARSER_H_
#define HALFBYTE_TEXT_REASONING_PARSER_H_

#include <string>
#include <string_view>

namespace halfbyte {

inline constexpr std::string_view kReasoningOpen = "<think>";
inline constexpr std::string_view kReasoningClose = "</think>";

/// Where an answer begins: the prompt has closed the reasoning (or there is none), the answer may
/// open it, the prompt has opened it.
enum class Reasoning { kNone, kMayBegin, kBegun };

/// From the tail of a rendered prompt: it ends with </think>, with <think>, or with neither, white
/// space aside.
Reasoning reasoning_after(std::string_view prompt);

/// The same for an answer that goes on where `message` ends.
Reasoning reasoning_within(std::string_view message);

/// Splits an answer of Qwen3 or DeepSeek (R1, V3.1) that comes in pieces:
///
///   <think>\nREASONING\n</think>\n\nCONTENT
///
/// The result does not depend on where the text is cut. The markers, and newlines beside them, are
/// neither reasoning nor content. An answer that begins with anything but <think> is content,
/// unless the prompt has opened the reasoning; without </think> all of it is reasoning. Thread
/// rule: one thread.
class ReasoningParser {
 public:
  explicit ReasoningParser(Reasoning start);

  struct Parsed {
    std::string reasoning;
    std::string content;
  };
  Parsed push(std::string_view piece);
  /// The end of the text: what was held back.
  Parsed finish();
  /// True while text is reasoning.
  bool is_inside() const { return state_ == State::kInside; }

 private:
  enum class State { kBefore, kInside, kContent };
  bool take_opening();
  bool take_reasoning(Parsed& parsed);
  void take_content(Parsed& parsed);
  void drop_newlines();

  State state_;
  bool after_marker_;  // newlines are dropped
  std::string pending_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_REASONING_PARSER_H_
