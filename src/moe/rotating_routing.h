// SPDX-License-Identifier: Apache-2.0
//
// Random routings that all cost the same and read other experts each time: what a layer is timed
// with.
#ifndef HALFBYTE_MOE_ROTATING_ROUTING_H_
#define HALFBYTE_MOE_ROTATING_ROUTING_H_

#include <cstdint>
#include <vector>

#include "halfbyte/moe.h"

namespace halfbyte {

/// Who chooses from what.
struct RoutingShape {
  std::int64_t num_experts = 0;        // that tokens choose from
  std::int64_t num_local_experts = 0;  // ids 0 .. num_local_experts - 1
  std::int64_t top_k = 0;
};

/// Each token chooses top_k different experts of all, uniformly; routes to experts of other ranks
/// are -1. Drawn once, with as many routes to this rank's experts as uniform choice gives on
/// average, within 1 %. Later rounds keep who shares an expert with whom and rename the experts:
/// round r reads the next num_touched() of a fixed random cycle, so that one is read again only
/// after all others.
class RotatingRouting {
 public:
  RotatingRouting(const RoutingShape& shape, std::int64_t num_tokens);

  /// Routing of a round; a view, valid until the next call.
  Routing round(std::int64_t round_idx);
  /// Routes to experts of this rank; at least 1.
  std::int64_t num_routes() const { return num_routes_; }
  /// Experts of this rank with a route.
  std::int64_t num_touched() const { return num_touched_; }

 private:
  void number_touched_experts();

  std::int64_t num_local_experts_;
  std::int64_t num_routes_ = 0;
  std::int64_t num_touched_ = 0;
  std::vector<std::int32_t> drawn_;  // [num_tokens, top_k]: which touched expert, or -1
  std::vector<std::int32_t> cycle_;  // [num_local_experts]: a permutation
  std::vector<std::int32_t> ids_;    // [num_tokens, top_k]
  std::vector<float> weights_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_ROTATING_ROUTING_H_
