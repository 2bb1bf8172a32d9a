// SPDX-License-Identifier: Apache-2.0
#include "text/pre_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "text/json_sequence.h"

namespace halfbyte {
namespace {

using nlohmann::json;

// What ByteLevel splits by unless use_regex is false.
constexpr std::string_view kByteLevelRegex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Result<Pattern> read_split(const json& part) {
  // With Isolated, matches and what lies between them are pieces alike: `invert` changes nothing.
  if (const std::string behavior = part.value("behavior", ""); behavior != "Isolated") {
    return Status(StatusCode::kUnsupported,
                  fmt::format("pre_tokenizer Split with behavior {}; wanted Isolated", behavior));
  }
  const json pattern = part.value("pattern", json::object());
  if (pattern.contains("Regex")) return Pattern::compile(pattern["Regex"].get<std::string>());
  if (pattern.contains("String")) return Pattern::literal(pattern["String"].get<std::string>());
  return Status(StatusCode::kUnsupported, "pre_tokenizer Split with pattern " + pattern.dump());
}

}  // namespace

Result<PreTokenizer> PreTokenizer::create(const json& pre_tokenizer) {
  PreTokenizer result;
  for (const json& part : sequence_parts(pre_tokenizer, "pretokenizers"))
    HALFBYTE_RETURN_IF_ERROR(result.add(part));
  if (!result.has_byte_level_) {
    return Status(StatusCode::kUnsupported, "pre_tokenizer without ByteLevel");
  }
  return result;
}

Status PreTokenizer::add(const json& part) {
  const std::string type = part.is_object() ? part.value("type", "") : part.dump();
  if (has_byte_level_) {
    return {StatusCode::kUnsupported, fmt::format("pre_tokenizer {} after ByteLevel", type)};
  }
  if (type == "Split") {
    HALFBYTE_ASSIGN_OR_RETURN(Pattern pattern, read_split(part));
    patterns_.push_back(std::move(pattern));
    return {};
  }
  if (type != "ByteLevel") return {StatusCode::kUnsupported, "pre_tokenizer " + type};
  has_byte_level_ = true;
  add_prefix_space_ = part.value("add_prefix_space", true);
  if (add_prefix_space_ && !patterns_.empty()) {
    return {StatusCode::kUnsupported, "pre_tokenizer ByteLevel with add_prefix_space after Split"};
  }
  if (!part.value("use_regex", true)) return {};
  HALFBYTE_ASSIGN_OR_RETURN(Pattern pattern, Pattern::compile(kByteLevelRegex));
  patterns_.push_back(std::move(pattern));
  return {};
}

Status PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  if (text.empty()) return {};
  std::vector<std::string_view> sources = {text};
  for (std::size_t i = 0; i < patterns_.size(); ++i) {
    std::vector<std::string_view> next;
    std::vector<std::string_view>& target = i + 1 == patterns_.size() ? pieces : next;
    for (const std::string_view source : sources) {
      HALFBYTE_RETURN_IF_ERROR(patterns_[i].split(source, target));
    }
    sources = std::move(next);
  }
  if (patterns_.empty()) pieces.push_back(text);
  return {};
}

}  // namespace halfbyte
