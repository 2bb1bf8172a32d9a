// SPDX-License-Identifier: Apache-2.0
//
// One MoE layer on several ranks, which are threads of this process.
#ifndef HALFBYTE_TESTS_BUGS_MOE_RANKS_H_
#define HALFBYTE_TESTS_BUGS_MOE_RANKS_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/transport.h"
#include "halfbyte/moe.h"
#include "unit/moe/layer_fixture.h"

namespace halfbyte::test {

inline MoeSpec small_moe_spec() {
  MoeSpec spec;
  spec.hidden_size = 64;
  spec.intermediate_size = 32;
  spec.num_experts = 8;
  spec.top_k = 2;
  spec.x_dtype = DType::kF32;
  spec.y_dtype = DType::kF32;
  return spec;
}

inline MoeOptions reference_moe_options(std::int64_t capacity,
                                        ActivationMode mode = ActivationMode::kW4a16) {
  MoeOptions options;
  options.runner_backend = "reference";
  options.activation_mode = mode;
  options.combine_dtype = DType::kF32;
  options.capacity_tokens = capacity;
  return options;
}

/// A rank's tokens and what came back.
struct RankStep {
  std::vector<float> x, y, weights;
  std::vector<std::int32_t> idx;
  std::int64_t num_tokens = 0;
  std::string status;  // "ok", or what failed
  std::int64_t num_collectives = 0;
};

inline Status load_and_run(const MoeSpec& spec,
                           const MoeOptions& options,
                           const ExpertInputScales& scales,
                           const std::vector<std::unique_ptr<RandomExpert>>& experts,
                           std::span<const std::int64_t> tokens_per_rank,
                           Transport* transport,
                           RankStep& step) {
  HALFBYTE_ASSIGN_OR_RETURN(const auto layer, MoeLayer::create(spec, options, scales, transport));
  for (std::size_t e = 0; e < experts.size(); ++e) {
    HALFBYTE_RETURN_IF_ERROR(layer->load_expert(static_cast<std::int64_t>(e), experts[e]->view()));
  }
  HALFBYTE_RETURN_IF_ERROR(layer->finish_loading());
  const bool empty = step.num_tokens == 0;
  step.y.assign(step.x.size(), -7.0F);
  return layer->run(
      {empty ? nullptr : step.x.data(), spec.x_dtype, step.num_tokens, spec.hidden_size},
      {step.idx, step.weights}, {},
      {empty ? nullptr : step.y.data(), spec.y_dtype, step.num_tokens, spec.hidden_size},
      tokens_per_rank);
}

/// Runs steps[r] on rank r; one step runs without a transport.
inline void run_ranks(const MoeSpec& spec,
                      const MoeOptions& options,
                      const ExpertInputScales& scales,
                      const std::vector<std::unique_ptr<RandomExpert>>& experts,
                      std::span<const std::int64_t> tokens_per_rank,
                      std::vector<RankStep>& steps) {
  if (steps.size() == 1) {
    steps[0].status =
        load_and_run(spec, options, scales, experts, {}, nullptr, steps[0]).to_string();
    return;
  }
  auto transports = make_in_process_transports(static_cast<int>(steps.size()));
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < steps.size(); ++r) {
    ranks.emplace_back([&, r] {
      Transport* transport = transports[r].get();
      const Status status =
          load_and_run(spec, options, scales, experts, tokens_per_rank, transport, steps[r]);
      steps[r].status = status.to_string();
      steps[r].num_collectives = transport->num_collectives();
    });
  }
  for (std::thread& rank : ranks)
    rank.join();
}

/// `num_tokens` tokens of random values whose routes walk over the experts.
inline RankStep walking_step(const MoeSpec& spec, std::int64_t num_tokens, unsigned seed) {
  RankStep step;
  step.num_tokens = num_tokens;
  step.x = random_rows(num_tokens * spec.hidden_size, seed);
  for (std::int64_t i = 0; i < num_tokens * spec.top_k; ++i) {
    step.idx.push_back(static_cast<std::int32_t>(i % spec.num_experts));
    step.weights.push_back(0.25F * static_cast<float>(1 + i % 3));
  }
  return step;
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_BUGS_MOE_RANKS_H_
