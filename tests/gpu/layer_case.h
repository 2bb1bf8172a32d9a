// SPDX-License-Identifier: Apache-2.0
//
// A random layer and a step of it on the device, and the bounds that each stage must meet.
#ifndef HALFBYTE_TESTS_GPU_LAYER_CASE_H_
#define HALFBYTE_TESTS_GPU_LAYER_CASE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "activations.h"
#include "expert_data.h"
#include "formats/bf16.h"
#include "halfbyte/moe.h"
#include "routing.h"

namespace halfbyte::test {

struct LayerCase {
  int num_experts = 0;  // local
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  ActivationSpec activation = {};
  std::int64_t num_tokens = 0;
  int top_k = 1;
  Spread spread = Spread::kRandom;
  bool awkward = false;  // rare scales, alphas that are powers of two up to 2^20 apart
};

/// What every grouped GEMM is tried on: `expect(case)` for each distribution of few and of many
/// rows ...
template <typename Expect>
void for_each_distribution(Expect expect) {
  for (const Spread spread : {Spread::kRandom, Spread::kOneExpert, Spread::kMissing,
                              Spread::kDuplicates, Spread::kSkewed}) {
    for (const std::int64_t tokens : {1, 40, 333}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, spread " << static_cast<int>(spread));
      expect(LayerCase{.num_experts = 7,
                       .hidden_size = 512,
                       .intermediate_size = 256,
                       .num_tokens = tokens,
                       .top_k = 3,
                       .spread = spread});
    }
  }
}
/// ... for each activation and sizes that divide nothing ...
template <typename Expect>
void for_each_activation_and_tail(Expect expect) {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {528, 96}, {2880, 240}, {16, 16}, {640, 704}};
  for (const ActivationSpec& activation : kActivations) {
    for (const auto& [hidden, intermediate] : sizes) {
      SCOPED_TRACE(testing::Message() << "H " << hidden << " I " << intermediate << " activation "
                                      << static_cast<int>(activation.function));
      expect(LayerCase{.num_experts = 3,
                       .hidden_size = hidden,
                       .intermediate_size = intermediate,
                       .activation = activation,
                       .num_tokens = 70,
                       .top_k = 2,
                       .awkward = true});
    }
  }
}
/// ... and more tiles than multiprocessors.
inline LayerCase many_tiles() {
  return {.num_experts = 40,
          .hidden_size = 1024,
          .intermediate_size = 512,
          .num_tokens = 1500,
          .top_k = 2,
          .awkward = true};
}

/// Rows of bf16 or fp32 as they lie in memory.
inline std::vector<float> rows_as_f32(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / (dtype == DType::kF32 ? 4 : 2));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    if (dtype == DType::kF32) {
      std::memcpy(&values[i], bytes.data() + 4 * i, 4);
    } else {
      std::memcpy(&bits, bytes.data() + 2 * i, 2);
      values[i] = bf16_to_f32(bits);
    }
  }
  return values;
}

/// What a GEMM stage is held to: |y - o| <= (K / 16 + 1) * 2^-22 * sum |a w| (nvfp4-moe 8.3).
inline double gemm_bound(std::int64_t k, double magnitude) {
  return (static_cast<double>(k) / 16 + 1) * 0x1p-22 * magnitude;
}

/// How a stage rounds beside the order of its sums.
struct StageRounding {
  const std::vector<double>* products = nullptr;  // of each sum, absolute; null: exact products
  double h = 0x1p-8;                              // of h as it is stored, relative
};

class LayerStep {
 public:
  LayerStep(const LayerCase& c, unsigned seed) : c_(c), random_(seed) {
    const bool gated = c.activation.gated();
    gate_up =
        make_expert_matrix({{c.num_experts, gated ? 2 : 1, c.intermediate_size, c.hidden_size}},
                           c.awkward, random_, stream);
    down = make_expert_matrix({{c.num_experts, 1, c.hidden_size, c.intermediate_size}}, c.awkward,
                              random_, stream);
    const double unit = 0.5 / std::sqrt(static_cast<double>(c.hidden_size));
    alpha_gate_host = alphas(unit);
    alpha_up_host = alphas(unit);
    alpha_down_host = alphas(0.5 / std::sqrt(static_cast<double>(c.intermediate_size)));
    alpha_gate = DeviceArray<float>(alpha_gate_host, stream);
    alpha_up = DeviceArray<float>(alpha_up_host, stream);
    alpha_down = DeviceArray<float>(alpha_down_host, stream);
    x = DeviceArray<std::uint16_t>(random_tokens(), stream);
    set_routes();
  }

  device::Stream stream = device::Stream::create().value();
  ExpertMatrix gate_up, down;
  std::vector<float> alpha_gate_host, alpha_up_host, alpha_down_host;
  DeviceArray<float> alpha_gate, alpha_up, alpha_down;
  DeviceArray<std::uint16_t> x;
  HostRoutes routes;
  DeviceArray<std::int64_t> expert_offset;
  DeviceArray<std::int32_t> expert_count, route_row, route_expert;

  int num_routes() const { return static_cast<int>(routes.route_row.size()); }
  std::int64_t h_cols() const { return gate_up.layout.padded_half_rows(); }

  /// Every element of h [routes, h_cols] within its bound of the activation of the exact sums, and
  /// padding exactly zero.
  void expect_h(const DeviceArray<std::uint16_t>& h) {
    const int rows = gate_up.canonical().rows;
    const std::size_t size = routes.route_row.size() * static_cast<std::size_t>(rows);
    const DeviceArray<double> sum(size, stream);
    const DeviceArray<double> magnitude(size, stream);
    reference_gemm(gate_up.canonical(), x.data(), static_cast<int>(c_.hidden_size),
                   route_row.data(), route_expert.data(), num_routes(), sum.data(),
                   magnitude.data(), stream);
    const auto sums = sum.download();
    const auto magnitudes = magnitude.download();
    const auto got = h.download();
    int wrong = 0;
    double worst = 0;
    for (std::size_t r = 0; r < routes.route_row.size(); ++r) {
      const std::size_t base = r * static_cast<std::size_t>(rows);
      for (std::int64_t i = 0; i < h_cols(); ++i) {
        const double value =
            bf16_to_f32(got[r * static_cast<std::size_t>(h_cols()) + static_cast<std::size_t>(i)]);
        const double ratio =
            i >= c_.intermediate_size
                ? (value == 0 ? 0 : INFINITY)
                : h_error(r, base + static_cast<std::size_t>(i), sums, magnitudes, value);
        wrong += !(ratio <= 1) ? 1 : 0;
        worst = std::max(worst, ratio);
      }
    }
    EXPECT_EQ(wrong, 0) << "h: worst error over bound " << worst;
  }

  /// Rows within the bound of the exact sums over the h that the kernel itself made.
  void expect_rows(const DeviceArray<std::uint16_t>& h, const std::vector<float>& got, bool bf16) {
    const auto hidden = static_cast<std::size_t>(c_.hidden_size);
    const std::size_t size = routes.route_row.size() * hidden;
    const DeviceArray<double> sum(size, stream);
    const DeviceArray<double> magnitude(size, stream);
    reference_gemm(down.canonical(), h.data(), static_cast<int>(h_cols()), nullptr,
                   route_expert.data(), num_routes(), sum.data(), magnitude.data(), stream);
    const auto sums = sum.download();
    const auto magnitudes = magnitude.download();
    int wrong = 0;
    double worst = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const double alpha =
          alpha_down_host[static_cast<std::size_t>(routes.route_expert[i / hidden])];
      const double want = sums[i] * alpha;
      const double bound = gemm_bound(c_.intermediate_size, magnitudes[i]) * alpha +
                           std::abs(want) * (bf16 ? 0x1p-8 : 0x1p-23) + 1e-37;
      const double ratio = std::abs(static_cast<double>(got[i]) - want) / bound;
      wrong += !(ratio <= 1) ? 1 : 0;
      worst = std::max(worst, ratio);
    }
    EXPECT_EQ(wrong, 0) << "rows: worst error over bound " << worst;
  }

  /// |h - want| over its bound. The activation's derivatives are at most 1.2 * |u + beta| in g and
  /// |silu(g)| in u; then 2^-20 of the approximation and what storing h rounds.
  double h_error(std::size_t route,
                 std::size_t index,
                 const std::vector<double>& sums,
                 const std::vector<double>& magnitudes,
                 double value,
                 const StageRounding& rounding = {}) const {
    const auto e = static_cast<std::size_t>(routes.route_expert[route]);
    const bool gated = c_.activation.gated();
    const std::size_t up_index =
        gated ? index + static_cast<std::size_t>(c_.intermediate_size) : index;
    const double alpha_g = gated ? alpha_gate_host[e] : 0;
    const double alpha_u = alpha_up_host[e];
    const double g = sums[index] * alpha_g;
    const double u = sums[up_index] * alpha_u;
    const auto error = [&](std::size_t i) {
      return gemm_bound(c_.hidden_size, magnitudes[i]) +
             (rounding.products == nullptr ? 0 : (*rounding.products)[i]) +
             std::abs(sums[i]) * 0x1p-23;
    };
    const double dg = error(index) * alpha_g;
    const double du = error(up_index) * alpha_u;
    const double want = activate(g, u);
    const double in_u = gated ? std::abs(g) : 2 * std::abs(u) + du;
    const double bound = 1.2 * (std::abs(u) + std::abs(double{c_.activation.beta})) * dg +
                         in_u * du + 1.2 * dg * du +
                         std::abs(want) * (rounding.h + 0x1p-20) * 1.01 + 1e-38;
    return std::abs(value - want) / bound;
  }

 private:
  std::vector<float> alphas(double unit) {
    std::vector<float> values;
    for (int e = 0; e < c_.num_experts; ++e) {
      const int exponent = c_.awkward ? static_cast<int>(random_() % 5) - 2 : 0;
      const double far = c_.awkward && e == 1 ? 0x1p-20 : 1;
      values.push_back(static_cast<float>(unit * far * std::ldexp(1 + 0.1 * (e % 7), exponent)));
    }
    return values;
  }

  std::vector<std::uint16_t> random_tokens() {
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> tokens(static_cast<std::size_t>(c_.num_tokens * c_.hidden_size));
    for (std::uint16_t& v : tokens)
      v = f32_to_bf16(normal(random_));
    return tokens;
  }

  void set_routes() {
    const cuda::GroupRowsShape shape = {c_.num_tokens, c_.top_k, c_.num_experts, 0, c_.num_experts};
    routes = group_on_host(shape, make_ids(shape, c_.spread, random_), c_.num_tokens);
    expert_offset = DeviceArray<std::int64_t>(routes.expert_offset, stream);
    expert_count = DeviceArray<std::int32_t>(routes.expert_count, stream);
    route_row = DeviceArray<std::int32_t>(routes.route_row, stream);
    route_expert = DeviceArray<std::int32_t>(routes.route_expert, stream);
  }

  static double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }
  double activate(double g, double u) const {
    const ActivationSpec& a = c_.activation;
    if (a.function == ActivationFunction::kRelu2) return std::max(u, 0.0) * std::max(u, 0.0);
    if (a.function == ActivationFunction::kGegluTanh)
      return g * sigmoid(1.59576912 * (g + 0.044715 * g * g * g)) * u;
    if (a.function == ActivationFunction::kSwiglu) return g * sigmoid(g) * u;
    const double limit = a.limit;
    const double gate = std::min(g, limit);
    return gate * sigmoid(double{a.alpha} * gate) * (std::clamp(u, -limit, limit) + double{a.beta});
  }

  LayerCase c_;
  std::mt19937 random_;
};

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_GPU_LAYER_CASE_H_
