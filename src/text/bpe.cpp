// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace halfbyte {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxTokenId = 1 << 24;  // far above any vocabulary; bounds the table

// Options of the BPE model that change its results and are absent from every byte-level tokenizer.
Status check_options(const json& model) {
  const std::string type = model.value("type", "BPE");
  if (type != "BPE") {
    return {StatusCode::kUnsupported, fmt::format("model type {}; byte-level BPE is needed", type)};
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix", "dropout"}) {
    const json value = model.value(name, json());
    const bool is_empty = value.is_string() && value.get_ref<const std::string&>().empty();
    if (!value.is_null() && !is_empty && value != 0.0) {
      return {StatusCode::kUnsupported, fmt::format("model.{} {}", name, value.dump())};
    }
  }
  if (model.value("byte_fallback", json()) == true) {
    return {StatusCode::kUnsupported, "model.byte_fallback true; byte-level BPE is needed"};
  }
  return {};
}

struct Pair {
  std::string_view left;
  std::string_view right;
};

// Both spellings: "a b" and ["a", "b"].
std::optional<Pair> read_pair(const json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return Pair{merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  if (!merge.is_string()) return std::nullopt;
  const std::string_view text = merge.get_ref<const std::string&>();
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  return Pair{text.substr(0, space), text.substr(space + 1)};
}

// Bytes that no well-formed UTF-8 has need no token.
bool occurs_in_utf8(unsigned byte) {
  return byte < 0xC0 || (byte >= 0xC2 && byte <= 0xF4);
}

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::size_t hash_pair(std::uint64_t pair) {
  return static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15ULL) >> 20);
}

}  // namespace

Result<Bpe> Bpe::create(const json& model) {
  if (!model.is_object() || !model.contains("vocab") || !model.contains("merges")) {
    return Status(StatusCode::kUnsupported, "model needs vocab and merges (byte-level BPE)");
  }
  HALFBYTE_RETURN_IF_ERROR(check_options(model));
  Bpe bpe;
  Spelled spelled;
  HALFBYTE_RETURN_IF_ERROR(bpe.read_vocab(model["vocab"], spelled));
  HALFBYTE_RETURN_IF_ERROR(bpe.map_bytes(spelled));
  HALFBYTE_RETURN_IF_ERROR(bpe.read_merges(model["merges"], spelled));
  bpe.ignore_merges_ = model.value("ignore_merges", json()) == true;
  for (std::size_t id = 0; bpe.ignore_merges_ && id < bpe.tokens_.size(); ++id) {
    bpe.whole_.emplace(bpe.tokens_[id], static_cast<std::int32_t>(id));
  }
  return bpe;
}

Status Bpe::read_vocab(const json& vocab, Spelled& spelled) {
  if (!vocab.is_object()) return {StatusCode::kUnsupported, "model.vocab is not an object"};
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_integer() || id < 0 || id > kMaxTokenId) {
      return {StatusCode::kCorruptData,
              fmt::format("model.vocab: the id of \"{}\" is {}", token, id.dump())};
    }
    const auto index = id.get<std::size_t>();
    if (index >= tokens_.size()) tokens_.resize(index + 1);
    tokens_[index] = unspell(token).value_or(token);
  }
  for (auto it = vocab.begin(); it != vocab.end(); ++it) {
    spelled.emplace(it.key(), it->get<std::int32_t>());
  }
  return {};
}

Status Bpe::map_bytes(const Spelled& spelled) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto it = spelled.find(spell_byte(static_cast<std::uint8_t>(byte)));
    if (it == spelled.end() && occurs_in_utf8(byte)) {
      return {StatusCode::kUnsupported,
              fmt::format("model.vocab has no token for byte {:#04x}; byte-level BPE needs all 256",
                          byte)};
    }
    byte_id_[byte] = it == spelled.end() ? -1 : it->second;
  }
  return {};
}

Status Bpe::read_merges(const json& merges, const Spelled& spelled) {
  if (!merges.is_array()) return {StatusCode::kCorruptData, "model.merges is not a list"};
  merges_.resize(std::bit_ceil(merges.size() * 2 + 16));
  std::string joined;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::optional<Pair> pair = read_pair(merges[rank]);
    if (!pair) {
      return {StatusCode::kCorruptData,
              fmt::format("model.merges[{}] is {}; wanted \"a b\" or [\"a\", \"b\"]", rank,
                          merges[rank].dump())};
    }
    joined.assign(pair->left).append(pair->right);
    for (const std::string_view token : {pair->left, pair->right, std::string_view(joined)}) {
      if (!spelled.contains(token)) {
        return {StatusCode::kCorruptData,
                fmt::format("model.merges[{}]: \"{}\" is not in the vocabulary", rank, token)};
      }
    }
    insert({pair_key(spelled.at(pair->left), spelled.at(pair->right)),
            static_cast<std::int32_t>(rank), spelled.at(joined)});
  }
  return {};
}

// The last of two equal merges counts, as in the reference library.
void Bpe::insert(const Merge& merge) {
  const std::size_t mask = merges_.size() - 1;
  std::size_t slot = hash_pair(merge.pair) & mask;
  while (merges_[slot].pair != kNoPair && merges_[slot].pair != merge.pair)
    slot = (slot + 1) & mask;
  merges_[slot] = merge;
}

const Bpe::Merge* Bpe::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = pair_key(left, right);
  const std::size_t mask = merges_.size() - 1;
  for (std::size_t slot = hash_pair(pair) & mask;; slot = (slot + 1) & mask) {
    if (merges_[slot].pair == pair) return &merges_[slot];
    if (merges_[slot].pair == kNoPair) return nullptr;
  }
}

void Bpe::push_pair(std::int32_t position, BpeScratch& scratch) const {
  const BpeScratch::Symbol& left = scratch.symbols[static_cast<std::size_t>(position)];
  if (left.next < 0) return;
  const Merge* merge = find(left.id, scratch.symbols[static_cast<std::size_t>(left.next)].id);
  if (merge == nullptr) return;
  scratch.heap.push_back(pair_key(merge->rank, position));
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
}

void Bpe::merge_all(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto position = static_cast<std::int32_t>(top & 0xFFFFFFFFU);
    auto& left = symbols[static_cast<std::size_t>(position)];
    if (left.id < 0 || left.next < 0) continue;
    auto& right = symbols[static_cast<std::size_t>(left.next)];
    const Merge* merge = find(left.id, right.id);
    // The pair of this entry may have been merged away meanwhile.
    if (merge == nullptr || static_cast<std::uint64_t>(merge->rank) != top >> 32) continue;
    left.id = merge->id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = position;
    if (left.previous >= 0) push_pair(left.previous, scratch);
    push_pair(position, scratch);
  }
}

void Bpe::encode(std::string_view piece,
                 BpeScratch& scratch,
                 std::vector<std::int32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto it = whole_.find(std::string(piece)); it != whole_.end()) {
      ids.push_back(it->second);
      return;
    }
  }
  const auto size = static_cast<std::int32_t>(piece.size());
  scratch.symbols.clear();
  scratch.heap.clear();
  for (std::int32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<std::uint8_t>(piece[static_cast<std::size_t>(i)]);
    scratch.symbols.push_back({byte_id_[byte], i - 1, i + 1 < size ? i + 1 : -1});
  }
  for (std::int32_t i = 0; i + 1 < size; ++i)
    push_pair(i, scratch);
  merge_all(scratch);
  for (const auto& symbol : scratch.symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
}

}  // namespace halfbyte
