// SPDX-License-Identifier: Apache-2.0
//
// B40: ids of another width or sign were reinterpreted, so that -1 became an expert or 2^32 + 1
// became expert 1. Here ids are int32 by type; anything else does not compile.
#include <gtest/gtest.h>

#include <limits>
#include <type_traits>

#include "bugs/moe_ranks.h"

namespace halfbyte {
namespace {

using namespace test;

using IdSpan = decltype(Routing::topk_idx);
static_assert(std::is_convertible_v<std::vector<std::int32_t>&, IdSpan>);
static_assert(!std::is_convertible_v<std::vector<std::int64_t>&, IdSpan>);
static_assert(!std::is_convertible_v<std::vector<std::uint32_t>&, IdSpan>);

// -1, E, and the largest and smallest int32 are no routes: the token's other slot alone counts.
TEST(B40, IdsOutsideTheExpertsAreNoRoutes) {
  const MoeSpec spec = small_moe_spec();
  const auto experts = random_experts(spec, 3);
  std::vector<RankStep> want = {walking_step(spec, 4, 4)};
  for (std::size_t t = 0; t < 4; ++t)
    want[0].idx[2 * t + 1] = -1;
  std::vector<RankStep> got = want;
  using Limits = std::numeric_limits<std::int32_t>;
  std::size_t slot = 1;
  for (const std::int32_t id : {-2, 8, Limits::max(), Limits::min()}) {
    got[0].idx[slot] = id;
    slot += 2;
  }
  run_ranks(spec, reference_moe_options(4), {}, experts, {}, want);
  run_ranks(spec, reference_moe_options(4), {}, experts, {}, got);
  ASSERT_EQ(got[0].status, "ok");
  EXPECT_EQ(got[0].y, want[0].y);
}

}  // namespace
}  // namespace halfbyte
