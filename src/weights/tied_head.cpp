// SPDX-License-Identifier: Apache-2.0
//
// A config that ties the head to the embedding, and a file that stores a head all the same.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weights/checkpoint_impl.h"

namespace halfbyte {
namespace {

struct TiedPair {
  const RawTensor* embedding = nullptr;
  const RawTensor* head = nullptr;
  bool is_stored_twice() const { return embedding != nullptr && head != nullptr; }
};

TiedPair find_tied_pair(const CheckpointWeights::Impl& impl) {
  TiedPair pair;
  if (!impl.config.tie_word_embeddings) return pair;
  const auto payload = [&](const char* module) -> const RawTensor* {
    const auto it = impl.map.modules.find(module);
    return it == impl.map.modules.end() ? nullptr : it->second.entries.payload();
  };
  return {payload("embed_tokens"), payload("lm_head")};
}

Status differs(const CheckpointWeights::Impl& impl, const TiedPair& pair, std::string_view how) {
  return Status(
      StatusCode::kCorruptData,
      fmt::format("{} and {} {}, but tie_word_embeddings says they are one: set it to false or "
                  "remove one of them{}",
                  pair.embedding->name, pair.head->name, how, in_file(*pair.head, *impl.raw)));
}

}  // namespace

Status check_tied_head_form(const CheckpointWeights::Impl& impl) {
  const TiedPair pair = find_tied_pair(impl);
  if (!pair.is_stored_twice()) return {};
  const RawTensor &a = *pair.embedding, &b = *pair.head;
  if (a.dtype == b.dtype &&
      std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end())) {
    return {};
  }
  return differs(impl, pair,
                 fmt::format("are {} {} and {} {}", dtype_name(a.dtype), format_shape(a.shape),
                             dtype_name(b.dtype), format_shape(b.shape)));
}

Status check_tied_head_bytes(const CheckpointWeights::Impl& impl) {
  const TiedPair pair = find_tied_pair(impl);
  if (!pair.is_stored_twice()) return {};
  const auto &a = pair.embedding->bytes, &b = pair.head->bytes;
  const bool same = std::equal(a.begin(), a.end(), b.begin(), b.end());
  impl.raw->drop(*pair.embedding);
  impl.raw->drop(*pair.head);
  return same ? Status() : differs(impl, pair, "hold different values");
}

}  // namespace halfbyte
