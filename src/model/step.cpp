// SPDX-License-Identifier: Apache-2.0
#include "model/step.h"

#include <fmt/format.h>
#include <algorithm>

namespace halfbyte {
namespace {

Status invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

Status check_capacity(const Batch& batch, std::int64_t capacity_tokens) {
  auto largest = static_cast<std::int64_t>(batch.token_ids.size());
  for (const std::int64_t tokens : batch.tokens_per_rank)
    largest = std::max(largest, tokens);
  if (largest <= capacity_tokens) return {};
  return Status(StatusCode::kCapacityExceeded,
                fmt::format("a forward of {} tokens, the plan holds {}", largest, capacity_tokens));
}

Status check_sequence(const SequenceSlice& slice,
                      std::int64_t first_token,
                      const StepLimits& limits) {
  const std::int64_t end = slice.context_tokens + slice.num_tokens;
  if (slice.first_token != first_token || slice.num_tokens < 0 || slice.context_tokens < 0) {
    return invalid(
        fmt::format("sequences must cover the tokens in order: want one at token {}, "
                    "got {} tokens at {}",
                    first_token, slice.num_tokens, slice.first_token));
  }
  if (end > limits.max_context_tokens) {
    return invalid(
        fmt::format("sequence of {} tokens, the context holds {}", end, limits.max_context_tokens));
  }
  if (static_cast<std::int64_t>(slice.block_table.size()) * kKvBlockTokens < end) {
    return invalid(fmt::format("block table of {} blocks of {} tokens for {} tokens",
                               slice.block_table.size(), kKvBlockTokens, end));
  }
  for (const std::int32_t block : slice.block_table) {
    if (block < 0 || block >= limits.num_blocks)
      return invalid(fmt::format("cache block {}, want 0 .. {}", block, limits.num_blocks - 1));
  }
  return {};
}

Status check_sequences(const Batch& batch, const StepLimits& limits) {
  std::int64_t covered = 0;
  for (const SequenceSlice& slice : batch.sequences) {
    HALFBYTE_RETURN_IF_ERROR(check_sequence(slice, covered, limits));
    covered += slice.num_tokens;
  }
  const auto num_tokens = static_cast<std::int64_t>(batch.token_ids.size());
  if (covered == num_tokens) return {};
  return invalid(fmt::format("sequences cover {} of {} tokens", covered, num_tokens));
}

}  // namespace

Status check_batch(const Batch& batch, const StepLimits& limits) {
  HALFBYTE_RETURN_IF_ERROR(check_capacity(batch, limits.capacity_tokens));
  HALFBYTE_RETURN_IF_ERROR(check_sequences(batch, limits));
  for (const std::int32_t id : batch.token_ids) {
    if (id < 0 || id >= limits.vocab_size)
      return invalid(fmt::format("token id {}, want 0 .. {}", id, limits.vocab_size - 1));
  }
  for (const std::int32_t row : batch.logit_rows) {
    if (row < 0 || static_cast<std::size_t>(row) >= batch.token_ids.size())
      return invalid(fmt::format("logits of row {} of {}", row, batch.token_ids.size()));
  }
  if (batch.logit_rows.size() > batch.token_ids.size())
    return invalid("more logit rows than tokens");
  return {};
}

StepBuffers::StepBuffers(std::int64_t capacity_tokens, const RopeTable& rope) {
  const auto tokens = static_cast<std::size_t>(capacity_tokens);
  positions_.resize(tokens);
  cache_rows_.resize(tokens);
  sequence_idx_.resize(tokens);
  cos_.resize(tokens * rope.inv_freq.size());
  sin_.resize(tokens * rope.inv_freq.size());
}

StepView StepBuffers::fill(const Batch& batch, const RopeTable& rope) {
  std::size_t token = 0;
  for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceSlice& slice = batch.sequences[s];
    for (std::int64_t i = 0; i < slice.num_tokens; ++i, ++token) {
      positions_[token] = slice.context_tokens + i;
      cache_rows_[token] = cache_row_of(slice, positions_[token]);
      sequence_idx_[token] = static_cast<std::int32_t>(s);
    }
  }
  fill_rope(rope, {positions_.data(), token}, cos_.data(), sin_.data());
  StepView step;
  step.sequences = batch.sequences;
  step.sequence_idx = {sequence_idx_.data(), token};
  step.positions = {positions_.data(), token};
  step.cache_rows = {cache_rows_.data(), token};
  step.cos = cos_.data();
  step.sin = sin_.data();
  return step;
}

}  // namespace halfbyte
