// SPDX-License-Identifier: Apache-2.0
#include "text/tool_call_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace halfbyte {
namespace {

// One line: the content, then each call as [name arguments].
std::string parse(const std::vector<std::string_view>& pieces,
                  ToolCallFormat format = ToolCallFormat::kQwen3) {
  ToolCallParser parser(format);
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

std::string parse_bytes(std::string_view text, ToolCallFormat format) {
  std::vector<std::string_view> pieces;
  for (std::size_t i = 0; i < text.size(); ++i)
    pieces.push_back(text.substr(i, 1));
  return parse(pieces, format);
}

struct Case {
  std::string text;
  std::string want;
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
      {"\n<tool_call>{\"name\": 3}</tool_call>", "\n<tool_call>{\"name\": 3}</tool_call>"},
      {"<tool_call>f(x)</tool_call> x", "<tool_call>f(x)</tool_call> x"},
      {"a<tool_call>{\"name\": \"f\", \"argu", "a<tool_call>{\"name\": \"f\", \"argu"},
  };
  return cases;
}

// ( ) [ ] | are the markers of DeepSeek, which are long, and not ASCII.
std::string deepseek(std::string_view text) {
  const std::vector<std::pair<char, std::string>> markers = {{'(', "calls\u2581begin"},
                                                             {')', "calls\u2581end"},
                                                             {'[', "call\u2581begin"},
                                                             {']', "call\u2581end"},
                                                             {'|', "sep"}};
  std::string out;
  for (const char c : text) {
    const auto marker = std::ranges::find(markers, c, &std::pair<char, std::string>::first);
    out += marker == markers.end() ? std::string(1, c)
                                   : "<\uFF5Ctool\u2581" + marker->second + "\uFF5C>";
  }
  return out;
}

// The first is V3.1's template, the second V3's; what is malformed stays as it is.
std::vector<Case> deepseek_cases() {
  const std::string broken = deepseek("([f|{\"a\":])");
  return {
      {"plain <b", "plain <b"},
      {deepseek("Sure.([f|{\"a\": 1}][g|{}])"), "Sure.[f {\"a\": 1}][g {}]"},
      {deepseek("([function|f\n```json\n{\"a\": 1}\n```]\n[function|g\n```json\n{}\n```])"),
       "[f {\"a\": 1}][g {}]"},
      {deepseek("\n(\n[function|{}]\n)\nDone."), "Done.[function {}]"},
      {deepseek("[f|{}] x"), " x[f {}]"},
      {"a" + broken + "b", "a" + broken + "b"},
      {deepseek("([f|{}][g|{\"a"), deepseek("[g|{\"a") + "[f {}]"},
      {deepseek("(") + "text", deepseek("(") + "text"},
      {deepseek("([other|f\n```json\n{}\n```])"), deepseek("([other|f\n```json\n{}\n```])")},
      {deepseek("([function|f])"), deepseek("([function|f])")},
      {deepseek("([|{}])"), deepseek("([|{}])")},
      {deepseek("([f|{}])").substr(0, 20), deepseek("([f|{}])").substr(0, 20)},
  };
}

void expect_the_same_wherever_cut(const std::vector<Case>& cases, ToolCallFormat format) {
  for (const Case& each : cases) {
    const std::string_view text = each.text;
    EXPECT_EQ(parse_bytes(text, format), each.want) << text;
    for (std::size_t cut = 0; cut <= text.size(); ++cut)
      EXPECT_EQ(parse({text.substr(0, cut), text.substr(cut)}, format), each.want)
          << text << " at " << cut;
  }
}

TEST(ToolCallParser, FindsCallsOfQwen3WhereverTheTextIsCut) {
  expect_the_same_wherever_cut(cases(), ToolCallFormat::kQwen3);
}

TEST(ToolCallParser, FindsCallsOfDeepSeekWhereverTheTextIsCut) {
  expect_the_same_wherever_cut(deepseek_cases(), ToolCallFormat::kDeepSeek);
}

// Deep JSON would be written by a recursion as deep.
TEST(ToolCallParser, TakesVeryDeepJsonForText) {
  const std::string text =
      "<tool_call>{\"name\": \"f\", \"arguments\": " + std::string(100000, '[') +
      std::string(100000, ']') + "}</tool_call>";
  EXPECT_EQ(parse({text}), text);
}

TEST(ToolCallParser, GivesTextAsSoonAsItIsKnownToBeText) {
  ToolCallParser parser(ToolCallFormat::kQwen3);
  EXPECT_EQ(parser.push("one <to").content, "one ");
  EXPECT_EQ(parser.push("w>").content, "<tow>");
}

}  // namespace
}  // namespace halfbyte
