// SPDX-License-Identifier: Apache-2.0
#include "engine/expert_load.h"

#include <algorithm>

namespace halfbyte {
namespace {

void add(const MoeCounters& rank, MoeCounters& total) {
  // Ranks that share an expert count the same tokens for it, the others none.
  for (std::size_t e = 0; e < total.tokens_per_expert.size(); ++e)
    total.tokens_per_expert[e] = std::max(total.tokens_per_expert[e], rank.tokens_per_expert[e]);
  total.num_steps = std::max(total.num_steps, rank.num_steps);
  total.dropped_routes += rank.dropped_routes;
  total.padded_rows += rank.padded_rows;
  total.unroutable_rows += rank.unroutable_rows;
  total.expert_bytes_read += rank.expert_bytes_read;
  total.experts_touched += rank.experts_touched;
  total.dispatch_bytes += rank.dispatch_bytes;
}

}  // namespace

void subtract(const MoeCounters& before, MoeCounters& counters) {
  for (std::size_t e = 0; e < counters.tokens_per_expert.size(); ++e)
    counters.tokens_per_expert[e] -= before.tokens_per_expert[e];
  counters.num_steps -= before.num_steps;
  counters.dropped_routes -= before.dropped_routes;
  counters.padded_rows -= before.padded_rows;
  counters.unroutable_rows -= before.unroutable_rows;
  counters.expert_bytes_read -= before.expert_bytes_read;
  counters.experts_touched -= before.experts_touched;
  counters.dispatch_bytes -= before.dispatch_bytes;
}

std::vector<ExpertLoad> sum_expert_load(std::span<const std::vector<ExpertLoad>> ranks,
                                        int ep_size,
                                        int dp_size) {
  std::vector<ExpertLoad> total = ranks.front();
  for (const std::vector<ExpertLoad>& rank : ranks.subspan(1)) {
    for (std::size_t i = 0; i < total.size(); ++i)
      add(rank[i].counters, total[i].counters);
  }
  for (const std::vector<ExpertLoad>& rank : ranks) {
    for (std::size_t i = 0; i < total.size(); ++i)
      total[i].rank_dispatch_bytes.push_back(rank[i].counters.dispatch_bytes);
  }
  const auto num_ranks = static_cast<int>(ranks.size());
  for (ExpertLoad& layer : total) {
    layer.counters.experts_touched /= num_ranks / ep_size;
    layer.counters.dropped_routes /= num_ranks / dp_size;
    layer.counters.unroutable_rows /= num_ranks / dp_size;
  }
  return total;
}

}  // namespace halfbyte
