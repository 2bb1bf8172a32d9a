// SPDX-License-Identifier: Apache-2.0
//
// A router weight that is applied to the input passes through the activation: it is not the same
// as weighing the output.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/reference/expert.h"
#include "kernels/reference/router.h"
#include "unit/kernels/test_expert.h"

namespace halfbyte::reference {
namespace {

using test::TestExpert;

// gate = 2 and up = 3 for x = exact_row(16), which sums to 8.
void fill(TestExpert& expert) {
  expert.view.gate = expert.constant_matrix(16, 16, 2, 0x38);
  expert.view.up = expert.constant_matrix(16, 16, 2, 0x38);
  expert.view.down = expert.constant_matrix(16, 16, 2, 0x38);
  expert.view.gate.global_scale = 0.25F;
  expert.view.up.global_scale = 0.375F;
}

float h_of(const TestExpert& expert, ActivationMode mode, float weight) {
  std::vector<float> x = test::exact_row(16);
  for (float& value : x)
    value *= weight;
  std::vector<float> h(16), y(16);
  run_expert_row(expert.view, {}, mode, expert.scalars(), x.data(), y.data(),
                 {h.data(), nullptr, nullptr, nullptr});
  return h[0];
}

TEST(B28RouterWeightOnInput, WeighingTheInputDiffersFromWeighingTheOutput) {
  TestExpert expert;
  fill(expert);
  for (const ActivationMode mode :
       {ActivationMode::kW4a16, ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
    EXPECT_NEAR(h_of(expert, mode, 0.5F), 1.09659F, 1e-5F);
    EXPECT_NEAR(0.5F * h_of(expert, mode, 1.0F), 2.64239F, 1e-5F);
  }
}

TEST(B28RouterWeightOnInput, MoreThanOneExpertATokenIsRefused) {
  RouterSpec spec;
  spec.method = RoutingMethod::kLlama4;
  EXPECT_TRUE(check_router(spec, 8, 1).ok());
  EXPECT_EQ(check_router(spec, 8, 2).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace halfbyte::reference
