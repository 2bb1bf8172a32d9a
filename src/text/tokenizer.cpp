// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"

namespace halfbyte {
namespace {

using nlohmann::json;

Result<json> read_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Status(StatusCode::kNotFound,
                  fmt::format("{} cannot be opened: {}; copy it from where the weights came from, "
                              "beside them",
                              path, std::generic_category().message(errno)));
  }
  json document = json::parse(file, nullptr, false);
  if (!document.is_object()) return Status(StatusCode::kCorruptData, path + " is not JSON");
  return document;
}

Result<std::vector<AddedToken>> read_added_tokens(const json& list) {
  std::vector<AddedToken> tokens;
  for (const json& entry : list) {
    AddedToken token;
    token.id = entry.at("id").get<std::int32_t>();
    token.content = entry.at("content").get<std::string>();
    token.single_word = entry.value("single_word", false);
    token.lstrip = entry.value("lstrip", false);
    token.rstrip = entry.value("rstrip", false);
    token.normalized = entry.value("normalized", false);
    token.special = entry.value("special", false);
    if (token.id < 0 || token.id > (1 << 24)) {
      return Status(StatusCode::kCorruptData, "added_tokens: " + entry.dump());
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

Status check_decoder(const json& decoder) {
  if (decoder.is_null() || decoder.value("type", "") == "ByteLevel") return {};
  return {StatusCode::kUnsupported,
          fmt::format("decoder {}; wanted ByteLevel", decoder.value("type", decoder.dump()))};
}

// Pieces of one text that were encoded already, as ranges of the ids written so far. Direct mapped.
class PieceCache {
 public:
  explicit PieceCache(std::size_t text_bytes)
      : slots_(std::bit_ceil(std::clamp<std::size_t>(text_bytes / 8, 16, 1 << 14))) {}

  // Appends the ids of `piece` again; false when it is not here.
  bool repeat(std::string_view piece, std::vector<std::int32_t>& ids) const {
    const Slot& slot = slots_[index(piece)];
    if (slot.piece != piece) return false;
    for (std::size_t i = slot.first; i < slot.last; ++i)
      ids.push_back(ids[i]);
    return true;
  }
  void remember(std::string_view piece, std::size_t first, std::size_t last) {
    slots_[index(piece)] = {piece, first, last};
  }

 private:
  struct Slot {
    std::string_view piece;
    std::size_t first = 0;
    std::size_t last = 0;
  };
  std::size_t index(std::string_view piece) const {
    return std::hash<std::string_view>()(piece) & (slots_.size() - 1);
  }
  std::vector<Slot> slots_;
};

}  // namespace

struct Tokenizer::Impl {
  Bpe bpe;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  AddedTokens raw_tokens;
  AddedTokens normalized_tokens;
  std::vector<std::string> tokens;  // bytes by id
  std::vector<bool> special;        // by id

  static Result<std::unique_ptr<Tokenizer>> create(const json& document);
  void add_tokens(const std::vector<AddedToken>& added);
};

namespace {

// U+FDD0, which is no character: in a text with marks its own are doubled.
constexpr std::string_view kMark = "\xEF\xB7\x90";

std::string without_marks(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; (at = text.find(kMark)) != std::string_view::npos;) {
    plain += text.substr(0, at);
    text.remove_prefix(at + kMark.size());
    if (!text.starts_with(kMark)) continue;
    plain += kMark;
    text.remove_prefix(kMark.size());
  }
  return plain += text;
}

// One call of encode: what it writes and what its pieces point into.
class Encoder {
 public:
  Encoder(const Bpe& bpe, const PreTokenizer& pre_tokenizer, std::size_t text_bytes)
      : bpe_(bpe), pre_tokenizer_(pre_tokenizer), cache_(text_bytes) {}

  std::string_view keep(std::string text) { return kept_.emplace_back(std::move(text)); }

  Status append_text(std::string_view text) {
    if (pre_tokenizer_.add_prefix_space() && !text.starts_with(' ')) {
      text = keep(std::string(1, ' ').append(text));
    }
    pieces_.clear();
    HALFBYTE_RETURN_IF_ERROR(pre_tokenizer_.split(text, pieces_));
    for (const std::string_view piece : pieces_)
      append_piece(piece);
    return {};
  }
  void append_id(std::int32_t id) { ids_.push_back(id); }
  std::vector<std::int32_t> take_ids() { return std::move(ids_); }

 private:
  void append_piece(std::string_view piece) {
    constexpr std::size_t kMaxCachedBytes = 64;
    if (piece.size() > kMaxCachedBytes) {
      bpe_.encode(piece, scratch_, ids_);
      return;
    }
    if (cache_.repeat(piece, ids_)) return;
    const std::size_t first = ids_.size();
    bpe_.encode(piece, scratch_, ids_);
    cache_.remember(piece, first, ids_.size());
  }

  const Bpe& bpe_;
  const PreTokenizer& pre_tokenizer_;
  PieceCache cache_;
  BpeScratch scratch_;
  std::deque<std::string> kept_;
  std::vector<std::string_view> pieces_;
  std::vector<std::int32_t> ids_;
};

// tokenizer.json with fields of the wrong type throws inside the JSON library.
template <typename Function>
auto guard_json(const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const json::exception& error) {
    return Status(StatusCode::kCorruptData, error.what());
  }
}

}  // namespace

void Tokenizer::Impl::add_tokens(const std::vector<AddedToken>& added) {
  tokens = bpe.tokens();
  for (const AddedToken& token : added) {
    const auto id = static_cast<std::size_t>(token.id);
    if (id >= tokens.size()) tokens.resize(id + 1);
    tokens[id] = token.content;
  }
  special.resize(tokens.size());
  for (const AddedToken& token : added)
    special[static_cast<std::size_t>(token.id)] = token.special;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Impl::create(const json& document) {
  HALFBYTE_ASSIGN_OR_RETURN(Bpe bpe, Bpe::create(document.value("model", json())));
  HALFBYTE_ASSIGN_OR_RETURN(Normalizer normalizer,
                            Normalizer::create(document.value("normalizer", json())));
  HALFBYTE_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer,
                            PreTokenizer::create(document.value("pre_tokenizer", json())));
  HALFBYTE_ASSIGN_OR_RETURN(PostProcessor post_processor,
                            PostProcessor::create(document.value("post_processor", json())));
  HALFBYTE_RETURN_IF_ERROR(check_decoder(document.value("decoder", json())));
  HALFBYTE_ASSIGN_OR_RETURN(const std::vector<AddedToken> added,
                            read_added_tokens(document.value("added_tokens", json::array())));
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (AddedToken token : added) {
    if (token.normalized)
      token.content = normalizer.normalize(token.content).value_or(token.content);
    (token.normalized ? normalized : raw).push_back(std::move(token));
  }
  auto impl = std::make_unique<Impl>(Impl{std::move(bpe),
                                          normalizer,
                                          std::move(pre_tokenizer),
                                          std::move(post_processor),
                                          AddedTokens(std::move(raw)),
                                          AddedTokens(std::move(normalized)),
                                          {},
                                          {}});
  impl->add_tokens(added);
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& directory) {
  const std::string path = (std::filesystem::path(directory) / "tokenizer.json").string();
  HALFBYTE_ASSIGN_OR_RETURN(const json document, read_json(path));
  auto tokenizer = guard_json([&] { return Impl::create(document); });
  if (!tokenizer.ok()) return tokenizer.take_status().with_context(path);
  return tokenizer;
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text,
                                                    bool split_special_tokens) const {
  return encode(text, split_special_tokens, false);
}

Result<std::vector<std::int32_t>> Tokenizer::encode_marked(std::string_view prompt) const {
  return encode(prompt, false, true);
}

// Normalised, for tokens that are looked for in such text; the prompt will be in any case.
std::string Tokenizer::mark_special_tokens(std::string_view text) const {
  const std::optional<std::string> normalized = impl_->normalizer.normalize(text);
  std::string_view rest = normalized ? *normalized : text;
  std::string marked;
  while (!rest.empty()) {
    const bool is_special = impl_->raw_tokens.begins_with_special(rest) ||
                            impl_->normalized_tokens.begins_with_special(rest);
    std::string_view behind = rest;
    take_code_point(behind);
    const std::string_view character = rest.substr(0, rest.size() - behind.size());
    marked += character;
    if (is_special || character == kMark) marked += kMark;
    rest = behind;
  }
  return marked;
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text,
                                                    bool split_special_tokens,
                                                    bool has_marks) const {
  if (const std::size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("text is not valid UTF-8 at byte {}", bad));
  }
  if (text.size() >= std::size_t{1} << 31) {
    return Status(StatusCode::kInvalidArgument, "text has 2 GiB or more");
  }
  Encoder encoder(impl_->bpe, impl_->pre_tokenizer, text.size());
  const auto append_normalized = [&](std::string_view part, std::int32_t id) -> Status {
    if (id < 0) return encoder.append_text(has_marks ? encoder.keep(without_marks(part)) : part);
    encoder.append_id(id);
    return {};
  };
  const auto append_raw = [&](std::string_view part, std::int32_t id) -> Status {
    if (id >= 0) return append_normalized(part, id);
    if (auto normalized = impl_->normalizer.normalize(part)) {
      part = encoder.keep(std::move(*normalized));
    }
    return impl_->normalized_tokens.split(part, append_normalized, split_special_tokens);
  };
  HALFBYTE_RETURN_IF_ERROR(impl_->raw_tokens.split(text, append_raw, split_special_tokens));
  return encoder.take_ids();
}

std::vector<std::int32_t> Tokenizer::add_special_tokens(std::vector<std::int32_t> ids) const {
  return impl_->post_processor.apply(std::move(ids));
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const std::int32_t id : ids) {
    if (!skip_special_tokens || !is_special(id)) bytes += token_bytes(id);
  }
  std::string text;
  text.reserve(bytes.size());
  append_lossy_utf8(bytes, true, text);
  return text;
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return impl_->tokens[static_cast<std::size_t>(id)];
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->special[static_cast<std::size_t>(id)];
}

std::int64_t Tokenizer::vocab_size() const {
  return static_cast<std::int64_t>(impl_->tokens.size());
}

}  // namespace halfbyte
