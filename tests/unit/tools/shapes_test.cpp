// SPDX-License-Identifier: Apache-2.0
#include "bench/shapes.h"

#include <gtest/gtest.h>

namespace halfbyte::tool {
namespace {

// docs: Qwen3-30B-A3B has 128 experts of 2048 x 768, of which a token uses 8; 4.5 bits a weight.
TEST(LayerShapes, AreThoseOfTheModels) {
  const LayerShape* shape = find_layer_shape("qwen3-30b-a3b");
  ASSERT_NE(shape, nullptr);
  EXPECT_EQ(shape->num_local_experts, 128);
  EXPECT_EQ(shape->top_k, 8);
  EXPECT_EQ(shape->expert_bytes(), 3 * 2048 * 768 / 2 * 9 / 8);
  EXPECT_EQ(shape->route_operations(), 2 * 3 * 2048 * 768);
}

TEST(LayerShapes, OfARankHoldAPartOfTheExperts) {
  const LayerShape* shape = find_layer_shape("deepseek-v3-ep8");
  ASSERT_NE(shape, nullptr);
  EXPECT_EQ(shape->num_experts, 256);
  EXPECT_EQ(shape->num_local_experts, 32);
}

TEST(LayerShapes, OfAnotherSizeSayItInTheirName) {
  const LayerShape shape = with_experts(*find_layer_shape("deepseek-v3-ep8"), 16);
  EXPECT_EQ(shape.name, "deepseek-v3-ep8 with 16 experts");
  EXPECT_EQ(shape.num_experts, 16);
  EXPECT_EQ(shape.num_local_experts, 16);
}

TEST(LayerShapes, AreListedByName) {
  EXPECT_EQ(find_layer_shape("no such"), nullptr);
  for (const LayerShape& shape : layer_shapes())
    EXPECT_NE(layer_shape_names().find(shape.name), std::string::npos);
}

}  // namespace
}  // namespace halfbyte::tool
