// SPDX-License-Identifier: Apache-2.0
//
// B49: ranks chose different kernels, so their steps and their collectives did not match. Here
// nothing is chosen by timing: a plan is a pure function of spec, options and limits, and only the
// rank's part of the experts may differ (nvfp4-moe 12.4).
#include <gtest/gtest.h>

#include "bugs/moe_ranks.h"
#include "moe/plan.h"

namespace halfbyte {
namespace {

using namespace test;

TEST(B49, RanksWithUnevenExpertsMakeTheSameDecisions) {
  MoeSpec spec = small_moe_spec();
  spec.num_experts = 30;
  for (const char* backend : {"reference", "cpu"}) {
    MoeOptions options = reference_moe_options(16);
    options.runner_backend = backend;
    options.tp_size = options.ep_size = 8;
    DeviceLimits limits;
    limits.num_threads = 2;
    std::vector<MoePlan> plans;
    for (int rank = 0; rank < 8; ++rank) {
      NoticeSink notices;
      auto plan = make_moe_plan(spec, options, limits, 8, rank, notices);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      plans.push_back(std::move(*plan));
    }
    for (const MoePlan& plan : plans) {
      EXPECT_EQ(plan.transport, plans[0].transport);
      EXPECT_EQ(plan.log, plans[0].log);
      EXPECT_EQ(plan.dispatch.dispatcher, plans[0].dispatch.dispatcher);
      EXPECT_EQ(plan.dispatch.dispatch_bytes_per_token, plans[0].dispatch.dispatch_bytes_per_token);
      EXPECT_EQ(plan.experts.token_layout, plans[0].experts.token_layout);
      EXPECT_EQ(plan.experts.row_dtype, plans[0].experts.row_dtype);
      EXPECT_EQ(plan.experts.x_format, plans[0].experts.x_format);
      EXPECT_EQ(plan.experts.h_format, plans[0].experts.h_format);
      EXPECT_EQ(plan.experts.prepared_layout, plans[0].experts.prepared_layout);
    }
  }
}

}  // namespace
}  // namespace halfbyte
