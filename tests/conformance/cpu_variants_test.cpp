// SPDX-License-Identifier: Apache-2.0
//
// Every kernel table of the cpu backend, forced by name, over the token counts at which tiles,
// buckets and launches change: plain C++ against the oracle, every instruction set against plain
// C++.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/reference/oracle.h"
#include "moe/backends/cpu.h"
#include "support/moe_case.h"

namespace halfbyte {
namespace {

using test::BackendRun;
using test::random_layer;
using test::random_tokens;
using test::run_routes;
using test::TestLayer;
using test::TestRoutes;
using test::TestTokens;

// nvfp4-moe 12.8.
constexpr std::int64_t kTokenCounts[] = {1, 2, 8, 16, 17, 64, 96, 192, 1024};
constexpr std::int64_t kLargeTokenCounts[] = {5120, 6144, 8064};
constexpr test::LayerShape kShape{.hidden_size = 48, .intermediate_size = 16, .num_experts = 3};
constexpr auto kHidden = static_cast<std::size_t>(kShape.hidden_size);

// A batch; with `one_expert` both slots of every token go to one expert: duplicates count, and its
// neighbours have none.
struct Batch {
  TestLayer layer = random_layer(kShape, 121);
  TestTokens tokens;
  TestRoutes routes;

  Batch(std::int64_t num_tokens, bool one_expert)
      : tokens(make_tokens(layer.spec, num_tokens, one_expert)), routes(layer.spec, tokens) {}

  std::vector<float> run(const cpu::KernelTable& kernels,
                         const TestLayer& weights,
                         ActivationMode mode,
                         bool exact_float32) const {
    BackendRun run(make_cpu_backend_with(kernels), weights, mode, tokens.num_tokens, 2,
                   exact_float32);
    return run_routes(run, tokens, routes);
  }

  static TestTokens make_tokens(const MoeSpec& spec, std::int64_t num_tokens, bool one_expert) {
    TestTokens tokens = random_tokens(spec, num_tokens, 122);
    if (one_expert) std::fill(tokens.topk_idx.begin(), tokens.topk_idx.end(), 1);
    return tokens;
  }
};

// docs/numerics.md, "Alarms": of each row and of the whole output in fp32; of the whole output in
// split15, whose steps depend on the largest value of a group, so that a row of one group is no
// random sample (its elements have hard bounds in expert_stages_test.cpp).
void expect_rows_agree_with_the_oracle(const Batch& batch,
                                       const std::vector<float>& rows,
                                       double row_bound,
                                       double whole_bound) {
  ASSERT_EQ(rows.size(), batch.routes.route_row.size() * kHidden);
  std::vector<double> want(rows.size());
  for (std::size_t route = 0; route < batch.routes.route_row.size(); ++route) {
    const auto e = static_cast<std::size_t>(batch.routes.route_expert[route]);
    const auto row = static_cast<std::size_t>(batch.routes.route_row[route]);
    const std::span<double> want_row{want.data() + route * kHidden, kHidden};
    reference::oracle_expert_row(batch.layer.experts[e].expert(), batch.layer.spec.activation,
                                 ActivationMode::kW4a16, batch.layer.scalars(e),
                                 batch.tokens.x_f32.data() + row * kHidden, false, nullptr,
                                 want_row.data());
    ASSERT_LE(reference::rel_l2({rows.data() + route * kHidden, kHidden}, want_row), row_bound)
        << "route " << route << " expert " << e;
  }
  EXPECT_LE(reference::rel_l2(rows, want), whole_bound) << "over the whole output";
}

std::size_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  std::size_t i = 0;
  while (i < a.size() && std::memcmp(&a[i], &b[i], sizeof(float)) == 0)
    ++i;
  return i;
}

// h as GEMM2 reads it, for I <= H: the down projection picks columns.
TestLayer layer_that_shows_h(const TestLayer& layer) {
  TestLayer picking = layer;
  for (test::TestExpert& expert : picking.experts) {
    std::fill(expert.down.codes.begin(), expert.down.codes.end(), 0);
    std::fill(expert.down.block_scale.begin(), expert.down.block_scale.end(), 0x38);
    for (std::size_t i = 0; i < 16; ++i)
      expert.down.codes[i * 8 + i / 2] = i % 2 == 0 ? 0x02 : 0x20;
  }
  return picking;
}

class CpuVariants : public ::testing::TestWithParam<const cpu::KernelTable*> {
 protected:
  void SetUp() override {
    const std::string_view missing = cpu::missing_feature(*GetParam());
    if (!missing.empty()) GTEST_SKIP() << missing;
  }

  // The two formats of w4a16; the others follow from the bits of plain C++.
  void expect_tokens_agree(std::int64_t num_tokens, bool one_expert) {
    SCOPED_TRACE(std::to_string(num_tokens) + " tokens");
    const Batch batch(num_tokens, one_expert);
    const auto run = [&](bool exact) {
      return batch.run(*GetParam(), batch.layer, ActivationMode::kW4a16, exact);
    };
    expect_rows_agree_with_the_oracle(batch, run(true), 2e-6, 2e-6);
    expect_rows_agree_with_the_oracle(batch, run(false), 1.0, 5e-4);
  }

  void expect_bits_of_plain_cpp(std::int64_t num_tokens, ActivationMode mode) {
    const Batch batch(num_tokens, false);
    const std::vector<float> want = batch.run(cpu::kPortableKernels, batch.layer, mode, false);
    const std::vector<float> got = batch.run(*GetParam(), batch.layer, mode, false);
    ASSERT_FALSE(want.empty());
    ASSERT_EQ(got.size(), want.size());
    const std::size_t at = first_difference(got, want);
    if (at == got.size()) return;
    const TestLayer picking = layer_that_shows_h(batch.layer);
    const bool same_h = batch.run(*GetParam(), picking, mode, false) ==
                        batch.run(cpu::kPortableKernels, picking, mode, false);
    ADD_FAILURE() << activation_mode_name(mode) << ", " << num_tokens << " tokens, stage "
                  << (same_h ? "gemm2" : "gemm1 or activation") << ": route " << at / kHidden
                  << " column " << at % kHidden << ": got " << got[at] << ", want " << want[at];
  }
};

TEST_P(CpuVariants, AgreeWithTheOracleAtEveryTokenCount) {
  for (const std::int64_t num_tokens : kTokenCounts)
    expect_tokens_agree(num_tokens, false);
}

TEST_P(CpuVariants, AgreeWithTheOracleWhenOneExpertGetsEverything) {
  for (const std::int64_t num_tokens : {1, 3, 17, 192})
    expect_tokens_agree(num_tokens, true);
}

// integer_kernels.h: what is rounded, and in which order, is the same everywhere.
TEST_P(CpuVariants, HaveTheBitsOfPlainCppAtEveryTokenCount) {
  for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4,
                                    ActivationMode::kW4a4Dynamic, ActivationMode::kW4a8}) {
    for (const std::int64_t num_tokens : kTokenCounts)
      expect_bits_of_plain_cpp(num_tokens, mode);
  }
}

class CpuVariantsLarge : public CpuVariants {};

TEST_P(CpuVariantsLarge, AgreeWithTheOracleInLargeBatches) {
  for (const std::int64_t num_tokens : kLargeTokenCounts)
    expect_tokens_agree(num_tokens, false);
}

TEST_P(CpuVariantsLarge, HaveTheBitsOfPlainCppInLargeBatches) {
  for (const std::int64_t num_tokens : kLargeTokenCounts)
    expect_bits_of_plain_cpp(num_tokens, ActivationMode::kW4a16);
}

std::string table_name(const ::testing::TestParamInfo<const cpu::KernelTable*>& info) {
  return std::string(info.param->name);
}

const auto kTables = cpu::list_kernel_tables();
INSTANTIATE_TEST_SUITE_P(List, CpuVariants, ::testing::ValuesIn(kTables), table_name);
INSTANTIATE_TEST_SUITE_P(List, CpuVariantsLarge, ::testing::ValuesIn(kTables), table_name);

}  // namespace
}  // namespace halfbyte
