// SPDX-License-Identifier: Apache-2.0
//
// Tokenizers here have one token per byte (id = byte), then the tokens and merges of each test, so
// that every expected value follows from the rules by hand.
#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/byte_level.h"
#include "text/pattern.h"

namespace halfbyte {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

json byte_tokenizer() {
  json vocab;
  for (int byte = 0; byte < 256; ++byte)
    vocab[spell_byte(static_cast<std::uint8_t>(byte))] = byte;
  return {
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"added_tokens", json::array()}};
}

void add_merge(json& document, const std::string& left, const std::string& right, bool as_text) {
  json& model = document["model"];
  const int id = 256 + static_cast<int>(model["merges"].size());
  model["vocab"][left + right] = id;
  model["merges"].push_back(as_text ? json(left + " " + right) : json::array({left, right}));
}

void add_token(json& document, const std::string& content, int id, const json& flags) {
  json token = {{"id", id}, {"content", content}, {"special", true}, {"normalized", false}};
  if (flags.is_object()) token.update(flags);
  document["added_tokens"].push_back(token);
}

Result<std::unique_ptr<Tokenizer>> load(const json& document) {
  const auto directory = std::filesystem::temp_directory_path() /
                         ("halfbyte_tokenizer_test_" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "tokenizer.json") << document.dump();
  auto tokenizer = Tokenizer::load(directory.string());
  std::filesystem::remove_all(directory);
  return tokenizer;
}

Ids encode(const json& document, std::string_view text) {
  const auto tokenizer = load(document);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  if (!tokenizer.ok()) return {};
  auto ids = tokenizer.value()->encode(text);
  EXPECT_TRUE(ids.ok()) << ids.status().to_string();
  return ids.ok() ? ids.value() : Ids();
}

Status refusal(const json& document) {
  auto tokenizer = load(document);
  EXPECT_FALSE(tokenizer.ok());
  return tokenizer.ok() ? Status() : tokenizer.take_status();
}

TEST(Tokenizer, MergesTheLowestRankFirstAndLeftmostOfEqualOnes) {
  json document = byte_tokenizer();
  add_merge(document, "b", "c", true);   // 256
  add_merge(document, "a", "b", true);   // 257
  add_merge(document, "a", "a", true);   // 258
  add_merge(document, "aa", "a", true);  // 259
  EXPECT_EQ(encode(document, "abc"), (Ids{'a', 256}));
  EXPECT_EQ(encode(document, "aaaaa"), (Ids{258, 259}));
}

TEST(Tokenizer, ReadsMergesAsTextAndAsPairs) {
  for (const bool as_text : {true, false}) {
    json document = byte_tokenizer();
    add_merge(document, "a", "b", as_text);
    EXPECT_EQ(encode(document, "abab"), (Ids{256, 256}));
  }
}

TEST(Tokenizer, IgnoreMergesTakesAWholePieceFromTheVocabulary) {
  json document = byte_tokenizer();
  document["model"]["vocab"]["abc"] = 256;
  EXPECT_EQ(encode(document, "abc"), (Ids{'a', 'b', 'c'}));
  document["model"]["ignore_merges"] = true;
  EXPECT_EQ(encode(document, "abc"), (Ids{256}));
}

TEST(Tokenizer, AddedTokensAreFoundLeftmostAndLongestFirst) {
  json document = byte_tokenizer();
  add_token(document, "<a", 300, {});
  add_token(document, "<a>", 301, {});
  EXPECT_EQ(encode(document, "x<a><ay"), (Ids{'x', 301, 300, 'y'}));
}

TEST(Tokenizer, AddedTokensTakeWhiteSpaceWhereTheirFlagsSaySo) {
  json document = byte_tokenizer();
  add_token(document, "<l>", 300, {{"lstrip", true}});
  add_token(document, "<r>", 301, {{"rstrip", true}});
  EXPECT_EQ(encode(document, "a <l> b"), (Ids{'a', 300, ' ', 'b'}));
  EXPECT_EQ(encode(document, "a <r> b"), (Ids{'a', ' ', 301, 'b'}));
}

TEST(Tokenizer, SingleWordTokensDoNotMatchInsideAWord) {
  json document = byte_tokenizer();
  add_token(document, "it", 300, {{"single_word", true}});
  EXPECT_EQ(encode(document, "it-it"), (Ids{300, '-', 300}));
  EXPECT_EQ(encode(document, "bit"), (Ids{'b', 'i', 't'}));
}

// U+00C5 is the composition of A and U+030A, whose UTF-8 bytes are C3 85.
TEST(Tokenizer, NormalizedTokensAreFoundInNormalizedText) {
  json document = byte_tokenizer();
  document["normalizer"] = {{"type", "NFC"}};
  add_token(document, "\xC3\x85", 300, {{"normalized", true}});
  EXPECT_EQ(encode(document, "A\xCC\x8A"), (Ids{300}));
  document["added_tokens"][0]["normalized"] = false;
  EXPECT_EQ(encode(document, "A\xCC\x8A"), (Ids{0xC3, 0x85}));
}

TEST(Tokenizer, PrefixSpaceIsAddedOnce) {
  json document = byte_tokenizer();
  document["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_EQ(encode(document, "a"), (Ids{' ', 'a'}));
  EXPECT_EQ(encode(document, " a"), (Ids{' ', 'a'}));
  EXPECT_EQ(encode(document, ""), Ids());
}

TEST(Tokenizer, SplitsInSequence) {
  json document = byte_tokenizer();
  add_merge(document, "a", "1", true);
  add_merge(document, "1", "2", true);
  const auto split = [](const char* regex) {
    return json{{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
  };
  document["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {split("\\p{N}{1,3}"),
        split("\\p{L}+"),
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  EXPECT_EQ(encode(document, "a12"), (Ids{'a', 257}));
}

TEST(Tokenizer, DropsSpecialTokensOnlyWhenAskedAndUnknownIdsAlways) {
  json document = byte_tokenizer();
  add_token(document, "<s>", 300, {});
  add_token(document, "<v>", 301, {{"special", false}});
  const auto tokenizer = load(document);
  ASSERT_TRUE(tokenizer.ok());
  const Ids ids = {300, 'a', 301, 299, 9999, -1};
  EXPECT_EQ(tokenizer.value()->decode(ids, false), "<s>a<v>");
  EXPECT_EQ(tokenizer.value()->decode(ids, true), "a<v>");
  EXPECT_EQ(tokenizer.value()->vocab_size(), 302);
}

// The reference library's `encode_special_tokens`: what is only added stays a token.
TEST(Tokenizer, SplitsSpecialTokensWhenTold) {
  json document = byte_tokenizer();
  add_token(document, "<s>", 300, {});
  add_token(document, "<v>", 301, {{"special", false}});
  add_token(document, "<n>", 302, {{"normalized", true}});
  const auto tokenizer = load(document);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer.value()->encode("<s><v><n>").value(), (Ids{300, 301, 302}));
  EXPECT_EQ(tokenizer.value()->encode("<s><v><n>", true).value(),
            (Ids{'<', 's', '>', 301, '<', 'n', '>'}));
}

json template_processing(const json& single) {
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", json::array()},
          {"special_tokens",
           {{"<s>", {{"id", "<s>"}, {"ids", {300}}, {"tokens", {"<s>"}}}},
            {"<e>", {{"id", "<e>"}, {"ids", {301, 302}}, {"tokens", {"<e>", "<f>"}}}}}}};
}

const json kSequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
const json kStart = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
const json kEnd = {{"SpecialToken", {{"id", "<e>"}, {"type_id", 0}}}};

// What is marked is text, whatever stands around it, and as if it had never had a mark.
TEST(Tokenizer, SpecialTokensInMarkedTextAreText) {
  json document = byte_tokenizer();
  document["normalizer"] = {{"type", "NFC"}};
  add_merge(document, "<", "s", true);  // 256: not cut where the mark was
  add_token(document, "<s>", 300, {});
  add_token(document, "<v>", 301, {{"special", false}});
  add_token(document, "<n>", 302, {{"normalized", true}});
  add_token(document, "aa", 303, {});
  const auto loaded = load(document);
  ASSERT_TRUE(loaded.ok());
  const Tokenizer& tokenizer = *loaded.value();
  for (const std::string text :
       {"<s>", "a<s>b", "<s><s>", "<v>", "<n>", "aaa", "<<s>>", "", "plain", "\xEF\xB7\x90",
        "\xEF\xB7\x90\xEF\xB7\x90<s>\xEF\xB7\x90", "e\xCC\x81<s>"}) {
    Ids expected = {300, 302};
    const Ids ids = tokenizer.encode(text, true).value();
    expected.insert(expected.end(), ids.begin(), ids.end());
    expected.push_back(302);
    const std::string marked = tokenizer.mark_special_tokens(text);
    EXPECT_EQ(tokenizer.encode_marked("<s><n>" + marked + "<n>").value(), expected) << text;
  }
}

Ids with_special_tokens(const json& post_processor, Ids ids) {
  json document = byte_tokenizer();
  document["post_processor"] = post_processor;
  const auto tokenizer = load(document);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? tokenizer.value()->add_special_tokens(std::move(ids)) : Ids();
}

TEST(Tokenizer, PutsTheTokensOfItsTemplateAroundAText) {
  const json both = template_processing(json::array({kStart, kSequence, kEnd}));
  EXPECT_EQ(with_special_tokens(both, {'a'}), (Ids{300, 'a', 301, 302}));
  EXPECT_EQ(with_special_tokens(both, {300, 'a'}), (Ids{300, 'a', 301, 302})) << "it is there";
  EXPECT_EQ(with_special_tokens(both, {'a', 301, 302}), (Ids{300, 'a', 301, 302}));
  EXPECT_EQ(with_special_tokens(template_processing(json::array({kSequence})), {'a'}), (Ids{'a'}));
  EXPECT_EQ(with_special_tokens(nullptr, {'a'}), (Ids{'a'}));
  EXPECT_EQ(with_special_tokens({{"type", "ByteLevel"}, {"trim_offsets", false}}, {'a'}),
            (Ids{'a'}));
}

// As if each were applied to what the one before it gives.
TEST(Tokenizer, AppliesPostProcessorsInSequence) {
  const json sequence = {{"type", "Sequence"},
                         {"processors",
                          {{{"type", "ByteLevel"}},
                           template_processing(json::array({kStart, kSequence})),
                           template_processing(json::array({kEnd, kSequence, kStart}))}}};
  EXPECT_EQ(with_special_tokens(sequence, {'a'}), (Ids{301, 302, 300, 'a', 300}));
}

TEST(Tokenizer, RefusesATemplateThatIsNotAroundOneText) {
  for (const json& single : {json::array(), json::array({kStart}),
                             json::array({kSequence, kSequence}), json::array({kSequence, 3}),
                             json::array({kSequence, {{"SpecialToken", {{"id", "<x>"}}}}})}) {
    json document = byte_tokenizer();
    document["post_processor"] = template_processing(single);
    EXPECT_EQ(refusal(document).code(), StatusCode::kCorruptData) << single;
  }
}

TEST(Tokenizer, RefusesInvalidUtf8AndSaysWhere) {
  const auto tokenizer = load(byte_tokenizer());
  ASSERT_TRUE(tokenizer.ok());
  const auto ids = tokenizer.value()->encode("ab\xFF");
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ids.status().message(), "text is not valid UTF-8 at byte 2");
}

TEST(Tokenizer, NamesThePartThatIsNotSupported) {
  json unigram = byte_tokenizer();
  unigram["model"]["type"] = "Unigram";
  json lowercase = byte_tokenizer();
  lowercase["normalizer"] = {{"type", "Lowercase"}};
  json metaspace = byte_tokenizer();
  metaspace["pre_tokenizer"] = {{"type", "Metaspace"}};
  json fallback = byte_tokenizer();
  fallback["model"]["byte_fallback"] = true;
  json roberta = byte_tokenizer();
  roberta["post_processor"] = {{"type", "RobertaProcessing"}, {"sep", {"</s>", 2}}};
  const std::pair<json, const char*> cases[] = {{unigram, "Unigram"},
                                                {lowercase, "Lowercase"},
                                                {metaspace, "Metaspace"},
                                                {fallback, "byte_fallback"},
                                                {roberta, "RobertaProcessing"}};
  for (const auto& [document, name] : cases) {
    const Status status = refusal(document);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find(name), std::string_view::npos) << status.to_string();
  }
}

TEST(Tokenizer, AMergeOutsideTheVocabularyIsCorrupt) {
  json document = byte_tokenizer();
  document["model"]["merges"].push_back("a b");
  const Status status = refusal(document);
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_NE(status.message().find("merges[0]: \"ab\""), std::string_view::npos);
}

TEST(Tokenizer, AMissingFileIsNotFound) {
  EXPECT_EQ(Tokenizer::load("/nonexistent").status().code(), StatusCode::kNotFound);
}

// The contract is O(n log n); merging quadratically would take minutes.
TEST(Tokenizer, AMegabyteOfOneCharacterEncodesInASecond) {
  json document = byte_tokenizer();
  for (std::string token = "a"; token.size() < 64; token += token) {
    add_merge(document, token, token, true);
  }
  const auto tokenizer = load(document);
  ASSERT_TRUE(tokenizer.ok());
  const auto start = std::chrono::steady_clock::now();
  const auto ids = tokenizer.value()->encode(std::string(1 << 20, 'a'));
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids.value().size(), (std::size_t{1} << 20) / 64);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));  // sanitizers too
}

// PCRE2 counts U+180E as white space; the property White_Space, and so the reference, does not.
TEST(Pattern, WhiteSpaceIsTheUnicodeProperty) {
  const auto pattern = Pattern::compile("\\s+|[\\S]+");
  ASSERT_TRUE(pattern.ok());
  std::vector<std::string_view> pieces;
  ASSERT_TRUE(pattern.value().split("a\xE1\xA0\x8E\xC2\x85\xE3\x80\x80z", pieces).ok());
  EXPECT_EQ(pieces, (std::vector<std::string_view>{"a\xE1\xA0\x8E", "\xC2\x85\xE3\x80\x80", "z"}));
}

TEST(Pattern, RefusesWhatOnigurumaReadsDifferently) {
  for (const char* regex : {"\\h", "\\w+", "[a[b]]", "[a&&b]", "(", "\\bx"}) {
    EXPECT_EQ(Pattern::compile(regex).status().code(), StatusCode::kUnsupported) << regex;
  }
}

TEST(Detokenizer, HoldsACharacterUntilItIsWhole) {
  const auto tokenizer = load(byte_tokenizer());
  ASSERT_TRUE(tokenizer.ok());
  Detokenizer detokenizer(*tokenizer.value(), true);
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0x91), "");
  EXPECT_EQ(detokenizer.push(0x8D), "\xF0\x9F\x91\x8D");
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.push('a'),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.finish(), "");
}

}  // namespace
}  // namespace halfbyte
