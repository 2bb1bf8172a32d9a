// SPDX-License-Identifier: Apache-2.0
//
// B46: capacity without the data-parallel factor, or with it twice; too many tokens were cut off in
// silence. nvfp4-moe 10.4.
#include <gmock/gmock.h>

#include "bugs/moe_ranks.h"

namespace halfbyte {
namespace {

using namespace test;
using testing::Each;
using testing::HasSubstr;

TEST(B46, SixtyFiveOfSixtyFourTokensAreRefusedAndNothingIsWritten) {
  const MoeSpec spec = small_moe_spec();
  const auto experts = random_experts(spec, 11);
  std::vector<RankStep> fits = {walking_step(spec, 64, 12)};
  run_ranks(spec, reference_moe_options(64), {}, experts, {}, fits);
  EXPECT_EQ(fits[0].status, "ok");
  std::vector<RankStep> too_many = {walking_step(spec, 65, 12)};
  run_ranks(spec, reference_moe_options(64), {}, experts, {}, too_many);
  EXPECT_THAT(too_many[0].status, HasSubstr("capacity_exceeded"));
  EXPECT_THAT(too_many[0].y, Each(-7.0F));
}

// dp = 2 gathers 2 x 64 = 128 rows: planned for 64 a rank it fits; for 32 a rank every rank refuses
// before a collective, also the one whose own part is small.
TEST(B46, TheDataParallelFactorCountsOnce) {
  const MoeSpec spec = small_moe_spec();
  const auto experts = random_experts(spec, 13);
  MoeOptions options = reference_moe_options(64);
  options.tp_size = options.ep_size = options.dp_size = 2;
  const std::vector<std::int64_t> both = {64, 64};
  std::vector<RankStep> fits = {walking_step(spec, 64, 14), walking_step(spec, 64, 15)};
  run_ranks(spec, options, {}, experts, both, fits);
  EXPECT_EQ(fits[0].status, "ok");
  EXPECT_EQ(fits[1].status, "ok");

  options.capacity_tokens = 32;
  const std::vector<std::int64_t> uneven = {64, 1};
  std::vector<RankStep> refused = {walking_step(spec, 64, 14), walking_step(spec, 1, 15)};
  run_ranks(spec, options, {}, experts, uneven, refused);
  for (const RankStep& rank : refused) {
    EXPECT_THAT(rank.status, HasSubstr("capacity_exceeded"));
    EXPECT_THAT(rank.y, Each(-7.0F));
  }
  EXPECT_EQ(refused[0].num_collectives, refused[1].num_collectives);
}

}  // namespace
}  // namespace halfbyte
