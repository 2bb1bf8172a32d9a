// SPDX-License-Identifier: Apache-2.0
//
// Faults that users of other engines met in the experts, on every backend of the list.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "formats/e2m1.h"
#include "kernels/reference/oracle.h"
#include "support/moe_case.h"

namespace halfbyte {
namespace {

using test::BackendRun;
using test::LayerShape;
using test::random_layer;
using test::random_tokens;
using test::run_routes;
using test::TestLayer;
using test::TestRoutes;
using test::TestTokens;

constexpr ActivationSpec kRelu2{.function = ActivationFunction::kRelu2};

// Calls check(backend) for every backend that can run the layer.
template <typename Check>
void for_each_backend(const MoeSpec& spec, ActivationMode mode, const Check& check) {
  for (const auto& backend : list_expert_backends()) {
    if (!backend->can_use({}).ok() || !backend->can_run(spec, mode).ok()) continue;
    SCOPED_TRACE(std::string(backend->name()) + " " + std::string(activation_mode_name(mode)));
    check(backend);
  }
}

// A matrix whose every weight is `value` * global_scale: block scales 1.
test::TestMatrix constant_matrix(std::int64_t rows,
                                 std::int64_t cols,
                                 float value,
                                 float global_scale) {
  test::TestMatrix m;
  m.view.rows = rows;
  m.view.cols = cols;
  m.view.global_scale = global_scale;
  const std::uint8_t code = f32_to_e2m1(value);
  m.codes.assign(static_cast<std::size_t>(rows * cols / 2),
                 static_cast<std::uint8_t>(code | code << 4));
  m.block_scale.assign(static_cast<std::size_t>(rows * cols / 16), 0x38);
  return m;
}

// down picks h: ones on the diagonal of [H, I].
test::TestMatrix picking_matrix(std::int64_t rows, std::int64_t cols) {
  std::vector<float> w(static_cast<std::size_t>(rows * cols));
  for (std::int64_t i = 0; i < std::min(rows, cols); ++i)
    w[static_cast<std::size_t>(i * cols + i)] = 6.0F;
  test::TestMatrix m = test::store_matrix(WeightFormat::kNvfp4, rows, cols, w, 1.0F / 64.0F);
  m.view.global_scale = 1.0F / 64.0F;
  return m;
}

std::vector<float> run_one(const std::shared_ptr<ExpertBackend>& backend,
                           const TestLayer& layer,
                           ActivationMode mode,
                           const TestTokens& tokens) {
  BackendRun run(backend, layer, mode, tokens.num_tokens);
  EXPECT_TRUE(run.status().ok()) << run.status().to_string();
  return run_routes(run, tokens, TestRoutes(layer.spec, tokens));
}

// "Exact activations": every group of 16 is [6, 2, 0 x 14].
TestTokens exact_rows(const MoeSpec& spec, std::int64_t num_tokens, float factor) {
  std::vector<float> x(static_cast<std::size_t>(num_tokens * spec.hidden_size));
  for (std::size_t i = 0; i < x.size(); i += 16) {
    x[i] = 6.0F * factor;
    x[i + 1] = 2.0F * factor;
  }
  TestTokens tokens;
  test::set_rows(tokens, spec, x);
  tokens.topk_idx.assign(static_cast<std::size_t>(num_tokens * spec.top_k), 0);
  for (std::size_t i = 0; i < tokens.topk_idx.size(); ++i)
    tokens.topk_idx[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % spec.top_k);
  return tokens;
}

// Two exact alphas: gate 4, up 32 gives h = 125.6978; one scale for both halves gives 15.712 or
// 1024.
TEST(B_TwoAlphas, GateAndUpKeepTheirOwnGlobalScale) {
  const LayerShape shape{
      .hidden_size = 256, .intermediate_size = 256, .num_experts = 1, .top_k = 1};
  TestLayer layer = random_layer(shape, 1);
  layer.experts[0].gate = constant_matrix(256, 256, 1.0F, 0x1p-5F);
  layer.experts[0].up = constant_matrix(256, 256, 1.0F, 0x1p-2F);
  layer.experts[0].down = picking_matrix(256, 256);
  layer.s1 = 1.0F;
  layer.s2 = 125.6978F / 2688.0F;
  const TestTokens tokens = exact_rows(layer.spec, 1, 1.0F);
  for (const ActivationMode mode :
       {ActivationMode::kW4a16, ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
    for_each_backend(layer.spec, mode, [&](const auto& backend) {
      const std::vector<float> y = run_one(backend, layer, mode, tokens);
      ASSERT_EQ(y.size(), 256U);
      const float one = layer.experts[0].down.view.global_scale * 6.0F *
                        e4m3_to_f32(layer.experts[0].down.block_scale[0]);
      for (const float value : y)
        ASSERT_NEAR(value / one, 125.6978F, 1e-3F);
    });
  }
}

// A dead expert's tiny input scale is one value of a maximum and is never inverted.
TEST(B03, AnExpertWithATinyInputScalePoisonsNobody) {
  const LayerShape shape{.hidden_size = 256, .intermediate_size = 256, .num_experts = 4};
  for (const float tiny : {1.4e-45F, 1.18e-38F}) {
    TestLayer layer = random_layer(shape, 3);
    layer.s1 = std::max({0x1p-9F, 0x1p-10F, 0x1p-11F, tiny});
    TestTokens tokens = random_tokens(layer.spec, 5, 4);
    tokens.topk_idx = {0, 1, 1, 2, 2, 0, 0, 1, 2, 3};
    TestTokens without = tokens;
    without.topk_idx[9] = -1;
    for_each_backend(layer.spec, ActivationMode::kW4a4, [&](const auto& backend) {
      const std::vector<float> with = run_one(backend, layer, ActivationMode::kW4a4, tokens);
      const std::vector<float> rest = run_one(backend, layer, ActivationMode::kW4a4, without);
      ASSERT_EQ(with.size(), rest.size() + 256);
      for (const float value : with)
        ASSERT_TRUE(std::isfinite(value));
      EXPECT_TRUE(std::equal(rest.begin(), rest.end(), with.begin()));
    });
  }
}

// x and s both times 8: the same codes, GEMM1 exactly times 8, relu2 of degree 2 times 64.
TEST(B08, TheCalibratedActivationScaleCounts) {
  const LayerShape shape{.hidden_size = 64,
                         .intermediate_size = 64,
                         .num_experts = 1,
                         .top_k = 1,
                         .activation = kRelu2};
  TestLayer layer = random_layer(shape, 5);
  const TestTokens x = exact_rows(layer.spec, 2, 1.0F);
  const TestTokens x8 = exact_rows(layer.spec, 2, 8.0F);
  layer.s1 = 1.0F;
  layer.s2 = 0x1p-6F;
  TestLayer scaled = layer;
  scaled.s1 = 8.0F;
  scaled.s2 = layer.s2 * 64.0F;
  for_each_backend(layer.spec, ActivationMode::kW4a4, [&](const auto& backend) {
    const std::vector<float> y = run_one(backend, layer, ActivationMode::kW4a4, x);
    const std::vector<float> y64 = run_one(backend, scaled, ActivationMode::kW4a4, x8);
    ASSERT_EQ(y.size(), y64.size());
    for (std::size_t i = 0; i < y.size(); ++i)
      ASSERT_EQ(y64[i], y[i] * 64.0F) << i;
  });
}

// Of one expert's row: an alarm (docs/numerics.md 9) bounds the root mean square of a row's errors;
// of a few hundred that are independent none is five times as large (336 columns at 5 sigma: 2e-4),
// while a fault that is periodic in the columns is.
void expect_no_column_stands_out(std::span<const float> got,
                                 const std::vector<double>& want,
                                 double alarm) {
  double square_sum = 0;
  for (const double value : want)
    square_sum += value * value;
  const double rms = std::sqrt(square_sum / static_cast<double>(want.size()));
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_LE(std::abs(double{got[i]} - want[i]), 5 * alarm * rms) << "column " << i;
}

// A non-gated expert of a width that is no multiple of 128. The fault was met with I 1856 (29
// groups of 64 columns) and H 2688, of which this is an eighth.
TEST(B17, NoColumnOfAnOddWidthIsWorseThanItsNeighbours) {
  for (const ActivationSpec& activation : {kRelu2, ActivationSpec{}}) {
    for (const std::int64_t width : {1856, 96, 192}) {
      const LayerShape shape{.hidden_size = width == 1856 ? 336 : 128,
                             .intermediate_size = width,
                             .num_experts = 2,
                             .activation = activation};
      const TestLayer layer = random_layer(shape, 6);
      TestTokens tokens = random_tokens(layer.spec, 1, 7);
      tokens.topk_idx = {0, 1};
      const TestRoutes routes(layer.spec, tokens);
      for_each_backend(layer.spec, ActivationMode::kW4a16, [&](const auto& backend) {
        for (const bool exact_float32 : {true, false}) {
          BackendRun run(backend, layer, ActivationMode::kW4a16, 1, 2, exact_float32);
          const std::vector<float> y = run_routes(run, tokens, routes);
          const auto hidden = static_cast<std::size_t>(shape.hidden_size);
          ASSERT_EQ(y.size(), 2 * hidden);
          const double alarm = run.plan().x_format == "split15" ? 5e-4 : 2e-6;
          std::vector<double> want(hidden);
          for (std::size_t e = 0; e < 2; ++e) {
            reference::oracle_expert_row(layer.experts[e].expert(), activation,
                                         ActivationMode::kW4a16, layer.scalars(e),
                                         tokens.x_f32.data(), false, nullptr, want.data());
            expect_no_column_stands_out({y.data() + e * hidden, hidden}, want, alarm);
          }
        }
      });
    }
  }
}

// Counts around every tile height: neither stale scratch nor neighbours reach a row.
TEST(B19, NoTileHeightLeaksStaleRows) {
  const LayerShape shape{.hidden_size = 32, .intermediate_size = 32, .num_experts = 2, .top_k = 1};
  const TestLayer layer = random_layer(shape, 8);
  for (const std::int64_t count : {1, 5, 8, 31, 32, 33, 127, 128, 129}) {
    TestTokens tokens = random_tokens(layer.spec, count, 9);
    std::fill(tokens.topk_idx.begin(), tokens.topk_idx.end(), 1);
    const TestRoutes routes(layer.spec, tokens);
    for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4}) {
      for_each_backend(layer.spec, mode, [&](const auto& backend) {
        BackendRun run(backend, layer, mode, count);
        run.fill_workspace(0xFF);
        const std::vector<float> a = run_routes(run, tokens, routes);
        run.fill_workspace(0x00);
        const std::vector<float> b = run_routes(run, tokens, routes);
        EXPECT_EQ(a, b) << count;  // also false when a value is NaN
        EXPECT_EQ(a.size(), static_cast<std::size_t>(count * 32));
      });
    }
  }
}

// Bucketed tokens: rows at or past an expert's count are neither read nor written.
TEST(B22, RowsPastACountAreNeitherReadNorWritten) {
  const LayerShape shape{.hidden_size = 32, .intermediate_size = 32, .num_experts = 4};
  const TestLayer layer = random_layer(shape, 10);
  constexpr std::int64_t kSlots = 8;
  for (const auto& counts : {std::vector<std::int32_t>{0, 5, 0, 3}, {8, 0, 0, 0}, {0, 0, 0, 8}}) {
    TestTokens tokens = random_tokens(layer.spec, 4 * kSlots, 11);
    std::vector<float> x = tokens.x_f32;
    for (std::int64_t row = 0; row < 4 * kSlots; ++row) {
      if (row % kSlots < counts[static_cast<std::size_t>(row / kSlots)]) continue;
      std::fill_n(x.begin() + row * 32, 32, std::numeric_limits<float>::quiet_NaN());
    }
    test::set_rows(tokens, layer.spec, x);
    const std::vector<std::int64_t> offsets = {0, kSlots, 2 * kSlots, 3 * kSlots, 4 * kSlots};
    DispatchedTokens bucketed;
    bucketed.x = {tokens.x.data(), layer.spec.x_dtype, 4 * kSlots, 32};
    bucketed.num_rows = 4 * kSlots;
    bucketed.expert_offset = offsets.data();
    bucketed.expert_count = counts.data();
    for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4Dynamic}) {
      for_each_backend(layer.spec, mode, [&](const auto& backend) {
        BackendRun run(backend, layer, mode, 5);  // a capacity below the buckets: chunks
        std::vector<float> rows(4 * kSlots * 32, 77.0F);
        const Status status = run.run(bucketed, rows);
        ASSERT_TRUE(status.ok()) << status.to_string();
        for (std::size_t i = 0; i < rows.size(); ++i) {
          const std::size_t row = i / 32;
          const bool valid = static_cast<std::int32_t>(row % kSlots) < counts[row / kSlots];
          ASSERT_TRUE(valid ? std::isfinite(rows[i]) && rows[i] != 77.0F : rows[i] == 77.0F)
              << "row " << row << " column " << i % 32;
        }
      });
    }
  }
}

// gate 2, up -3 everywhere: silu(2) * -3 = -5.28478; swapped operands give -0.28456.
TEST(B23, GateAndUpAreNotSwappedAtAnyBatchSize) {
  const LayerShape shape{.hidden_size = 16, .intermediate_size = 16, .num_experts = 2, .top_k = 2};
  TestLayer layer = random_layer(shape, 12);
  for (test::TestExpert& expert : layer.experts) {
    expert.gate = constant_matrix(16, 16, 2.0F, 0x1p-3F);  // exact rows sum to 8
    expert.up = constant_matrix(16, 16, -3.0F, 0x1p-3F);
    expert.down = picking_matrix(16, 16);
  }
  layer.s1 = 1.0F;
  const float one = 6.0F / 64.0F * e4m3_to_f32(layer.experts[0].down.block_scale[0]);
  for (const std::int64_t num_tokens : {1, 2, 3, 4, 5, 64}) {
    const TestTokens tokens = exact_rows(layer.spec, num_tokens, 1.0F);
    for_each_backend(layer.spec, ActivationMode::kW4a16, [&](const auto& backend) {
      const std::vector<float> y = run_one(backend, layer, ActivationMode::kW4a16, tokens);
      ASSERT_EQ(y.size(), static_cast<std::size_t>(num_tokens * 2 * 16));
      for (const float value : y)
        ASSERT_NEAR(value / one, -5.28478F, 1e-5F);
    });
  }
}

// relu2: -3 gives 0, +3 gives 9, and a gate tensor is refused.
TEST(B27, SquaredReluNeedsNoGateAndRefusesOne) {
  const LayerShape shape{
      .hidden_size = 128, .intermediate_size = 192, .num_experts = 4, .activation = kRelu2};
  TestLayer layer = random_layer(shape, 13);
  for (std::size_t e = 0; e < 4; ++e) {
    layer.experts[e].up =
        constant_matrix(192, 128, e == 0 ? 3.0F : -3.0F, 0x1p-6F);  // rows sum to 64
    layer.experts[e].down = picking_matrix(128, 192);
  }
  const TestTokens tokens = exact_rows(layer.spec, 1, 1.0F);
  for_each_backend(layer.spec, ActivationMode::kW4a16, [&](const auto& backend) {
    const std::vector<float> y = run_one(backend, layer, ActivationMode::kW4a16, tokens);
    ASSERT_EQ(y.size(), 256U);
    const float one = 6.0F / 64.0F * e4m3_to_f32(layer.experts[0].down.block_scale[0]);
    for (std::size_t i = 0; i < 128; ++i) {
      ASSERT_EQ(y[i] / one, 9.0F) << i;
      ASSERT_EQ(y[128 + i], 0.0F) << i;
    }
    BackendRun run(backend, layer, ActivationMode::kW4a16, 1);
    TestLayer with_gate = layer;
    with_gate.experts[0].gate = with_gate.experts[0].up;
    EXPECT_EQ(run.load(with_gate).code(), StatusCode::kInvalidArgument);
  });
}

// Numbers of local experts that divide nothing; tokens on the first and the last.
TEST(B44, AnyNumberOfLocalExpertsWorks) {
  for (const std::int64_t num_experts : {1, 3, 15, 17, 33, 36}) {
    const LayerShape shape{
        .hidden_size = 32, .intermediate_size = 16, .num_experts = num_experts, .top_k = 1};
    const TestLayer layer = random_layer(shape, 14);
    TestTokens tokens = random_tokens(layer.spec, 2, 15);
    tokens.topk_idx = {0, static_cast<std::int32_t>(num_experts - 1)};
    for_each_backend(layer.spec, ActivationMode::kW4a16, [&](const auto& backend) {
      const std::vector<float> y = run_one(backend, layer, ActivationMode::kW4a16, tokens);
      ASSERT_EQ(y.size(), 64U);
      std::vector<double> want(32);
      for (std::size_t t = 0; t < 2; ++t) {
        const auto e = static_cast<std::size_t>(tokens.topk_idx[t]);
        reference::oracle_expert_row(layer.experts[e].expert(), layer.spec.activation,
                                     ActivationMode::kW4a16, layer.scalars(e),
                                     tokens.x_f32.data() + t * 32, false, nullptr, want.data());
        EXPECT_LE(reference::rel_l2({y.data() + t * 32, 32}, want), 2e-6) << num_experts;
      }
    });
  }
}

// The same 8 tokens alone and as the first 8 of every larger batch: equal bits are promised.
TEST(B52, TheErrorDoesNotDependOnTheBatch) {
  const LayerShape shape{.hidden_size = 48, .intermediate_size = 32, .num_experts = 1, .top_k = 1};
  const TestLayer layer = random_layer(shape, 16);
  TestTokens all = random_tokens(layer.spec, 64, 17);
  for_each_backend(layer.spec, ActivationMode::kW4a16, [&](const auto& backend) {
    BackendRun run(backend, layer, ActivationMode::kW4a16, 64);
    std::vector<float> full;
    for (std::int64_t num_tokens = 64; num_tokens >= 1; --num_tokens) {
      TestTokens some;
      test::set_rows(some, layer.spec,
                     {all.x_f32.data(), static_cast<std::size_t>(num_tokens * 48)});
      some.topk_idx.assign(static_cast<std::size_t>(num_tokens), 0);
      const std::vector<float> y = run_routes(run, some, TestRoutes(layer.spec, some));
      ASSERT_EQ(y.size(), static_cast<std::size_t>(num_tokens * 48));
      if (full.empty()) full = y;
      ASSERT_TRUE(std::equal(y.begin(), y.end(), full.begin())) << num_tokens;
    }
  });
}

// A batch planned for 8 with 5 valid rows: the rows without a route hold NaN and reach nobody.
TEST(B56, PaddingRowsWithNanReachNobody) {
  const LayerShape shape{.hidden_size = 32, .intermediate_size = 32, .num_experts = 4};
  const TestLayer layer = random_layer(shape, 18);
  TestTokens five = random_tokens(layer.spec, 5, 19);
  std::vector<float> x = five.x_f32;
  x.resize(8 * 32, std::numeric_limits<float>::quiet_NaN());
  TestTokens eight;
  test::set_rows(eight, layer.spec, x);
  eight.topk_idx = five.topk_idx;
  eight.topk_idx.resize(16, -1);
  for (const ActivationMode mode :
       {ActivationMode::kW4a16, ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
    for_each_backend(layer.spec, mode, [&](const auto& backend) {
      BackendRun run(backend, layer, mode, 8);
      const std::vector<float> padded = run_routes(run, eight, TestRoutes(layer.spec, eight));
      const std::vector<float> plain = run_routes(run, five, TestRoutes(layer.spec, five));
      EXPECT_FALSE(plain.empty());
      EXPECT_EQ(padded, plain);
    });
  }
}

}  // namespace
}  // namespace halfbyte
