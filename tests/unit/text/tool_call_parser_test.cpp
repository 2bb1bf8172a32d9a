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
  std::string content;
  std::vector<ToolCallDelta> calls;
  const auto add = [&](const ToolCallParser::Parsed& parsed) {
    content += parsed.content;
    for (const ToolCallDelta& delta : parsed.calls) {
      if (delta.name.empty()) {
        EXPECT_EQ(delta.index + 1, calls.size()) << "more of a call that is not the last";
        calls.back().arguments += delta.arguments;
      } else {
        EXPECT_EQ(delta.index, calls.size());
        calls.push_back(delta);
      }
    }
  };
  for (const std::string_view piece : pieces)
    add(parser.push(piece));
  add(parser.finish());
  EXPECT_EQ(parser.num_calls(), calls.size());
  for (const ToolCallDelta& call : calls)
    content += "[" + call.name + " " + call.arguments + "]";
  return content;
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

// The form is that of Qwen3's chat template; the rules for the rest are the parser's contract.
const std::vector<Case>& cases() {
  static const std::vector<Case> cases = {
      {"", ""},
      {"plain", "plain"},
      {" \n", " \n"},
      {"a < b <tool", "a < b <tool"},
      {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": [2]}}\n</tool_call>",
       "[f {\"b\": 1, \"a\": [2]}]"},
      {"Sure.\n<tool_call>{\"arguments\": {}, \"name\": \"f\"}</tool_call>", "Sure.\n[f {}]"},
      {"\n\n<tool_call>{\"name\": \"f\"}</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>\n",
       "[f {}][g {}]"},
      {"<tool_call>{\"name\": \"f\"}</tool_call>\n\nDone.", "\nDone.[f {}]"},
      {"\n<tool_call>{\"name\": 3}</tool_call>", "\n<tool_call>{\"name\": 3}</tool_call>"},
      {"<tool_call>f(x)</tool_call> x", "<tool_call>f(x)</tool_call> x"},
      {"a<tool_call>{\"name\": \"f\", \"argu", "a<tool_call>{\"name\": \"f\", \"argu"},
  };
  return cases;
}

// Those that cannot be given in pieces: the same text where the arguments are an object.
const std::vector<Case>& whole_cases() {
  static const std::vector<Case> cases = {
      {"<tool_call>{\"arguments\": {\"a\" : 1e2, \"b\": \"\\\"}\"} , \"name\": \"f\"}</tool_call>",
       "[f {\"a\" : 1e2, \"b\": \"\\\"}\"}]"},
      {"<tool_call>{\"id\": [1], \"name\": \"f\", \"arguments\": {}}</tool_call>", "[f {}]"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>",
       "[f {\"x\": 1}]"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "[f {}]"},
      {"<tool_call>{\"name\": \"f\", \"name\": \"g\"}</tool_call>", "[g {}]"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
       "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"},
      {"<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
       "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>"},
      {"<tool_call>{\"arguments\": {}, \"name\": \"f\"}",
       "<tool_call>{\"arguments\": {}, \"name\": \"f\"}"},
      {"<tool_call>{\"name\": \"f</tool_call> x", "<tool_call>{\"name\": \"f</tool_call> x"},
  };
  return cases;
}

// From the { of the arguments on nothing becomes content any more.
const std::vector<Case>& begun_cases() {
  static const std::vector<Case> cases = {
      // The end of the text, or a marker, before the object's.
      {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b", "[f {\"a\": \"b]"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1</tool", "[f {\"a\": 1</tool]"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1}</tool_call>\nx",
       "x[f {\"a\": [1}]"},
      // What is no JSON is not checked; a marker in a string is text.
      {"<tool_call>{\"name\": \"f\", \"arguments\": {a: <b>}}</tool_call>", "[f {a: <b>}]"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>\\\"}\"}}</tool_call>",
       "[f {\"a\": \"</tool_call>\\\"}\"}]"},
      // Behind the object: other members, no brace, no marker, nothing.
      {"<tool_call>{\"name\": \"f\", \"arguments\": {}, \"id\": 7}</tool_call>", "[f {}]"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {}</tool_call>x", "x[f {}]"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {}}\n<tool_call>{\"name\": \"g\", "
       "\"arguments\": {}}</tool_call>",
       "[f {}][g {}]"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {}} </tool_", "[f {}]"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {}}\n", "[f {}]"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {}}\nDone.", "Done.[f {}]"},
      // A name with escapes.
      {"<tool_call>{ \"name\" :\"\\u0066\" ,\n\"arguments\" : {}}</tool_call>", "[f {}]"},
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

// The first is V3.1's template, the second V3's.
std::vector<Case> deepseek_cases() {
  const std::string broken = deepseek("([f|{\"a\":])");
  return {
      {"plain <b", "plain <b"},
      {deepseek("Sure.([f|{\"a\": 1}][g|{}])"), "Sure.[f {\"a\": 1}][g {}]"},
      {deepseek("([function|f\n```json\n{\"a\": 1}\n```]\n[function|g\n```json\n{}\n```])"),
       "[f {\"a\": 1}][g {}]"},
      {deepseek("\n(\n[function|{}]\n)\nDone."), "Done.[function {}]"},
      {deepseek("[f|{}] x"), " x[f {}]"},
      {"a" + broken + "b", "ab[f {\"a\":]"},
      {deepseek("([f|{}][g|{\"a"), "[f {}][g {\"a]"},
      {deepseek("([f|{}[g|{\"a\": \"]\"})\nDone."),
       "Done.[f {}][g {\"a\": \"" + deepseek("]") + "\"}]"},
      {deepseek("([function|f\n```json\n{}\n``"), "[f {}]"},
      {deepseek("([function|f\n```json\n{}\n```x"), "x[f {}]"},
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

TEST(ToolCallParser, GivesCallsOfAnotherFormWhole) {
  expect_the_same_wherever_cut(whole_cases(), ToolCallFormat::kQwen3);
}

TEST(ToolCallParser, KeepsACallThatHasBegun) {
  expect_the_same_wherever_cut(begun_cases(), ToolCallFormat::kQwen3);
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

TEST(ToolCallParser, GivesArgumentsAsTheyCome) {
  ToolCallParser parser(ToolCallFormat::kQwen3);
  EXPECT_TRUE(parser.push("<tool_call>{\"name\": \"f\", \"arguments\": ").calls.empty());
  const auto first = parser.push("{\"a").calls;
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].name, "f");
  EXPECT_EQ(first[0].arguments, "{\"a");
  const auto second = parser.push("<\": 1 <").calls;
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].name, "");
  EXPECT_EQ(second[0].arguments, "<\": 1 ") << "the last could begin a marker";
  EXPECT_EQ(parser.num_ended_calls(), 0U);
  EXPECT_EQ(parser.push("2}").calls[0].arguments, "<2}");
  EXPECT_EQ(parser.num_ended_calls(), 1U);
  EXPECT_TRUE(parser.push("}</tool_call>").calls.empty());
}

TEST(ToolCallParser, CountsACallThatIsCutAsEndedButNotAsWhole) {
  ToolCallParser parser(ToolCallFormat::kQwen3);
  parser.push("<tool_call>{\"name\": \"f\", \"arguments\": {</tool_call>");
  EXPECT_EQ(parser.num_ended_calls(), 1U);
  EXPECT_EQ(parser.num_whole_calls(), 0U);
  parser.push("<tool_call>{\"name\": \"f\"}</tool_call>");
  EXPECT_EQ(parser.num_calls(), 2U);
  EXPECT_EQ(parser.num_whole_calls(), 1U);
}

TEST(ToolCallParser, GivesTextAsSoonAsItIsKnownToBeText) {
  ToolCallParser parser(ToolCallFormat::kQwen3);
  EXPECT_EQ(parser.push("one <to").content, "one ");
  EXPECT_EQ(parser.push("w>").content, "<tow>");
}

}  // namespace
}  // namespace halfbyte
