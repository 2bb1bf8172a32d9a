// SPDX-License-Identifier: Apache-2.0
#include "text/tool_call_parser.h"

#include <gtest/gtest.h>

namespace halfbyte {
namespace {

// One line: the content, then each call as [name arguments].
std::string parse(const std::vector<std::string_view>& pieces) {
  ToolCallParser parser;
  ToolCallParser::Parsed all;
  const auto add = [&all](ToolCallParser::Parsed parsed) {
    all.content += parsed.content;
    for (ToolCall& call : parsed.calls)
      all.calls.push_back(std::move(call));
  };
  for (const std::string_view piece : pieces)
    add(parser.push(piece));
  add(parser.finish());
  std::string line = all.content;
  for (const ToolCall& call : all.calls)
    line += "[" + call.name + " " + call.arguments + "]";
  return line;
}

std::string parse_bytes(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (std::size_t i = 0; i < text.size(); ++i)
    pieces.push_back(text.substr(i, 1));
  return parse(pieces);
}

struct Case {
  std::string_view text;
  std::string_view want;
};

// The form is that of Qwen3's chat template; the rules for white space are the parser's contract.
const std::vector<Case>& cases() {
  static const std::vector<Case> cases = {
      {"", ""},
      {"plain", "plain"},
      {" \n", " \n"},
      {"a < b <tool", "a < b <tool"},
      {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": [2]}}\n</tool_call>",
       "[f {\"b\":1,\"a\":[2]}]"},
      {"Sure.\n<tool_call>{\"arguments\": {}, \"name\": \"f\"}</tool_call>", "Sure.\n[f {}]"},
      {"\n\n<tool_call>{\"name\": \"f\"}</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>\n",
       "[f {}][g {}]"},
      {"<tool_call>{\"name\": \"f\"}</tool_call>\n\nDone.", "\nDone.[f {}]"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>",
       "[f {\"x\": 1}]"},
      {"<tool_call>{\"name\": 3}</tool_call>", "<tool_call>{\"name\": 3}</tool_call>"},
      {"<tool_call>f(x)</tool_call> x", "<tool_call>f(x)</tool_call> x"},
      {"a<tool_call>{\"name\": \"f\", \"argu", "a<tool_call>{\"name\": \"f\", \"argu"},
  };
  return cases;
}

TEST(ToolCallParser, FindsCallsInOnePiece) {
  for (const auto& [text, want] : cases())
    EXPECT_EQ(parse({text}), want) << text;
}

TEST(ToolCallParser, FindsTheSameByteByByteAndWhereverThereIsACut) {
  for (const auto& [text, want] : cases()) {
    EXPECT_EQ(parse_bytes(text), want) << text;
    for (std::size_t cut = 0; cut <= text.size(); ++cut)
      EXPECT_EQ(parse({text.substr(0, cut), text.substr(cut)}), want) << text << " at " << cut;
  }
}

// Deep JSON would be written by a recursion as deep.
TEST(ToolCallParser, TakesVeryDeepJsonForText) {
  const std::string text =
      "<tool_call>{\"name\": \"f\", \"arguments\": " + std::string(100000, '[') +
      std::string(100000, ']') + "}</tool_call>";
  EXPECT_EQ(parse({text}), text);
}

TEST(ToolCallParser, GivesTextAsSoonAsItIsKnownToBeText) {
  ToolCallParser parser;
  EXPECT_EQ(parser.push("one <to").content, "one ");
  EXPECT_EQ(parser.push("w>").content, "<tow>");
}

}  // namespace
}  // namespace halfbyte
