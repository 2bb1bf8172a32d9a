// SPDX-License-Identifier: Apache-2.0
//
// B41: ranks without tokens crashed on null pointers, or did not join a collective that others
// waited in. nvfp4-moe 8.1, 9.4.
#include <gtest/gtest.h>

#include "bugs/moe_ranks.h"

namespace halfbyte {
namespace {

using namespace test;

TEST(B41, NoTokensAndNullPointersAreOk) {
  const MoeSpec spec = small_moe_spec();
  std::vector<RankStep> steps(1);
  run_ranks(spec, reference_moe_options(4), {}, random_experts(spec, 5), {}, steps);
  EXPECT_EQ(steps[0].status, "ok");
}

// T = (3, 0), (0, 0), (0, 1), under both schemes: right results, equal numbers of collectives.
TEST(B41, RanksWithoutTokensJoinEveryCollective) {
  const MoeSpec spec = small_moe_spec();
  const auto experts = random_experts(spec, 6);
  for (const char* scheme : {"none", "all_to_all"}) {
    for (const std::vector<std::int64_t>& tokens :
         std::vector<std::vector<std::int64_t>>{{3, 0}, {0, 0}, {0, 1}}) {
      MoeOptions options = reference_moe_options(4);
      options.a2a_backend = scheme;
      options.tp_size = options.ep_size = options.dp_size = 2;
      std::vector<RankStep> steps = {walking_step(spec, tokens[0], 7),
                                     walking_step(spec, tokens[1], 8)};
      run_ranks(spec, options, {}, experts, tokens, steps);
      for (std::size_t r = 0; r < 2; ++r) {
        ASSERT_EQ(steps[r].status, "ok") << scheme;
        std::vector<RankStep> alone = {steps[r]};
        run_ranks(spec, reference_moe_options(4), {}, experts, {}, alone);
        EXPECT_EQ(steps[r].y, alone[0].y) << scheme << " rank " << r;
      }
      EXPECT_EQ(steps[0].num_collectives, steps[1].num_collectives) << scheme;
    }
  }
}

}  // namespace
}  // namespace halfbyte
