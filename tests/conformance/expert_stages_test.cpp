// SPDX-License-Identifier: Apache-2.0
//
// The stages of an expert one by one, on every backend of the list and every kernel table of the
// cpu backend: each is compared with the oracle run from the backend's own input to it
// (docs/numerics.md, "Hard bounds"). h is made visible by experts whose down projection picks
// columns: y is then h as GEMM2 reads it, rounded to fp32 once.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/operand_rows.h"
#include "kernels/reference/oracle.h"
#include "moe/backends/cpu.h"
#include "support/moe_case.h"

namespace halfbyte {
namespace {

using test::BackendRun;
using test::LayerShape;
using test::random_layer;
using test::random_tokens;
using test::run_routes;
using test::TestLayer;
using test::TestMatrix;
using test::TestRoutes;
using test::TestTokens;

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

/// A backend, and how it takes the activations of w4a16.
struct Variant {
  std::shared_ptr<ExpertBackend> backend;
  bool exact_float32 = false;

  std::unique_ptr<BackendRun> prepare(const TestLayer& layer,
                                      ActivationMode mode,
                                      std::int64_t capacity) const {
    return std::make_unique<BackendRun>(backend, layer, mode, capacity, 2, exact_float32);
  }
};

/// What GEMM2 of `variant` multiplies, for every route: h, or decoded codes of h times the scalar.
std::vector<float> read_h(const Variant& variant,
                          const TestLayer& layer,
                          ActivationMode mode,
                          const TestTokens& tokens,
                          const TestRoutes& routes) {
  const std::int64_t hidden = layer.spec.hidden_size;
  const std::int64_t width = layer.spec.intermediate_size;
  std::vector<float> h(routes.route_row.size() * static_cast<std::size_t>(width));
  for (std::int64_t first = 0; first < width; first += hidden) {
    TestLayer picking = layer;
    for (test::TestExpert& expert : picking.experts)
      expert.down = picking_matrix(hidden, width, first);
    const auto run = variant.prepare(picking, mode, tokens.num_tokens);
    const std::vector<float> y = run_routes(*run, tokens, routes);
    if (y.empty()) return {};
    for (std::int64_t route = 0; route < std::ssize(routes.route_row); ++route) {
      std::copy_n(y.begin() + route * hidden, std::min(hidden, width - first),
                  h.begin() + route * width + first);
    }
  }
  return h;
}

// fp32 sums of every backend: at least 8 partial sums, so no chain is longer than this; the last of
// the 12 is the rounding of h on its way through read_h.
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

std::vector<Variant> variants_of(const MoeSpec& spec, ActivationMode mode) {
  std::vector<Variant> variants;
  for (const auto& backend : list_expert_backends()) {
    if (!backend->can_use({}).ok() || !backend->can_run(spec, mode).ok()) continue;
    if (backend->name() == "cpu") continue;
    variants.push_back({backend});
  }
  for (const cpu::KernelTable* table : cpu::list_kernel_tables()) {
    if (!cpu::missing_feature(*table).empty()) continue;
    variants.push_back({make_cpu_backend_with(*table)});
    if (mode == ActivationMode::kW4a16) variants.push_back({variants.back().backend, true});
  }
  return variants;
}

template <typename Check>
void for_each_variant(const MoeSpec& spec, ActivationMode mode, const Check& check) {
  for (const Variant& variant : variants_of(spec, mode)) {
    SCOPED_TRACE(std::string(variant.backend->name()) + ", " + variant.backend->note() + ", " +
                 std::string(activation_mode_name(mode)) +
                 (variant.exact_float32 ? " float32" : ""));
    check(variant);
  }
}

// A row as the kernels multiply it: what an integer format of the cpu backend makes of it.
std::vector<double> operand_row(const std::string& format, std::span<const float> row) {
  const auto cols = std::ssize(row);
  const auto num_records = static_cast<std::size_t>(cpu::num_records(cols));
  std::vector<double> operand(row.begin(), row.end());
  if (format == "split15") {
    std::vector<cpu::Split15Record> records(num_records);
    cpu::quantize_split15(row.data(), cols, records.data());
    for (std::size_t i = 0; i < operand.size(); ++i) {
      const cpu::Split15Record& record = records[i / 64];
      operand[i] = (record.high[i % 64] * 128 + record.low[i % 64]) * 2.0 * double{record.scale};
    }
  } else if (format == "int8") {
    std::vector<cpu::Int8Record> records(num_records);
    cpu::quantize_int8(row.data(), cols, records.data());
    for (std::size_t i = 0; i < operand.size(); ++i)
      operand[i] = records[i / 64].q[i % 64] * 2.0 * double{records[i / 64].scale[i % 64 / 16]};
  }
  return operand;
}

// Half a step of the group of columns that column `col` of h shares a scale with.
double half_step(const std::string& format, std::span<const double> h, std::size_t col) {
  if (format != "split15" && format != "int8") return 0;
  const std::size_t group = format == "split15" ? 64 : 16;
  double amax = 0;
  for (std::size_t i = col / group * group; i < std::min(h.size(), (col / group + 1) * group); ++i)
    amax = std::max(amax, std::abs(h[i]));
  // The amax of the computed h is larger by its own error, and everything is rounded to fp32.
  return amax * (1 + 1e-4) / (format == "split15" ? 2 * 16256.0 : 2 * 127.0);
}

void check_h(const TestLayer& layer,
             const test::TestExpert& expert,
             const std::string& format,
             const std::vector<double>& x,
             std::span<const float> h) {
  const ActivationSpec& spec = layer.spec.activation;
  Gemm gate;
  gate.sum.resize(h.size());
  gate.bound.resize(h.size());
  if (spec.gated())
    gate = gemm_with_bound(expert.expert().gate, x, double{expert.gate.view.global_scale});
  const Gemm up = gemm_with_bound(expert.expert().up, x, double{expert.up.view.global_scale});
  std::vector<double> want(h.size());
  for (std::size_t i = 0; i < h.size(); ++i)
    want[i] = reference::oracle_activate(spec, gate.sum[i], up.sum[i]);
  for (std::size_t i = 0; i < h.size(); ++i) {
    ASSERT_LE(std::abs(double{h[i]} - want[i]),
              activation_bound(spec, gate.sum[i], up.sum[i], gate.bound[i], up.bound[i]) +
                  half_step(format, want, i))
        << "stage gemm1 + activation, column " << i << ": got " << h[i] << ", want " << want[i];
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

void check_routes(const TestLayer& layer,
                  const Variant& variant,
                  ActivationMode mode,
                  const TestTokens& tokens) {
  const TestRoutes routes(layer.spec, tokens);
  const auto hidden = static_cast<std::size_t>(layer.spec.hidden_size);
  const auto width = static_cast<std::size_t>(layer.spec.intermediate_size);
  const std::vector<float> h = read_h(variant, layer, mode, tokens, routes);
  const auto run = variant.prepare(layer, mode, tokens.num_tokens);
  const std::vector<float> y = run_routes(*run, tokens, routes);
  ASSERT_FALSE(h.empty() || y.empty());
  const std::string& format = run->plan().x_format;
  for (std::size_t route = 0; route < routes.route_row.size(); ++route) {
    const auto& expert = layer.experts[static_cast<std::size_t>(routes.route_expert[route])];
    const auto row = static_cast<std::size_t>(routes.route_row[route]);
    const std::span<const float> own{h.data() + route * width, width};
    if (format != "nvfp4" && format != "e4m3") {
      check_h(layer, expert, format,
              operand_row(format, {tokens.x_f32.data() + row * hidden, hidden}), own);
    }
    if (format == "e4m3") continue;  // folded weights: unit tests of the fold
    // s2 is a power of two: the decoded h already holds it, and alpha is the global scale.
    check_y(expert.expert().down, own, double{expert.down.view.global_scale},
            y.data() + route * hidden);
  }
}

TEST(ExpertStages, EveryElementOfEveryGemmStaysWithinTheHardBound) {
  for (const LayerShape& shape : kShapes) {
    const TestLayer layer = random_layer(shape, 81);
    const TestTokens tokens = random_tokens(layer.spec, 5, 82);
    for (const ActivationMode mode :
         {ActivationMode::kW4a16, ActivationMode::kW4a4, ActivationMode::kW4a8}) {
      for_each_variant(layer.spec, mode,
                       [&](const Variant& variant) { check_routes(layer, variant, mode, tokens); });
    }
  }
}

bool block_sums_are_exact(const test::TestExpert& expert,
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
        read_h({make_reference_backend()}, layer, ActivationMode::kW4a4, tokens, routes);
    for_each_variant(layer.spec, ActivationMode::kW4a4, [&](const Variant& variant) {
      const std::vector<float> got = read_h(variant, layer, ActivationMode::kW4a4, tokens, routes);
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
      for_each_variant(layer.spec, mode, [&](const Variant& variant) {
        const auto run = variant.prepare(layer, mode, 6);
        const std::vector<float> want = run_routes(*run, tokens, routes);
        std::vector<float> got(want.size());
        ASSERT_TRUE(run->run(payload, got).ok());
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
  test::set_rows(tokens, layer.spec, x);
  tokens.topk_idx = {0, 0, 0, 0};
  const TestRoutes routes(layer.spec, tokens);
  TestTokens last;
  test::set_rows(last, layer.spec, {x.data() + 192, 64});
  last.topk_idx = {0};
  const ActivationMode mode = ActivationMode::kW4a4Dynamic;
  for_each_variant(layer.spec, mode, [&](const Variant& variant) {
    const auto run = variant.prepare(layer, mode, 4);
    const std::vector<float> y = run_routes(*run, tokens, routes);
    const std::vector<float> alone = run_routes(*run, last, TestRoutes(layer.spec, last));
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
