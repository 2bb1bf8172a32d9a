// SPDX-License-Identifier: Apache-2.0
//
// A MoE layer as moe_layer_bench times it: its memory on the device, and what a step launches. bf16
// in and out, without the router.
#ifndef HALFBYTE_BENCHMARKS_GPU_BENCH_LAYER_H_
#define HALFBYTE_BENCHMARKS_GPU_BENCH_LAYER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "device/properties.h"
#include "halfbyte/moe.h"
#include "kernels/cuda/common/combine_rows.h"
#include "kernels/cuda/common/group_rows.h"
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"
#include "kernels/cuda/sm90/grouped_gemm_fp8_nvfp4.h"
#include "kernels/cuda/sm90/moe_decode_nvfp4.h"

namespace halfbyte::bench {

using device::DeviceBuffer;

struct Case {
  std::string name;
  std::int64_t num_tokens = 0;
  int num_experts = 0, num_local = 0, top_k = 8;
  std::int64_t hidden_size = 0, intermediate_size = 0;
  double best_public_us = 0, target_us = 0;
  bool even = false;
  ActivationMode mode = ActivationMode::kW4a16;

  bool fp8() const { return mode == ActivationMode::kW4a8; }
  /// To NVFP4.
  bool quantized() const { return mode != ActivationMode::kW4a16 && !fp8(); }
  bool dynamic() const { return mode == ActivationMode::kW4a4Dynamic; }
};

struct Weights {
  int num_local = 0;
  std::int64_t hidden_size = 0, intermediate_size = 0;
  std::vector<DeviceBuffer> gate_up, down;                // rotating copies
  std::vector<DeviceBuffer> gate_up_factor, down_factor;  // of their rows, in w4a8
  DeviceBuffer alpha;                                     // [3, num_local]
};
Result<Weights> make_weights(const Case& c, int copies, const device::Stream& stream);

struct Step {
  DeviceBuffer ids;
  std::int64_t routes = 0;
  std::int64_t experts = 0;
};

/// Buffers of a layer, and its launches.
class Layer {
 public:
  static Result<Layer> create(const Case& c, std::int64_t max_routes, const device::Stream& stream);
  Status enqueue(const Weights& weights,
                 const Step& step,
                 int copy,
                 const sm90::MoeDecodeConfig& config,
                 const device::Stream& stream) const;
  Status enqueue_prefill(const Weights& weights,
                         const Step& step,
                         int copy,
                         int tile_tokens,
                         const device::Properties& properties,
                         const device::Stream& stream) const;
  sm90::GroupedGemmShape gate_up(double rows_per_expert) const;
  sm90::GroupedGemmShape down() const;
  sm90::GroupedGemmFp8Shape fp8_gate_up(double rows_per_expert) const;
  sm90::GroupedGemmFp8Shape fp8_down() const;
  /// What a plan would choose.
  int chosen_tile_tokens(double rows_per_expert, const device::Properties& properties) const;
  /// Tokens of a tile that both products are compiled for.
  std::span<const int> tile_tokens() const;
  Status group(const Step& step, const device::Stream& stream) const;
  /// x to the NVFP4 grid, in the modes that quantise; in w4a8 to rows of E4M3, which decode reads.
  Status quantize(const device::Stream& stream) const;
  /// Token tiles of x, in bf16 or, in w4a8, in E4M3.
  Status gather(int tile_tokens, const device::Stream& stream) const;
  /// Sums to tiles of h, in w4a4_dynamic, and h in fp32 to tiles in w4a8.
  Status activate(const Weights& weights, int tile_tokens, const device::Stream& stream) const;
  /// Bytes of the token tiles of this step's routes, for the width that needs most.
  std::size_t tile_bytes(std::int64_t cols) const;
  Status gemm(bool second,
              const Weights& weights,
              int copy,
              int tile_tokens,
              const device::Properties& properties,
              const device::Stream& stream) const;
  Status combine(const Step& step, const device::Stream& stream) const;
  sm90::MoeDecodeShape decode;

 private:
  const void* x() const { return (c_.quantized() || c_.fp8() ? x_grid_ : x_).data(); }
  const cuda::QuantizeScale* h_scale() const {
    return c_.quantized() ? quantize_.as<cuda::QuantizeScale>() + 1 : nullptr;
  }
  Status allocate_quantized(const device::Stream& stream);
  Status quantize_to_fp8(bool h, int tile_tokens, const device::Stream& stream) const;
  Status fp8_gemm(bool second,
                  const Weights& weights,
                  std::size_t copy,
                  int tile_tokens,
                  const device::Properties& properties,
                  const device::Stream& stream) const;

  Case c_;
  std::int64_t max_routes_ = 0;  // of the steps; a plan would take num_tokens * top_k
  cuda::GroupRowsShape group_;
  cuda::CombineRowsShape combine_;
  DeviceBuffer x_, x_tiles_, h_tiles_, y_, h_, rows_, weights_, offset_, count_, route_row_,
      slot_route_, workspace_, counters_;
  DeviceBuffer x_grid_, x_row_scale_, quantize_, sums_, row_alpha_;  // of the w4a4 modes
  DeviceBuffer x_scales_, h_scales_;  // in w4a8, which has x_grid_ and sums_ too
};

}  // namespace halfbyte::bench

#endif  // HALFBYTE_BENCHMARKS_GPU_BENCH_LAYER_H_
