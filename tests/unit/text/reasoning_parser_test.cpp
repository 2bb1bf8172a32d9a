// SPDX-License-Identifier: Apache-2.0
#include "text/reasoning_parser.h"

#include <gtest/gtest.h>

#include <vector>

namespace halfbyte {
namespace {

// "REASONING|CONTENT" of an answer that comes in pieces.
std::string parse(Reasoning start, const std::vector<std::string_view>& pieces) {
  ReasoningParser parser(start);
  ReasoningParser::Parsed all;
  const auto add = [&all](const ReasoningParser::Parsed& parsed) {
    all.reasoning += parsed.reasoning;
    all.content += parsed.content;
  };
  for (const std::string_view piece : pieces)
    add(parser.push(piece));
  add(parser.finish());
  return all.reasoning + "|" + all.content;
}

struct Case {
  Reasoning start;
  std::string_view text;
  std::string_view want;
};

// The forms are those of the templates of Qwen3 and DeepSeek; newlines as the parser's contract.
const std::vector<Case>& cases() {
  using enum Reasoning;
  static const std::vector<Case> cases = {
      {kMayBegin, "", "|"},
      {kMayBegin, " \n", "| \n"},
      {kMayBegin, "Hi", "|Hi"},
      {kMayBegin, "\nHi <think>x</think>", "|\nHi <think>x</think>"},
      {kMayBegin, "<think>\nSo 2.\n</think>\n\nIt is 2.", "So 2.|It is 2."},
      {kMayBegin, "\n<think>a\n\nb</think>c\n", "a\n\nb|c\n"},
      {kMayBegin, "<think>\n\n</think>\n\nHi", "|Hi"},
      {kMayBegin, "<think>a</thin", "a</thin|"},
      {kMayBegin, "<think>a\n", "a\n|"},
      {kMayBegin, "<thin", "|<thin"},
      {kMayBegin, "<think>a < b\n</b></think></think>c", "a < b\n</b>|</think>c"},
      {kBegun, "So 2.\n</think>\n\nIt is 2.", "So 2.|It is 2."},
      {kBegun, "never ends", "never ends|"},
      {kBegun, "</think>Hi", "|Hi"},
      {kNone, "\n<think>x</think>", "|\n<think>x</think>"},
  };
  return cases;
}

TEST(ReasoningParser, SplitsInOnePiece) {
  for (const auto& [start, text, want] : cases())
    EXPECT_EQ(parse(start, {text}), want) << text;
}

TEST(ReasoningParser, SplitsTheSameByteByByteAndWhereverThereIsACut) {
  for (const auto& [start, text, want] : cases()) {
    std::vector<std::string_view> bytes;
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      EXPECT_EQ(parse(start, {text.substr(0, cut), text.substr(cut)}), want) << text << cut;
      if (cut < text.size()) bytes.push_back(text.substr(cut, 1));
    }
    EXPECT_EQ(parse(start, bytes), want) << text;
  }
}

TEST(ReasoningParser, GivesTextAsSoonAsItIsKnown) {
  ReasoningParser parser(Reasoning::kMayBegin);
  EXPECT_EQ(parser.push("<think>one\n<").reasoning, "one");
  EXPECT_TRUE(parser.is_inside());
  EXPECT_EQ(parser.push("b").reasoning, "\n<b");
  const ReasoningParser::Parsed end = parser.push("</think>x");
  EXPECT_EQ(end.content, "x");
  EXPECT_FALSE(parser.is_inside());
}

// The tails are those that the templates of Qwen3 (enable_thinking), DeepSeek-R1 and V3.1 write.
TEST(ReasoningParser, BeginsWhereThePromptEnds) {
  EXPECT_EQ(reasoning_after("<|im_start|>assistant\n"), Reasoning::kMayBegin);
  EXPECT_EQ(reasoning_after("<|im_start|>assistant\n<think>\n\n</think>\n\n"), Reasoning::kNone);
  EXPECT_EQ(reasoning_after("<think> is a tag\nassistant: <think>\n"), Reasoning::kBegun);
  EXPECT_EQ(reasoning_after("assistant:</think>"), Reasoning::kNone);
  EXPECT_EQ(reasoning_after(""), Reasoning::kMayBegin);
  EXPECT_EQ(reasoning_within("<think>a</think>b<think>c"), Reasoning::kBegun);
  EXPECT_EQ(reasoning_within("<think>a</think>b"), Reasoning::kNone);
  EXPECT_EQ(reasoning_within("b"), Reasoning::kNone);
}

}  // namespace
}  // namespace halfbyte
