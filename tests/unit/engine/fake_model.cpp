// SPDX-License-Identifier: Apache-2.0
#include "fake_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <future>
#include <random>

#include "engine/token_selector.h"

namespace halfbyte::test {
namespace {

std::uint64_t mix(std::uint64_t x) {  // SplitMix64's finaliser
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

Status broken(std::string message) {
  return {StatusCode::kInternal, "fake model: " + std::move(message)};
}

}  // namespace

std::vector<float> fake_logits(std::span<const std::int32_t> tokens) {
  std::uint64_t hash = 1;
  for (const std::int32_t token : tokens) {
    hash = mix(hash + static_cast<std::uint64_t>(token) + 0x9E3779B97F4A7C15ULL);
  }
  std::vector<float> logits(kFakeVocab);
  for (std::size_t id = 0; id < logits.size(); ++id) {
    logits[id] = static_cast<float>(mix(hash + id) % 64) / 8.0F;
  }
  return logits;
}

FakeModel::FakeModel(
    int rank, int dp_size, std::int64_t num_blocks, Transport* transport, FakeControl& control)
    : rank_(rank),
      dp_size_(dp_size),
      transport_(transport),
      control_(control),
      cache_(static_cast<std::size_t>(num_blocks * kKvBlockTokens)) {
  config_.vocab_size = kFakeVocab;
}

// The list a step hands out must be what every rank really has.
Status FakeModel::check_tokens_per_rank(const Batch& batch) {
  if (transport_ == nullptr) {
    return batch.tokens_per_rank.empty() ? Status() : broken("one rank got a list of T_r");
  }
  if (batch.tokens_per_rank.size() != static_cast<std::size_t>(dp_size_)) {
    return broken("the list of T_r has a wrong length");
  }
  const std::array<std::int64_t, 1> mine = {static_cast<std::int64_t>(batch.token_ids.size())};
  std::vector<std::int64_t> all(static_cast<std::size_t>(transport_->num_ranks()));
  HALFBYTE_RETURN_IF_ERROR(transport_->all_gather(std::as_bytes(std::span(mine)),
                                                  std::as_writable_bytes(std::span(all)), {}));
  const std::size_t group_size = all.size() / static_cast<std::size_t>(dp_size_);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != batch.tokens_per_rank[rank / group_size]) return broken("T_r is wrong");
  }
  return {};
}

Status FakeModel::write(const Batch& batch, const SequenceSlice& slice) {
  for (std::int64_t i = 0; i < slice.num_tokens; ++i) {
    const std::int64_t position = slice.context_tokens + i;
    const auto block = static_cast<std::size_t>(position / kKvBlockTokens);
    if (block >= slice.block_table.size()) return broken("the block table is too short");
    const std::size_t slot = static_cast<std::size_t>(slice.block_table[block]) * kKvBlockTokens +
                             static_cast<std::size_t>(position % kKvBlockTokens);
    cache_.at(slot) = {batch.token_ids[static_cast<std::size_t>(slice.first_token + i)], position};
  }
  return {};
}

Result<std::vector<std::int32_t>> FakeModel::read(const SequenceSlice& slice,
                                                  std::int64_t num_tokens) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t position = 0; position < num_tokens; ++position) {
    const auto block = static_cast<std::size_t>(position / kKvBlockTokens);
    const Slot& slot =
        cache_.at(static_cast<std::size_t>(slice.block_table[block]) * kKvBlockTokens +
                  static_cast<std::size_t>(position % kKvBlockTokens));
    if (slot.position != position) return broken("the cache holds another position");
    tokens.push_back(slot.token);
  }
  return tokens;
}

Status FakeModel::forward(const Batch& batch, std::span<float> logits) {
  const auto num_tokens = static_cast<std::int64_t>(batch.token_ids.size());
  if (rank_ == 0) ++control_.num_forwards;
  if (num_tokens > 0) {
    const std::lock_guard lock(control_.mutex);
    control_.ranks_with_tokens.insert(rank_);
    control_.largest_batch = std::max(control_.largest_batch.load(), num_tokens);
  }
  if (control_.before_forward) HALFBYTE_RETURN_IF_ERROR(control_.before_forward(rank_, batch));
  HALFBYTE_RETURN_IF_ERROR(check_tokens_per_rank(batch));
  if (logits.size() != batch.logit_rows.size() * kFakeVocab) return broken("wrong logits size");
  for (const SequenceSlice& slice : batch.sequences) {
    HALFBYTE_RETURN_IF_ERROR(write(batch, slice));
  }
  std::size_t row = 0;
  for (const SequenceSlice& slice : batch.sequences) {
    const std::int64_t end = slice.first_token + slice.num_tokens;
    for (; row < batch.logit_rows.size() && batch.logit_rows[row] < end; ++row) {
      const std::int64_t length =
          slice.context_tokens + batch.logit_rows[row] - slice.first_token + 1;
      HALFBYTE_ASSIGN_OR_RETURN(const auto tokens, read(slice, length));
      const std::span<float> out = logits.subspan(row * kFakeVocab, kFakeVocab);
      std::ranges::copy(fake_logits(tokens), out.begin());
      if (tokens.back() == control_.nan_after_token) std::ranges::fill(out, std::nanf(""));
    }
  }
  return row == batch.logit_rows.size() ? Status() : broken("a logit row is in no sequence");
}

std::unique_ptr<Engine> start_fake_engine(const FakeOptions& options, FakeControl& control) {
  EngineParts parts;
  if (options.num_ranks > 1) parts.transports = make_in_process_transports(options.num_ranks);
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    Transport* transport =
        options.num_ranks > 1 ? parts.transports[static_cast<std::size_t>(rank)].get() : nullptr;
    parts.models.push_back(
        std::make_unique<FakeModel>(rank, options.dp_size, options.num_blocks, transport, control));
  }
  parts.dp_size = options.dp_size;
  parts.limits = {options.max_step_tokens, options.max_prefill_tokens, options.max_running_requests,
                  options.max_prompt_logit_rows};
  parts.num_blocks = options.num_blocks;
  parts.keeps_prefixes = options.keeps_prefixes;
  parts.schedule_policy = options.schedule_policy;
  parts.num_sampled_ids = options.num_sampled_ids;
  parts.info.vocab_size = options.vocab_size;
  parts.info.max_context_tokens = options.max_context_tokens;
  parts.info.eos_token_ids = {kFakeEos};
  return EngineFactory::start(std::move(parts));
}

std::vector<std::int32_t> expected_tokens(const Request& request,
                                          std::int64_t max_context_tokens,
                                          std::unique_ptr<TokenConstraint> constraint) {
  Sequence sequence;
  sequence.tokens = request.prompt_ids;
  sequence.num_prompt_tokens = sequence.num_tokens();
  sequence.sampling = request.sampling;
  sequence.end_token_ids = request.sampling.stop_token_ids;
  if (!request.sampling.ignore_eos || constraint) sequence.end_token_ids.push_back(kFakeEos);
  sequence.constraint = std::move(constraint);
  const std::int64_t limit =
      std::min(max_context_tokens, sequence.num_prompt_tokens + request.sampling.max_new_tokens);
  TokenSelector selector;
  while (sequence.num_tokens() < limit) {
    const auto selected = selector.select(fake_logits(sequence.tokens), sequence);
    sequence.tokens.push_back(selected.value().token_id);
    if (std::ranges::count(sequence.end_token_ids, sequence.tokens.back()) > 0) break;
  }
  return {sequence.tokens.begin() + sequence.num_prompt_tokens, sequence.tokens.end()};
}

Request copy_of(const Request& request) {
  return {request.prompt_ids, request.sampling, nullptr, request.cache_salt};
}

std::vector<std::int32_t> fake_prompt(std::int64_t length, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<std::int32_t> prompt(static_cast<std::size_t>(length));
  for (std::int32_t& id : prompt) {
    id = static_cast<std::int32_t>(rng() % (kFakeVocab - 1));
  }
  return prompt;
}

Request make_request(std::int64_t prompt_tokens, std::uint32_t seed, std::int64_t max_new_tokens) {
  Request request;
  request.prompt_ids = fake_prompt(prompt_tokens, seed);
  request.sampling.max_new_tokens = max_new_tokens;
  return request;
}

std::vector<RequestId> submit_together(Engine& engine,
                                       FakeControl& control,
                                       const std::vector<Request>& requests) {
  std::promise<void> submitted;
  control.before_forward = [all = submitted.get_future().share()](int, const Batch&) {
    all.wait();
    return Status();
  };
  std::vector<RequestId> ids;
  for (const Request& request : requests) {
    auto id = engine.submit(copy_of(request));
    EXPECT_TRUE(id.ok()) << id.status().to_string();
    if (id.ok()) ids.push_back(*id);
  }
  submitted.set_value();
  EXPECT_EQ(ids.size(), requests.size());
  return ids;
}

std::map<RequestId, Answer> collect(Engine& engine, const std::vector<RequestId>& ids) {
  std::map<RequestId, Answer> answers;
  std::size_t num_finished = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (num_finished < ids.size() && std::chrono::steady_clock::now() < deadline) {
    for (const TokenEvent& event : engine.poll(100)) {
      Answer& answer = answers[event.request_id];
      EXPECT_EQ(answer.finish_reason, FinishReason::kNone) << "an event after the last one";
      if (event.token_id >= 0) {
        answer.tokens.push_back(event.token_id);
        answer.logprobs.push_back(event.logprobs);
      }
      if (!event.prompt_logprobs.empty()) answer.prompt_logprobs = event.prompt_logprobs;
      answer.cached_tokens = event.cached_tokens;
      answer.finish_reason = event.finish_reason;
      answer.error = event.error;
      answer.error_code = event.error_code;
      if (event.finish_reason != FinishReason::kNone) ++num_finished;
    }
  }
  EXPECT_EQ(num_finished, ids.size());
  for (const RequestId id : ids) {
    EXPECT_TRUE(answers.contains(id)) << "request " << id;
  }
  return answers;
}

}  // namespace halfbyte::test
