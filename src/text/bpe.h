// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_BPE_H_
#define HALFBYTE_TEXT_BPE_H_

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "halfbyte/result.h"

namespace halfbyte {

/// Working memory of Bpe::encode, reused from piece to piece.
struct BpeScratch {
  struct Symbol {
    std::int32_t id;  // -1: merged into the symbol before it
    std::int32_t previous;
    std::int32_t next;  // -1: last
  };
  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> heap;  // rank in the upper, position in the lower half
};

/// Byte-pair encoding over bytes. Immutable; any thread.
class Bpe {
 public:
  /// From "model" of a tokenizer.json. kUnsupported names an option that is not byte-level BPE;
  /// kCorruptData a merge whose parts or result are not in the vocabulary.
  static Result<Bpe> create(const nlohmann::json& model);

  /// Appends the ids of one piece: the pair of lowest rank is merged, leftmost first, until none
  /// applies. O(n log n) in the bytes of the piece.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<std::int32_t>& ids) const;

  /// The bytes of each id; empty where there is no token.
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  struct Merge {
    std::uint64_t pair = kNoPair;  // left id in the upper, right id in the lower half
    std::int32_t rank = -1;
    std::int32_t id = -1;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
  using Spelled = std::unordered_map<std::string_view, std::int32_t>;

  Status read_vocab(const nlohmann::json& vocab, Spelled& spelled);
  Status read_merges(const nlohmann::json& merges, const Spelled& spelled);
  Status map_bytes(const Spelled& spelled);
  void insert(const Merge& merge);
  const Merge* find(std::int32_t left, std::int32_t right) const;
  void push_pair(std::int32_t position, BpeScratch& scratch) const;
  void merge_all(BpeScratch& scratch) const;

  std::vector<std::string> tokens_;
  std::array<std::int32_t, 256> byte_id_{};
  std::vector<Merge> merges_;  // open addressing; the size is a power of two
  bool ignore_merges_ = false;
  std::unordered_map<std::string, std::int32_t> whole_;  // bytes -> id, with ignore_merges
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_BPE_H_
