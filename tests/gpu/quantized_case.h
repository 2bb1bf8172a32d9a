// SPDX-License-Identifier: Apache-2.0
//
// A step whose x lies on the NVFP4 grid, and the h that the kernels of mode w4a4 must make of it.
#ifndef HALFBYTE_TESTS_GPU_QUANTIZED_CASE_H_
#define HALFBYTE_TESTS_GPU_QUANTIZED_CASE_H_

#include <algorithm>
#include <cmath>
#include <vector>

#include "grid_on_host.h"
#include "kernels/cuda/common/nvfp4_quantize.h"
#include "kernels/reference/activation.h"
#include "layer_case.h"

namespace halfbyte::test {

class QuantizedStep : public LayerStep {
 public:
  static constexpr float kScaleX = 0x1p-9F;  // amax / 2688 of normal rows
  static constexpr float kScaleH = 0x1p-4F;  // no h is so large that its block scale saturates
  DeviceArray<cuda::QuantizeScale> h_scale;  // of kScaleH

  QuantizedStep(const LayerCase& c, unsigned seed)
      : LayerStep(c, seed), h_scale({cuda::make_quantize_scale(kScaleH)}, stream), case_(c) {
    put_x_on_grid();
    for (std::size_t e = 0; e < alpha_up_host.size(); ++e) {
      alpha_gate_host[e] *= kScaleX;
      alpha_up_host[e] *= kScaleX;
      alpha_down_host[e] *= kScaleH;
    }
    alpha_gate.upload(alpha_gate_host);
    alpha_up.upload(alpha_up_host);
    alpha_down.upload(alpha_down_host);
  }

  /// nvfp4-moe 8.4: where the sums of a block of 16 features are exact, the bits of the reference;
  /// elsewhere within the rounding to the grid. Padding is zero. At least `min_exact` of the blocks
  /// are of the first kind.
  void expect_grid_h(const std::vector<std::uint16_t>& h, double min_exact) {
    sum_gate_up();
    std::int64_t exact = 0;
    std::int64_t wrong = 0;
    const std::int64_t blocks = case_.intermediate_size / 16;
    for (std::int64_t route = 0; route < num_routes(); ++route) {
      const std::uint16_t* const row = h.data() + route * h_cols();
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::vector<float> want = exact_block(route, block);
        const std::span<const std::uint16_t> got(row + block * 16, 16);
        const bool sums_are_exact = is_exact(route, block);
        exact += sums_are_exact ? 1 : 0;
        wrong += sums_are_exact ? count_different(got, grid_row(want, kScaleH).values)
                                : count_far(got, want);
      }
      wrong += (h_cols() - blocks * 16) - std::count(row + blocks * 16, row + h_cols(), 0);
    }
    EXPECT_EQ(wrong, 0) << "of h, " << exact << " blocks with exact sums";
    EXPECT_GE(static_cast<double>(exact), min_exact * static_cast<double>(num_routes() * blocks));
  }

 private:
  void put_x_on_grid() {
    std::vector<std::uint16_t> rows = x.download();
    const auto hidden = static_cast<std::size_t>(case_.hidden_size);
    for (std::size_t first = 0; first < rows.size(); first += hidden) {
      const GridRow grid = grid_row(widened(std::span(rows).subspan(first, hidden)), kScaleX);
      std::copy(grid.values.begin(), grid.values.end(),
                rows.begin() + static_cast<std::ptrdiff_t>(first));
      std::uint8_t smallest = 0x7E;
      for (const std::uint8_t byte : grid.block_scales)
        smallest = byte == 0 ? smallest : std::min(smallest, byte);
      row_lsb_.push_back(lsb(smallest));
    }
    x.upload(rows);
  }

  // Of the smallest product of a block scale and a code.
  static double lsb(std::uint8_t byte) { return std::ldexp(1.0, std::max(byte >> 3, 1) - 10); }

  void sum_gate_up() {
    const auto size = static_cast<std::size_t>(std::int64_t{num_routes()} * rows());
    const DeviceArray<double> sum(size, stream), magnitude(size, stream);
    reference_gemm(gate_up.canonical(), x.data(), static_cast<int>(case_.hidden_size),
                   route_row.data(), route_expert.data(), num_routes(), sum.data(),
                   magnitude.data(), stream);
    sums_ = sum.download();
    magnitudes_ = magnitude.download();
  }
  std::int64_t rows() const { return gate_up.canonical().rows; }
  /// Index of the sum of a feature: of the gate, or of the only half.
  std::size_t at(std::int64_t route, std::int64_t feature) const {
    return static_cast<std::size_t>(route * rows() + feature);
  }

  std::vector<float> exact_block(std::int64_t route, std::int64_t block) const {
    const auto e = static_cast<std::size_t>(routes.route_expert[static_cast<std::size_t>(route)]);
    const bool gated = case_.activation.gated();
    const std::int64_t up = gated ? case_.intermediate_size : 0;
    std::vector<float> h;
    for (std::int64_t i = block * 16; i < block * 16 + 16; ++i) {
      const auto gate_sum = static_cast<float>(sums_[at(route, i)]);
      const auto up_sum = static_cast<float>(sums_[at(route, up + i)]);
      h.push_back(reference::activate(case_.activation,
                                      gated ? gate_sum * alpha_gate_host[e] : 0.0F,
                                      up_sum * alpha_up_host[e]));
    }
    return h;
  }

  // Weights have block scales from byte 24 on (make_expert_matrix).
  bool is_exact(std::int64_t route, std::int64_t block) const {
    const auto token = static_cast<std::size_t>(routes.route_row[static_cast<std::size_t>(route)]);
    const double limit = 0x1p24 * row_lsb_[token] * lsb(24) / 4;
    bool exact = !case_.awkward;
    for (std::int64_t half = 0; half < rows(); half += case_.intermediate_size) {
      for (std::int64_t i = 0; i < 16; ++i)
        exact = exact && magnitudes_[at(route, half + block * 16 + i)] <= limit;
    }
    return exact;
  }

  // Half of E2M1's widest gap is a sixth of the largest number; its scale rounds by a sixteenth.
  static std::int64_t count_far(std::span<const std::uint16_t> got,
                                const std::vector<float>& want) {
    float amax = 0;
    for (const float value : want)
      amax = std::max(amax, std::fabs(value));
    const double bound = 0.2 * static_cast<double>(amax / kScaleH) + 0x1p-9;
    std::int64_t far = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double error = static_cast<double>(bf16_to_f32(got[i])) -
                           static_cast<double>(want[i]) / static_cast<double>(kScaleH);
      far += std::abs(error) <= bound ? 0 : 1;
    }
    return far;
  }

  LayerCase case_;
  std::vector<double> row_lsb_;  // of each token
  std::vector<double> sums_, magnitudes_;
};

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_GPU_QUANTIZED_CASE_H_
