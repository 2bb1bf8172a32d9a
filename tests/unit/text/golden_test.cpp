// SPDX-License-Identifier: Apache-2.0
//
// Expected values: data/README.md.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace halfbyte {
namespace {

using nlohmann::ordered_json;

const std::string kModel = HALFBYTE_SOURCE_DIR "/models/gsm-mini-qwen3moe-nvfp4";
const std::string kData = HALFBYTE_SOURCE_DIR "/tests/unit/text/data/";

std::vector<ordered_json> read_lines(const std::string& name) {
  std::ifstream file(kData + name);
  std::vector<ordered_json> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(ordered_json::parse(line));
  return lines;
}

std::string read_file(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

void expect_golden(const ChatTemplate& chat_template, ordered_json line) {
  const ordered_json rendered = line.value("rendered", ordered_json());
  const ordered_json error = line.value("error", ordered_json());
  line.erase("rendered");
  line.erase("error");
  const auto got = chat_template.render(line.dump());
  ASSERT_EQ(got.ok(), error.is_null()) << line.dump();
  if (got.ok()) {
    EXPECT_EQ(got.value(), rendered.get<std::string>());
  } else {
    EXPECT_EQ(got.status().message(), error.get<std::string>());
  }
}

TEST(Golden, EncodesAndDecodesLikeTheReferenceLibrary) {
  const auto tokenizer = Tokenizer::load(kModel);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  const auto lines = read_lines("gsm_mini.jsonl");
  ASSERT_EQ(lines.size(), 60U);
  for (const ordered_json& line : lines) {
    const auto ids = tokenizer.value()->encode(line["text"].get<std::string>());
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(ids.value(), line["ids"].get<std::vector<std::int32_t>>()) << line["text"];
    EXPECT_EQ(tokenizer.value()->decode(ids.value(), false), line["decoded"].get<std::string>());
  }
}

TEST(Golden, StreamingGivesTheSameTextInPiecesThatAreWholeCharacters) {
  const auto tokenizer = Tokenizer::load(kModel);
  ASSERT_TRUE(tokenizer.ok());
  for (const ordered_json& line : read_lines("gsm_mini.jsonl")) {
    Detokenizer detokenizer(*tokenizer.value(), false);
    std::string text;
    for (const ordered_json& id : line["ids"]) {
      const std::string piece = detokenizer.push(id.get<std::int32_t>());
      EXPECT_NO_THROW((void)ordered_json(piece).dump());  // throws on invalid UTF-8
      text += piece;
    }
    text += detokenizer.finish();
    EXPECT_EQ(text, line["decoded"].get<std::string>());
  }
}

TEST(Golden, RendersTheQwen3Template) {
  const auto qwen3 = ChatTemplate::parse(read_file(kData + "qwen3_chat_template.jinja"));
  ASSERT_TRUE(qwen3.ok()) << qwen3.status().to_string();
  const auto lines = read_lines("qwen3_chat.jsonl");
  ASSERT_EQ(lines.size(), 18U);
  for (const ordered_json& line : lines)
    expect_golden(*qwen3.value(), line);
}

// Through load(), which finds the shapes that they take: their calls need a content that is null.
TEST(Golden, RendersTheTemplatesOfDeepSeek) {
  const std::pair<std::string, std::size_t> templates[] = {{"deepseek_v3_chat", 14},
                                                           {"deepseek_v31_chat", 16}};
  for (const auto& [name, count] : templates) {
    const auto loaded = ChatTemplate::load(kModel, kData + name + "_template.jinja");
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    const auto lines = read_lines(name + ".jsonl");
    ASSERT_EQ(lines.size(), count);
    for (const ordered_json& line : lines)
      expect_golden(*loaded.value(), line);
  }
}

TEST(Golden, RendersTheTemplateOfTheShippedModel) {
  const auto loaded = ChatTemplate::load(kModel);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const auto lines = read_lines("gsm_mini_chat.jsonl");
  ASSERT_EQ(lines.size(), 18U);
  for (const ordered_json& line : lines)
    expect_golden(*loaded.value(), line);
}

}  // namespace
}  // namespace halfbyte
