// SPDX-License-Identifier: Apache-2.0
//
// The stages of an expert one by one, on every backend of the list: each is compared with the
// oracle run from the backend's own input to it (docs/numerics.md, "Hard bounds"). h is made
// visible by experts whose down projection picks columns: y is then h, exactly.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/reference/oracle.h"
#include "support/moe_case.h"

namespace halfbyte {
namespace {

using testing::BackendRun;
using testing::LayerShape;
using testing::random_layer;
using testing::random_tokens;
using testing::run_routes;
using testing::TestLayer;
using testing::TestMatrix;
using testing::TestRoutes;
using testing::TestTokens;

const LayerShape kShapes[] = {
    {.hidden_size = 144, .intermediate_size = 96, .num_experts = 3},
    {.hidden_size = 96,
     .intermediate_size = 352,
     .num_experts = 2,
     .activation = {.function = ActivationFunction::kRelu2}},
    {.hidden_size = 64,
     .intermediate_size = 128,
     .num_experts = 2,
     .activation = {.function = ActivationFunction::kSwigluClamped,
                    .alpha = 1.702F,
                    .beta = 1.0F,
                    .limit = 1.0F}},
};

// [H, I] with a weight of exactly 1 where column = first + row.
TestMatrix picking_matrix(std::int64_t rows, std::int64_t cols, std::int64_t first) {
  TestMatrix m;
  m.view.rows = rows;
  m.view.cols = cols;
  m.codes.assign(static_cast<std::size_t>(rows * cols / 2), 0);
  m.block_scale.assign(static_cast<std::size_t>(rows * cols / 16), 0x38);
  for (std::int64_t row = 0; row < rows && first + row < cols; ++row) {
    const std::int64_t at = row * cols + first + row;
    m.codes[static_cast<std::size_t>(at / 2)] = at % 2 == 0 ? 0x02 : 0x20;
  }
  return m;
}

/// What GEMM2 of `backend` multiplies, for every route: h, or decoded codes of h times the scalar.
std::vector<float> read_h(const std::shared_ptr<ExpertBackend>& backend,
                          const TestLayer& layer,
                          ActivationMode mode,
                          const TestTokens& tokens,
                          const TestRoutes& routes) {
  const std::int64_t hidden = layer.spec.hidden_size;
  const std::int64_t width = layer.spec.intermediate_size;
  std::vector<float> h(routes.route_row.size() * static_cast<std::size_t>(width));
  for (std::int64_t first = 0; first < width; first += hidden) {
    TestLayer picking = layer;
    for (testing::TestExpert& expert : picking.experts)
      expert.down = picking_matrix(hidden, width, first);
    BackendRun run(backend, picking, mode, tokens.num_tokens);
    const std::vector<float> y = run_routes(run, tokens, routes);
    if (y.empty()) return {};
    for (std::int64_t route = 0; route < std::ssize(routes.route_row); ++route) {
      std::copy_n(y.begin() + route * hidden, std::min(hidden, width - first),
                  h.begin() + route * width + first);
    }
  }
  return h;
}

// fp32 sums of every backend: at least 8 partial sums, so no chain is longer than this.
std::int64_t longest_chain(std::int64_t cols) {
  return cols / 8 + 12;
}

struct Gemm {
  std::vector<double> sum, bound;
};

Gemm gemm_with_bound(const CanonicalMatrix& matrix, const std::vector<double>& x, double alpha) {
  Gemm result;
  const auto rows = static_cast<std::size_t>(matrix.rows);
  std::vector<double> magnitude(rows);
  result.sum.resize(rows);
  reference::oracle_gemm_row(matrix, x.data(), alpha, result.sum.data(), magnitude.data());
  for (const double value : magnitude)
    result.bound.push_back(reference::fp32_gemm_bound(value, longest_chain(matrix.cols)));
  return result;
}

// How far h may move when g and u move by their bounds: |(z sig(alpha z))'| <= 1.1 for every alpha,
// clamps do not expand, relu2 has the slope 2 u; plus the roundings of the function itself.
double activation_bound(
    const ActivationSpec& spec, double g, double u, double g_bound, double u_bound) {
  const double h = std::abs(reference::oracle_activate(spec, g, u));
  if (spec.function == ActivationFunction::kRelu2)
    return 2 * std::abs(u) * u_bound + u_bound * u_bound + 0x1p-23 * h;
  const double other = std::abs(u) + static_cast<double>(std::abs(spec.beta)) + u_bound;
  const double argument = std::abs(static_cast<double>(spec.alpha) * g);
  return 1.1 * g_bound * other + (std::abs(g) + g_bound) * u_bound +
         (8 + argument) * 0x1p-24 * (h + std::abs(g) * 0x1p-1);
}

template <typename Check>
void for_each_backend(const MoeSpec& spec, ActivationMode mode, const Check& check) {
  for (const auto& backend : list_expert_backends()) {
    if (!backend->can_use({}).ok() || !backend->can_run(spec, mode).ok()) continue;
    SCOPED_TRACE(std::string(backend->name()) + " " + std::string(activation_mode_name(mode)));
    check(backend);
  }
}

void check_h(const TestLayer& layer,
             const testing::TestExpert& expert,
             const std::vector<double>& x,
             std::span<const float> h) {
  const ActivationSpec& spec = layer.spec.activation;
  Gemm gate;
  gate.sum.resize(h.size());
  gate.bound.resize(h.size());
  if (spec.gated())
    gate = gemm_with_bound(expert.expert().gate, x, double{expert.gate.view.global_scale});
  const Gemm up = gemm_with_bound(expert.expert().up, x, double{expert.up.view.global_scale});
  for (std::size_t i = 0; i < h.size(); ++i) {
    const double want = reference::oracle_activate(spec, gate.sum[i], up.sum[i]);
    ASSERT_LE(std::abs(double{h[i]} - want),
              activation_bound(spec, gate.sum[i], up.sum[i], gate.bound[i], up.bound[i]))
        << "stage gemm1 + activation, column " << i << ": got " << h[i] << ", want " << want;
  }
}

// A row of y from the backend's own h. `alpha` multiplies what GEMM2 summed.
void check_y(const CanonicalMatrix& down, std::span<const float> h, double alpha, const float* y) {
  const std::vector<double> operand(h.begin(), h.end());
  const Gemm want = gemm_with_bound(down, operand, alpha);
  for (std::size_t i = 0; i < want.sum.size(); ++i) {
    ASSERT_LE(std::abs(double{y[i]} - want.sum[i]), want.bound[i])
        << "stage gemm2, column " << i << ": got " << y[i] << ", want " << want.sum[i];
  }
}

TEST(ExpertStages, EveryElementOfEveryGemmStaysWithinTheHardBound) {
  for (const LayerShape& shape : kShapes) {
    const TestLayer layer = random_layer(shape, 81);
    const TestTokens tokens = random_tokens(layer.spec, 5, 82);
    const TestRoutes routes(layer.spec, tokens);
    const auto hidden = static_cast<std::size_t>(shape.hidden_size);
    const auto width = static_cast<std::size_t>(shape.intermediate_size);
    for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4}) {
      for_each_backend(layer.spec, mode, [&](const auto& backend) {
        const std::vector<float> h = read_h(backend, layer, mode, tokens, routes);
        BackendRun run(backend, layer, mode, 5);
        const std::vector<float> y = run_routes(run, tokens, routes);
        ASSERT_FALSE(h.empty() || y.empty());
        for (std::size_t route = 0; route < routes.route_row.size(); ++route) {
          const auto& expert = layer.experts[static_cast<std::size_t>(routes.route_expert[route])];
          const auto row = static_cast<std::size_t>(routes.route_row[route]);
          const std::span<const float> own{h.data() + route * width, width};
          if (mode == ActivationMode::kW4a16) {
            const auto begin = tokens.x_f32.begin() + static_cast<std::ptrdiff_t>(row * hidden);
            check_h(layer, expert, {begin, begin + static_cast<std::ptrdiff_t>(hidden)}, own);
          }
          // s2 is a power of two: the decoded h already holds it, and alpha is the global scale.
          check_y(expert.expert().down, own, double{expert.down.view.global_scale},
                  y.data() + route * hidden);
        }
      });
    }
  }
}

bool block_sums_are_exact(const testing::TestExpert& expert,
                          const std::uint8_t* codes,
                          const std::uint8_t* scales,
                          std::int64_t block) {
  for (const TestMatrix* matrix : {&expert.gate, &expert.up}) {
    if (matrix->view.rows == 0) continue;
    const std::int64_t cols = matrix->view.cols;
    for (std::int64_t row = block * 16; row < block * 16 + 16; ++row) {
      if (!reference::fp32_sums_are_exact(codes, scales, matrix->codes.data() + row * cols / 2,
                                          matrix->block_scale.data() + row * cols / 16, cols))
        return false;
    }
  }
  return true;
}

// docs/numerics.md, codes of h: blocks whose GEMM1 sums are exact in fp32 have the reference's
// codes and scales; of the others at most 1e-4 may differ.
TEST(ExpertStages, CodesOfHAreTheReferencesWhereSumsAreExact) {
  for (const LayerShape& shape : kShapes) {
    const TestLayer layer = random_layer(shape, 91);
    const TestTokens tokens = random_tokens(layer.spec, 6, 92);
    const TestRoutes routes(layer.spec, tokens);
    const std::int64_t hidden = shape.hidden_size;
    const std::int64_t num_blocks = shape.intermediate_size / 16;
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(hidden / 2));
    std::vector<std::uint8_t> scales(static_cast<std::size_t>(hidden / 16));
    const std::vector<float> want =
        read_h(make_reference_backend(), layer, ActivationMode::kW4a4, tokens, routes);
    for_each_backend(layer.spec, ActivationMode::kW4a4, [&](const auto& backend) {
      const std::vector<float> got = read_h(backend, layer, ActivationMode::kW4a4, tokens, routes);
      ASSERT_EQ(got.size(), want.size());
      std::int64_t num_exact = 0;
      std::int64_t num_different = 0;
      for (std::size_t route = 0; route < routes.route_row.size(); ++route) {
        quantize_activations(tokens.x_f32.data() + routes.route_row[route] * hidden, 1, hidden,
                             layer.s1, codes.data(), scales.data());
        const auto& expert = layer.experts[static_cast<std::size_t>(routes.route_expert[route])];
        for (std::int64_t block = 0; block < num_blocks; ++block) {
          const std::size_t at =
              (route * static_cast<std::size_t>(num_blocks) + static_cast<std::size_t>(block)) * 16;
          const bool equal = std::equal(got.begin() + static_cast<std::ptrdiff_t>(at),
                                        got.begin() + static_cast<std::ptrdiff_t>(at + 16),
                                        want.begin() + static_cast<std::ptrdiff_t>(at));
          if (!block_sums_are_exact(expert, codes.data(), scales.data(), block)) {
            num_different += equal ? 0 : 1;
            continue;
          }
          ++num_exact;
          EXPECT_TRUE(equal) << "route " << route << " block " << block;
        }
      }
      EXPECT_GT(num_exact, 0);
      EXPECT_LE(num_different, 1);
    });
  }
}

// A payload that was quantised by the sender gives the bits of x as given.
TEST(ExpertStages, AnNvfp4PayloadEqualsTheSameXAsGiven) {
  for (const LayerShape& shape : kShapes) {
    const TestLayer layer = random_layer(shape, 101);
    const TestTokens tokens = random_tokens(layer.spec, 6, 102);
    const TestRoutes routes(layer.spec, tokens);
    const std::int64_t hidden = shape.hidden_size;
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(6 * hidden / 2));
    std::vector<std::uint8_t> scales(static_cast<std::size_t>(6 * hidden / 16));
    for (const ActivationMode mode : {ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
      std::vector<float> row_scale(6, layer.s1);
      for (std::int64_t row = 0; row < 6; ++row) {
        const float* x = tokens.x_f32.data() + row * hidden;
        float& s = row_scale[static_cast<std::size_t>(row)];
        if (mode == ActivationMode::kW4a4Dynamic) s = dynamic_row_scale(x, hidden);
        quantize_activations(x, 1, hidden, s, codes.data() + row * hidden / 2,
                             scales.data() + row * hidden / 16);
      }
      DispatchedTokens payload = routes.dispatched(layer.spec, tokens);
      payload.x.data = nullptr;
      payload.x_codes = codes.data();
      payload.x_block_scale = scales.data();
      payload.x_row_scale = mode == ActivationMode::kW4a4Dynamic ? row_scale.data() : nullptr;
      for_each_backend(layer.spec, mode, [&](const auto& backend) {
        BackendRun run(backend, layer, mode, 6);
        const std::vector<float> want = run_routes(run, tokens, routes);
        std::vector<float> got(want.size());
        ASSERT_TRUE(run.run(payload, got).ok());
        EXPECT_EQ(got, want);
      });
    }
  }
}

// w4a4_dynamic: a row that is zero, or below 2^-100, contributes exactly 0; a NaN stays in its row.
TEST(ExpertStages, DynamicRowsOfZeroAreZeroAndANanStaysInItsRow) {
  const TestLayer layer =
      random_layer({.hidden_size = 64, .intermediate_size = 32, .num_experts = 1, .top_k = 1}, 111);
  TestTokens tokens = random_tokens(layer.spec, 4, 112);
  std::vector<float> x = tokens.x_f32;
  std::fill_n(x.begin(), 64, 0.0F);
  std::fill_n(x.begin() + 64, 64, 0x1p-101F);
  x[128 + 5] = std::numeric_limits<float>::quiet_NaN();
  testing::set_rows(tokens, layer.spec, x);
  tokens.topk_idx = {0, 0, 0, 0};
  const TestRoutes routes(layer.spec, tokens);
  TestTokens last;
  testing::set_rows(last, layer.spec, {x.data() + 192, 64});
  last.topk_idx = {0};
  const ActivationMode mode = ActivationMode::kW4a4Dynamic;
  for_each_backend(layer.spec, mode, [&](const auto& backend) {
    BackendRun run(backend, layer, mode, 4);
    const std::vector<float> y = run_routes(run, tokens, routes);
    const std::vector<float> alone = run_routes(run, last, TestRoutes(layer.spec, last));
    ASSERT_EQ(y.size(), 256U);
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(y[i], 0.0F);
      EXPECT_EQ(y[64 + i], 0.0F);
      EXPECT_TRUE(std::isnan(y[128 + i]));
      EXPECT_EQ(y[192 + i], alone[i]);
    }
  });
}

}  // namespace
}  // namespace halfbyte
