// SPDX-License-Identifier: Apache-2.0
//
// The gate is bounded above only, and limits are in physical units: after the global scale.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/reference/activation.h"
#include "kernels/reference/expert.h"
#include "unit/kernels/test_expert.h"

namespace halfbyte::reference {
namespace {

using test::TestExpert;

TEST(B26ClampSideAndUnits, ANegativeGateIsNotClamped) {
  const ActivationSpec spec = {ActivationFunction::kSwigluClamped, 1.0F, 0.0F, 1.0F};
  // A symmetric clamp gives -0.26894, no clamp -0.7114.
  EXPECT_NEAR(activate(spec, -3.0F, 5.0F), -0.142278F, 1e-6F);
}

TEST(B26ClampSideAndUnits, AnAccumulatorOf16WithScaleOneEighthIsBelowALimitOf2) {
  TestExpert expert;
  expert.view.gate = expert.constant_matrix(16, 32, 2, 0x38);  // all 1
  expert.view.up = expert.constant_matrix(16, 32, 2, 0x38);
  expert.view.down = expert.constant_matrix(32, 16, 2, 0x38);
  expert.view.gate.global_scale = 0.125F;
  expert.view.up.global_scale = 0.125F;
  const std::vector<float> x = test::exact_row(32);  // sums to 16
  const ActivationSpec spec = {ActivationFunction::kSwigluClamped, 1.0F, 0.0F, 2.0F};
  for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4,
                                    ActivationMode::kW4a4Dynamic, ActivationMode::kW4a8}) {
    std::vector<float> h(16), y(32);
    run_expert_row(expert.view, spec, mode, expert.scalars(), x.data(), y.data(),
                   {h.data(), nullptr, nullptr, nullptr});
    const float want = activate({}, 2.0F, 2.0F);  // clamping the raw 16 gives 0.03
    // E4M3 cannot hold 2 beside 6: one of its roundings is 2^-4.
    const float tolerance = mode == ActivationMode::kW4a8 ? want * 0x1p-4F : 1e-6F;
    for (const float value : h)
      EXPECT_NEAR(value, want, tolerance);
  }
}

}  // namespace
}  // namespace halfbyte::reference
