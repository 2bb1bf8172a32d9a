// SPDX-License-Identifier: Apache-2.0
//
// Layers that plans for every CUDA device are made of.
#ifndef HALFBYTE_TESTS_UNIT_MOE_CUDA_PLAN_CASES_H_
#define HALFBYTE_TESTS_UNIT_MOE_CUDA_PLAN_CASES_H_

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "moe/plan.h"

namespace halfbyte::test {

// DeepSeek-V3.
inline MoeSpec deepseek() {
  MoeSpec spec;
  spec.hidden_size = 7168;
  spec.intermediate_size = 2048;
  spec.num_experts = 256;
  spec.top_k = 8;
  return spec;
}

inline MoeSpec small_spec() {
  MoeSpec spec;
  spec.hidden_size = 528;
  spec.intermediate_size = 96;
  spec.num_experts = 16;
  spec.top_k = 2;
  return spec;
}

inline Result<MoePlan> make_plan(const MoeSpec& spec,
                                 std::int64_t capacity_tokens,
                                 const DeviceLimits& limits,
                                 MoeOptions options = {},
                                 int num_ranks = 1) {
  options.capacity_tokens = capacity_tokens;
  NoticeSink notices;
  return make_moe_plan(spec, options, limits, num_ranks, 0, notices);
}

inline std::string refusal(const Result<MoePlan>& plan) {
  return plan.ok() ? "ok" : plan.status().to_string();
}

// Of `spec` with one thing that no kernels for CUDA devices take.
inline void expect_common_refusals(const MoeSpec& spec, const DeviceLimits& limits) {
  const auto of = [&](const auto& change) {
    MoeSpec changed = spec;
    change(changed);
    return refusal(make_plan(changed, 16, limits));
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(of([](MoeSpec& s) { s.x_dtype = DType::kF32; }), HasSubstr("x is F32, want BF16"));
  EXPECT_THAT(of([](MoeSpec& s) { s.expert_format = WeightFormat::kFp8; }),
              HasSubstr("experts are fp8, want nvfp4"));
  EXPECT_THAT(of([](MoeSpec& s) {
                s.top_k = 1;
                s.apply_router_weight_on_input = true;
              }),
              HasSubstr("router weights on the input"));
}

inline void expect_no_overlap(const WorkspaceLayout& layout, std::size_t alignment) {
  std::size_t end = 0;
  for (const WorkspaceLayout::Entry& entry : layout.entries()) {
    EXPECT_GE(entry.offset, end) << entry.name;
    EXPECT_EQ(entry.offset % alignment, 0U) << entry.name;
    end = entry.offset + entry.bytes;
  }
}

// warm_up launches `ranges`: no step may take what is not in it.
template <typename Ranges, typename Choose>
void expect_lists_every_step(const Ranges& ranges,
                             std::int64_t capacity_tokens,
                             std::int64_t stride,
                             const Choose& choose) {
  for (std::int64_t tokens = 1; tokens <= capacity_tokens; tokens += stride) {
    const auto step = choose(tokens);
    EXPECT_TRUE(std::any_of(ranges.begin(), ranges.end(), [&step](const auto& range) {
      return range.step.launches_the_same(step);
    })) << tokens;
  }
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_UNIT_MOE_CUDA_PLAN_CASES_H_
