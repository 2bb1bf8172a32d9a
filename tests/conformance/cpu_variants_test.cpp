// SPDX-License-Identifier: Apache-2.0
//
// Every kernel table of the cpu backend, forced by name, over the token counts at which tiles,
// buckets and launches change.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/reference/oracle.h"
#include "moe/backends/cpu.h"
#include "support/moe_case.h"

namespace halfbyte {
namespace {

using testing::BackendRun;
using testing::random_layer;
using testing::random_tokens;
using testing::run_routes;
using testing::TestLayer;
using testing::TestRoutes;
using testing::TestTokens;

constexpr testing::LayerShape kShape{.hidden_size = 48, .intermediate_size = 16, .num_experts = 3};

std::size_t offset_of(std::int64_t index) {
  return static_cast<std::size_t>(index) * static_cast<std::size_t>(kShape.hidden_size);
}

// docs/numerics.md: 2e-6 for every row in w4a16.
void expect_rows_agree(const TestLayer& layer,
                       const TestTokens& tokens,
                       const TestRoutes& routes,
                       const std::vector<float>& rows) {
  const auto hidden = static_cast<std::size_t>(kShape.hidden_size);
  ASSERT_EQ(rows.size(), routes.route_row.size() * hidden);
  std::vector<double> want(hidden);
  for (std::size_t route = 0; route < routes.route_row.size(); ++route) {
    const auto e = static_cast<std::size_t>(routes.route_expert[route]);
    reference::oracle_expert_row(
        layer.experts[e].expert(), layer.spec.activation, ActivationMode::kW4a16, layer.scalars(e),
        tokens.x_f32.data() + offset_of(routes.route_row[route]), false, nullptr, want.data());
    ASSERT_LE(reference::rel_l2({rows.data() + route * hidden, hidden}, want), 2e-6)
        << "route " << route << " expert " << e;
  }
}

class CpuVariants : public ::testing::TestWithParam<const cpu::KernelTable*> {
 protected:
  void SetUp() override {
    const std::string_view missing = cpu::missing_feature(*GetParam());
    if (!missing.empty()) GTEST_SKIP() << missing;
  }

  void expect_tokens_agree(std::int64_t num_tokens, bool one_expert) {
    SCOPED_TRACE(std::to_string(num_tokens) + " tokens");
    const TestLayer layer = random_layer(kShape, 121);
    TestTokens tokens = random_tokens(layer.spec, num_tokens, 122);
    // Both slots of every token on one expert: duplicates count, and its neighbours have none.
    if (one_expert) std::fill(tokens.topk_idx.begin(), tokens.topk_idx.end(), 1);
    const TestRoutes routes(layer.spec, tokens);
    BackendRun run(make_cpu_backend_with(*GetParam()), layer, ActivationMode::kW4a16, num_tokens);
    ASSERT_TRUE(run.status().ok()) << run.status().to_string();
    expect_rows_agree(layer, tokens, routes, run_routes(run, tokens, routes));
  }
};

TEST_P(CpuVariants, AgreeWithTheOracleAtEveryTokenCount) {
  for (const std::int64_t num_tokens : {1, 2, 8, 16, 17, 64, 96, 192, 1024})
    expect_tokens_agree(num_tokens, false);
}

TEST_P(CpuVariants, AgreeWithTheOracleWhenOneExpertGetsEverything) {
  for (const std::int64_t num_tokens : {1, 3, 17, 192})
    expect_tokens_agree(num_tokens, true);
}

// Sums of quantised operands are exact on this data, so the order of additions cannot show.
TEST_P(CpuVariants, HaveTheSameBitsInW4a4) {
  const TestLayer layer = random_layer(kShape, 131);
  const TestTokens tokens = random_tokens(layer.spec, 33, 132);
  const TestRoutes routes(layer.spec, tokens);
  BackendRun portable(make_cpu_backend_with(cpu::kPortableKernels), layer, ActivationMode::kW4a4,
                      33);
  BackendRun forced(make_cpu_backend_with(*GetParam()), layer, ActivationMode::kW4a4, 33);
  const std::vector<float> want = run_routes(portable, tokens, routes);
  ASSERT_FALSE(want.empty());
  EXPECT_EQ(run_routes(forced, tokens, routes), want);
}

class CpuVariantsLarge : public CpuVariants {};

TEST_P(CpuVariantsLarge, AgreeWithTheOracleInLargeBatches) {
  for (const std::int64_t num_tokens : {5120, 6144, 8064})
    expect_tokens_agree(num_tokens, false);
}

std::string table_name(const ::testing::TestParamInfo<const cpu::KernelTable*>& info) {
  return std::string(info.param->name);
}

const auto kTables = cpu::list_kernel_tables();
INSTANTIATE_TEST_SUITE_P(List, CpuVariants, ::testing::ValuesIn(kTables), table_name);
INSTANTIATE_TEST_SUITE_P(List, CpuVariantsLarge, ::testing::ValuesIn(kTables), table_name);

}  // namespace
}  // namespace halfbyte
