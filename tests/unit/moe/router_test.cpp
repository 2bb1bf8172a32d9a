// SPDX-License-Identifier: Apache-2.0
#include "moe/router.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

namespace halfbyte {
namespace {

using testing::ElementsAre;

// nvfp4-moe 7: a row with no finite logit reports ids 0..k-1 and weights 0, and its ids count as -1
// when routes are grouped; other rows are as without it.
TEST(Route, MarksRowsWithoutAFiniteLogit) {
  const float ninf = -INFINITY;
  const std::vector<float> logits = {0.0F, 2.0F, 1.0F, ninf, NAN, ninf, 3.0F, 0.0F, 1.0F};
  std::vector<std::int32_t> idx(6);
  std::vector<float> weights(6);
  RouterSpec spec;
  const ConstMatrixView view(logits.data(), DType::kF32, 3, 3);
  EXPECT_EQ(*route(spec, view, {}, 2, true, idx, weights), 1);
  EXPECT_THAT(idx, ElementsAre(1, 2, -1, -1, 0, 2));
  EXPECT_EQ(weights[2], 0.0F);
  EXPECT_EQ(*route(spec, view, {}, 2, false, idx, weights), 1);
  EXPECT_THAT(idx, ElementsAre(1, 2, 0, 1, 0, 2));
}

TEST(Route, NoRowsNeedNoPointers) {
  std::vector<std::int32_t> idx;
  std::vector<float> weights;
  EXPECT_EQ(*route({}, ConstMatrixView(nullptr, DType::kF32, 0, 4), {}, 2, true, idx, weights), 0);
}

// bf16 logits where fp32 is declared are a typed error, and so is a bias of another length.
TEST(Route, RefusesOtherTypesAndSizes) {
  std::vector<float> logits(8, 0.0F);
  std::vector<std::int32_t> idx(4);
  std::vector<float> weights(4);
  const std::vector<float> bias(3, 0.0F);
  ConstMatrixView view(logits.data(), DType::kF32, 2, 4);
  EXPECT_EQ(route({}, view, bias, 2, true, idx, weights).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(route({}, view, {}, 1, true, idx, weights).status().code(),
            StatusCode::kInvalidArgument);
  view.dtype = DType::kBf16;
  EXPECT_EQ(route({}, view, {}, 2, true, idx, weights).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace halfbyte
