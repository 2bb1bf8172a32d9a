// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek-V3's way to cut text, against the reference library (data/README.md).
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/pre_tokenizer.h"

namespace halfbyte {
namespace {

using nlohmann::json;

// "pre_tokenizer" of its tokenizer.json. The ranges are U+4E00-9FA5, U+3040-309F, U+30A0-30FF.
constexpr const char* kPreTokenizer = R"({"type": "Sequence", "pretokenizers": [
  {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false},
  {"type": "Split", "pattern": {"Regex": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"},
   "behavior": "Isolated", "invert": false},
  {"type": "Split", "pattern": {"Regex": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},
   "behavior": "Isolated", "invert": false},
  {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})";

std::vector<std::string> split(const PreTokenizer& pre_tokenizer, const std::string& text) {
  std::vector<std::string_view> pieces;
  EXPECT_TRUE(pre_tokenizer.split(text, pieces).ok());
  return {pieces.begin(), pieces.end()};
}

TEST(DeepSeekSplits, AreThoseOfTheReferenceLibrary) {
  const auto pre_tokenizer = PreTokenizer::create(json::parse(kPreTokenizer));
  ASSERT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status().to_string();
  std::ifstream file(std::string(HALFBYTE_SOURCE_DIR) +
                     "/tests/unit/text/data/deepseek_splits.jsonl");
  std::size_t count = 0;
  for (std::string line; std::getline(file, line); ++count) {
    const json golden = json::parse(line);
    EXPECT_EQ(split(*pre_tokenizer, golden["text"].get<std::string>()),
              golden["pieces"].get<std::vector<std::string>>())
        << line;
  }
  EXPECT_EQ(count, 200U);
}

// The contract is linear time: what backtracks from every place would take minutes.
TEST(DeepSeekSplits, CutAMegabyteOfOneCharacterInASecond) {
  const auto pre_tokenizer = PreTokenizer::create(json::parse(kPreTokenizer));
  ASSERT_TRUE(pre_tokenizer.ok());
  const auto start = std::chrono::steady_clock::now();
  for (const char c : {'a', '1', '.', '\n'})
    EXPECT_FALSE(split(*pre_tokenizer, std::string(1 << 20, c)).empty());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));  // sanitizers too
}

}  // namespace
}  // namespace halfbyte
