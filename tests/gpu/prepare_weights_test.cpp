// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/prepare_weights.h"

#include "expert_data.h"

namespace halfbyte::sm90 {
namespace {

// The kernel writes the bytes that the layout's index functions say, padding as zeros.
TEST(PrepareWeights, EqualsTheIndexFunctions) {
  HALFBYTE_NEED_HOPPER();
  const device::Stream stream = device::Stream::create().value();
  std::mt19937 random(std::random_device{}());
  const WeightShape shapes[] = {{3, 2, 64, 128},   {2, 2, 96, 144}, {2, 1, 144, 96},
                                {1, 1, 2880, 704}, {1, 2, 16, 16},  {2, 1, 40, 2880}};
  for (const WeightShape& shape : shapes) {
    ASSERT_TRUE(can_run(shape).ok());
    const auto matrix = test::make_expert_matrix({shape}, true, random, stream);
    EXPECT_EQ(matrix.prepared.download(), test::prepare_on_host(matrix))
        << shape.num_halves << " x " << shape.half_rows << " x " << shape.cols;
  }
}

TEST(PrepareWeights, RefusesWidthsThatNoGroupFits) {
  EXPECT_EQ(can_run({1, 1, 16, 24}).code(), StatusCode::kUnsupported);
  EXPECT_EQ(can_run({1, 3, 16, 32}).code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace halfbyte::sm90
