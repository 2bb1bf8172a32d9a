// SPDX-License-Identifier: Apache-2.0
//
// What the compiled kernels for sm_100a say of themselves; nothing is launched.
#include <gtest/gtest.h>

#include "kernels/cuda/sm100/grouped_gemm_nvfp4_nvfp4.h"

namespace halfbyte::sm100 {
namespace {

// The plan's bound is stated where there is no CUDA, so that a plan is the same everywhere.
TEST(GroupedGemmSm100, CutlassAsksForNoMoreScratchThanThePlanHas) {
  if (!kernels_are_built()) GTEST_SKIP() << "no CUDA code for sm_100a in this build";
  for (const int multiprocessors : {1, 132, 148, 160}) {
    device::Properties device;
    device.compute_capability = 100;
    device.num_multiprocessors = multiprocessors;
    for (const double rows : {1.0, 1000.0}) {
      GroupedGemmShape shape;
      shape.rows_per_expert = rows;
      const GroupedGemmConfig config = select_config(shape, device);
      EXPECT_GT(wanted_scratch_bytes(config), 0U) << config.to_string();
      EXPECT_LE(wanted_scratch_bytes(config), config.scratch_bytes) << config.to_string();
    }
  }
}

}  // namespace
}  // namespace halfbyte::sm100
