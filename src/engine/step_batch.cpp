// SPDX-License-Identifier: Apache-2.0
#include "engine/step_batch.h"

#include <fmt/format.h>

namespace halfbyte {
namespace {

void put(std::vector<std::int32_t>& words, std::int64_t value) {
  words.push_back(static_cast<std::int32_t>(value));
}

void put_list(std::vector<std::int32_t>& words, std::span<const std::int32_t> list) {
  put(words, static_cast<std::int64_t>(list.size()));
  words.insert(words.end(), list.begin(), list.end());
}

// Reads words in order; once a read goes past the end, `ok` is false and reads give nothing.
struct WordReader {
  std::span<const std::int32_t> words;
  bool ok = true;

  std::int64_t next() {
    if (words.empty()) {
      ok = false;
      return 0;
    }
    const std::int32_t word = words.front();
    words = words.subspan(1);
    return word;
  }
  // A count of things that take at least a word each.
  std::size_t next_count() {
    const std::int64_t count = next();
    if (count < 0 || count > static_cast<std::int64_t>(words.size())) ok = false;
    return ok ? static_cast<std::size_t>(count) : 0;
  }
  std::vector<std::int32_t> next_list() {
    const std::size_t count = next_count();
    std::vector<std::int32_t> list(words.begin(),
                                   words.begin() + static_cast<std::ptrdiff_t>(count));
    words = words.subspan(count);
    return list;
  }
};

RankBatch next_rank_batch(WordReader& reader) {
  RankBatch batch;
  batch.token_ids = reader.next_list();
  batch.logit_rows = reader.next_list();
  batch.slices.resize(reader.next_count());
  for (RankBatch::Slice& slice : batch.slices) {
    slice.num_tokens = reader.next();
    slice.context_tokens = reader.next();
    slice.block_table = reader.next_list();
  }
  return batch;
}

}  // namespace

void RankBatch::add(std::span<const std::int32_t> tokens,
                    std::int64_t context_tokens,
                    std::span<const std::int32_t> block_table,
                    std::int64_t num_logit_rows) {
  token_ids.insert(token_ids.end(), tokens.begin(), tokens.end());
  slices.push_back({static_cast<std::int64_t>(tokens.size()),
                    context_tokens,
                    {block_table.begin(), block_table.end()}});
  for (std::int64_t row = num_tokens() - num_logit_rows; row < num_tokens(); ++row) {
    put(logit_rows, row);
  }
}

RankBatch make_rank_batch(std::span<const ScheduledSlice> slices) {
  RankBatch batch;
  for (const ScheduledSlice& slice : slices) {
    const Sequence& sequence = *slice.sequence;
    const std::span<const std::int32_t> tokens = sequence.tokens;
    batch.add(tokens.subspan(static_cast<std::size_t>(sequence.num_cached_tokens),
                             static_cast<std::size_t>(slice.num_tokens)),
              sequence.num_cached_tokens, sequence.block_table, slice.num_logit_rows());
  }
  return batch;
}

BatchView::BatchView(const RankBatch& batch,
                     std::span<const std::int64_t> tokens_per_rank,
                     bool wants_logits) {
  std::int64_t first_token = 0;
  sequences_.reserve(batch.slices.size());
  for (const RankBatch::Slice& slice : batch.slices) {
    sequences_.push_back({first_token, slice.num_tokens, slice.context_tokens, slice.block_table});
    first_token += slice.num_tokens;
  }
  batch_.token_ids = batch.token_ids;
  batch_.sequences = sequences_;
  if (wants_logits) batch_.logit_rows = batch.logit_rows;
  batch_.tokens_per_rank = tokens_per_rank;
}

std::vector<std::int32_t> encode_step(std::span<const RankBatch> batches) {
  std::vector<std::int32_t> words;
  put(words, static_cast<std::int64_t>(batches.size()));
  for (const RankBatch& batch : batches) {
    put_list(words, batch.token_ids);
    put_list(words, batch.logit_rows);
    put(words, static_cast<std::int64_t>(batch.slices.size()));
    for (const RankBatch::Slice& slice : batch.slices) {
      put(words, slice.num_tokens);
      put(words, slice.context_tokens);
      put_list(words, slice.block_table);
    }
  }
  return words;
}

Result<std::vector<RankBatch>> decode_step(std::span<const std::int32_t> words) {
  WordReader reader{words};
  std::vector<RankBatch> batches(reader.next_count());
  for (RankBatch& batch : batches) {
    batch = next_rank_batch(reader);
  }
  if (!reader.ok || !reader.words.empty()) {
    return Status(
        StatusCode::kTransportError,
        fmt::format("a step's message of {} words is damaged: rank 0 and this rank do not "
                    "make the same calls",
                    words.size()));
  }
  return batches;
}

}  // namespace halfbyte
