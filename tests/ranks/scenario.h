// SPDX-License-Identifier: Apache-2.0
//
// One step of one layer over several ranks, with a known function in place of the experts, and what
// must come out, computed apart from the library.
#ifndef HALFBYTE_TESTS_RANKS_SCENARIO_H_
#define HALFBYTE_TESTS_RANKS_SCENARIO_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "moe/dispatcher.h"

namespace halfbyte::test {

/// What memory may hold before it is used; results must not depend on it.
inline constexpr std::array<std::uint8_t, 3> kPoisons = {0x00, 0x7F, 0xFF};

/// The tokens of one data-parallel group.
struct GroupTokens {
  std::vector<float> x;                // [T, H], values of x_dtype
  std::vector<std::int32_t> topk_idx;  // [T, k]
  std::vector<float> topk_weights;     // [T, k]
  std::vector<float> shared;           // [T, H]; whole output of the shared expert, or empty
};

struct Scenario {
  std::string dispatcher = "standard";
  std::int64_t num_experts = 32;
  std::int64_t top_k = 4;
  std::int64_t hidden_size = 48;
  int tp = 1, ep = 1, dp = 1;
  std::vector<std::int64_t> tokens_per_rank = {5};  // [dp]
  std::int64_t max_tokens_per_rank = 16;
  ActivationMode mode = ActivationMode::kW4a16;
  Payload payload = Payload::kAsGiven;
  CombineMode combine_mode = CombineMode::kOrdered;
  DType combine_dtype = DType::kF32;
  DType x_dtype = DType::kBf16;
  DType y_dtype = DType::kF32;
  DType row_dtype = DType::kF32;
  SharedExpert::Kind shared = SharedExpert::Kind::kNone;
  bool weight_input = false;   // apply_router_weight_on_input
  float s1 = 0.01F;            // kW4a4
  std::uint8_t poison = 0x7F;  // fills workspace, outputs and guards
  int steps = 1;               // dispatch and combine this many times
};

/// Random tokens: ids uniform over [-1, E], so that some are no route; weights in (0, 1).
std::vector<GroupTokens> make_tokens(const Scenario& scenario, unsigned seed);

/// What the ranks of a group must get: the sums of nvfp4-moe 9.5, written out again from its text.
/// [dp] of [T, H], values of y_dtype.
std::vector<std::vector<float>> expected_outputs(const Scenario& scenario,
                                                 const std::vector<GroupTokens>& tokens);

struct ScenarioResult {
  std::vector<Status> status;                 // [tp]
  std::vector<std::vector<float>> y;          // [tp] of [T, H], widened
  std::vector<std::int64_t> num_collectives;  // [tp]
  std::vector<std::int64_t> num_rows;         // [tp] rows that entered the experts
  std::vector<std::int64_t> num_routes;       // [tp]
  std::vector<std::int64_t> dropped_routes;   // [tp]
  bool outputs_untouched = true;              // no byte of any y was written
  bool guards_intact = true;                  // bytes around every workspace and output
};
/// Runs the scenario on tp ranks as threads (one rank: also with dispatcher `local`).
ScenarioResult run_scenario(const Scenario& scenario, const std::vector<GroupTokens>& tokens);

/// Runs and compares bit for bit with expected_outputs; returns what is wrong, or nothing.
std::string check_scenario(const Scenario& scenario, const std::vector<GroupTokens>& tokens);

/// The plan of one rank.
Result<DispatchPlan> plan_scenario(const Scenario& scenario,
                                   const Dispatcher& dispatcher,
                                   int rank);

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_RANKS_SCENARIO_H_
