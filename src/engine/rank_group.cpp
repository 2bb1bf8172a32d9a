// SPDX-License-Identifier: Apache-2.0
#include "engine/rank_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <exception>
#include <utility>

#include "base/no_throw.h"
#include "engine/expert_load.h"

namespace halfbyte {

RankGroup::RankGroup(std::vector<std::unique_ptr<Model>> models,
                     std::vector<std::unique_ptr<Transport>> transports,
                     int dp_size)
    : models_(std::move(models)),
      transports_(std::move(transports)),
      dp_size_(dp_size),
      ranks_per_group_(models_.size() / static_cast<std::size_t>(dp_size)) {
  assert(transports_.size() == models_.size() || (transports_.empty() && models_.size() == 1));
  assert(models_.size() % static_cast<std::size_t>(dp_size) == 0);
  try {
    for (std::size_t rank = 1; rank < models_.size(); ++rank) {
      followers_.emplace_back([this, rank] { follow(rank); });
    }
  } catch (...) {  // no thread, or no memory for one
    join_followers();
    throw;
  }
}

RankGroup::~RankGroup() {
  join_followers();
}

void RankGroup::join_followers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  step_begins_.notify_all();
  for (std::thread& follower : followers_) {
    follower.join();
  }
}

Status RankGroup::step(std::span<const RankBatch> batches,
                       std::span<const std::span<float>> logits) {
  start_step(logits);
  Status status = no_throw([&]() -> Status {
    HALFBYTE_RETURN_IF_ERROR(send(batches));
    return forward(0, batches);
  });
  if (!status.ok()) fail(0, std::move(status));
  return wait_for_followers();
}

void RankGroup::start_step(std::span<const std::span<float>> logits) {
  {
    const std::lock_guard lock(mutex_);
    logits_ = logits;
    num_finished_ = 0;
    ++num_steps_;
  }
  step_begins_.notify_all();
}

// Everybody is done with the step's memory when this returns, failed or not.
Status RankGroup::wait_for_followers() {
  std::unique_lock lock(mutex_);
  rank_finished_.wait(lock, [this] { return num_finished_ == followers_.size(); });
  return failure_.clone();
}

void RankGroup::follow(std::size_t rank) {
  for (std::int64_t step_idx = 1; wait_for_step(step_idx); ++step_idx) {
    Status status = no_throw([&] { return run_follower_step(rank); });
    if (!status.ok()) fail(rank, std::move(status));
    const std::lock_guard lock(mutex_);
    ++num_finished_;
    rank_finished_.notify_one();
  }
}

bool RankGroup::wait_for_step(std::int64_t step_idx) {
  std::unique_lock lock(mutex_);
  step_begins_.wait(lock, [&] { return stopping_ || num_steps_ >= step_idx; });
  return !stopping_;
}

Status RankGroup::run_follower_step(std::size_t rank) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::vector<RankBatch> batches, receive(rank));
  return forward(rank, batches);
}

Status RankGroup::send(std::span<const RankBatch> batches) {
  if (transports_.empty()) return {};
  std::vector<std::int32_t> words = encode_step(batches);
  std::array<std::int64_t, 1> num_words = {static_cast<std::int64_t>(words.size())};
  Transport& transport = *transports_.front();
  HALFBYTE_RETURN_IF_ERROR(transport.broadcast(std::as_writable_bytes(std::span(num_words)), 0));
  return transport.broadcast(std::as_writable_bytes(std::span(words)), 0);
}

Result<std::vector<RankBatch>> RankGroup::receive(std::size_t rank) {
  Transport& transport = *transports_[rank];
  std::array<std::int64_t, 1> num_words = {0};
  HALFBYTE_RETURN_IF_ERROR(transport.broadcast(std::as_writable_bytes(std::span(num_words)), 0));
  std::vector<std::int32_t> words(static_cast<std::size_t>(num_words.front()));
  HALFBYTE_RETURN_IF_ERROR(transport.broadcast(std::as_writable_bytes(std::span(words)), 0));
  HALFBYTE_ASSIGN_OR_RETURN(std::vector<RankBatch> batches, decode_step(words));
  if (batches.size() != static_cast<std::size_t>(dp_size_)) {
    return Status(
        StatusCode::kTransportError,
        fmt::format("a step's message has {} batches, want {}: one per data-parallel rank",
                    batches.size(), dp_size_));
  }
  return batches;
}

Status RankGroup::forward(std::size_t rank, std::span<const RankBatch> batches) {
  const std::size_t dp_rank = rank / ranks_per_group_;
  const bool leads_group = rank % ranks_per_group_ == 0;
  std::vector<std::int64_t> tokens_per_rank;  // empty with one rank
  if (models_.size() > 1) {
    for (const RankBatch& batch : batches) {
      tokens_per_rank.push_back(batch.num_tokens());
    }
  }
  const BatchView view(batches[dp_rank], tokens_per_rank, leads_group);
  try {
    return models_[rank]->forward(view.batch(),
                                  leads_group ? logits_[dp_rank] : std::span<float>());
  } catch (const std::exception& e) {  // a library below ran out of memory: peers must be told
    return {StatusCode::kInternal, e.what()};
  }
}

std::vector<ExpertLoad> RankGroup::expert_load(int ep_size) const {
  std::vector<std::vector<ExpertLoad>> ranks;
  ranks.reserve(models_.size());
  for (const std::unique_ptr<Model>& model : models_) {
    ranks.push_back(model->expert_load());
  }
  return sum_expert_load(ranks, ep_size, dp_size_);
}

void RankGroup::fail(std::size_t rank, Status status) {
  if (models_.size() > 1) status = std::move(status).with_context(fmt::format("rank {}", rank));
  stop(status);
}

void RankGroup::stop(const Status& why) {
  Status first;
  {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = why.clone();
    first = failure_.clone();
  }
  for (const std::unique_ptr<Transport>& transport : transports_) {
    transport->abort(first);
  }
}

}  // namespace halfbyte
