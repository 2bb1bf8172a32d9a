// SPDX-License-Identifier: Apache-2.0
#include "moe/rotating_routing.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>

namespace halfbyte {
namespace {

constexpr int kMaxDraws = 1000;  // to meet the average; the last one is as good a sample as any

// top_k different experts for each token: the first of a shuffle that stops there.
void draw_ids(const RoutingShape& shape, std::mt19937& random, std::vector<std::int32_t>& ids) {
  std::vector<std::int32_t> experts(static_cast<std::size_t>(shape.num_experts));
  std::iota(experts.begin(), experts.end(), 0);
  const auto top_k = static_cast<std::size_t>(shape.top_k);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::size_t slot = i % top_k;
    std::swap(experts[slot], experts[slot + random() % (experts.size() - slot)]);
    ids[i] = experts[slot] < shape.num_local_experts ? experts[slot] : -1;
  }
}

std::int64_t count_routes(const std::vector<std::int32_t>& ids) {
  return std::count_if(ids.begin(), ids.end(), [](std::int32_t id) { return id >= 0; });
}

}  // namespace

RotatingRouting::RotatingRouting(const RoutingShape& shape, std::int64_t num_tokens)
    : num_local_experts_(shape.num_local_experts),
      drawn_(static_cast<std::size_t>(num_tokens * shape.top_k)),
      cycle_(static_cast<std::size_t>(shape.num_local_experts)),
      ids_(drawn_.size()),
      weights_(drawn_.size(), 1.0F / static_cast<float>(shape.top_k)) {
  std::mt19937 random(1);
  const auto all_routes = static_cast<std::int64_t>(drawn_.size());
  const std::int64_t average =
      std::max<std::int64_t>(1, all_routes * shape.num_local_experts / shape.num_experts);
  const std::int64_t tolerance = average / 100;
  for (int draw = 0; draw < kMaxDraws && std::abs(num_routes_ - average) > tolerance; ++draw) {
    draw_ids(shape, random, drawn_);
    num_routes_ = count_routes(drawn_);
  }
  number_touched_experts();
  std::iota(cycle_.begin(), cycle_.end(), 0);
  std::shuffle(cycle_.begin(), cycle_.end(), random);
}

void RotatingRouting::number_touched_experts() {
  std::vector<std::int32_t> number(static_cast<std::size_t>(num_local_experts_), -1);
  for (std::int32_t& id : drawn_) {
    if (id < 0) continue;
    std::int32_t& known = number[static_cast<std::size_t>(id)];
    if (known < 0) known = static_cast<std::int32_t>(num_touched_++);
    id = known;
  }
}

Routing RotatingRouting::round(std::int64_t round_idx) {
  const std::int64_t first = round_idx * num_touched_ % num_local_experts_;
  for (std::size_t i = 0; i < drawn_.size(); ++i) {
    const std::int64_t place = (first + drawn_[i]) % num_local_experts_;
    ids_[i] = drawn_[i] < 0 ? -1 : cycle_[static_cast<std::size_t>(place)];
  }
  return {ids_, weights_};
}

}  // namespace halfbyte
