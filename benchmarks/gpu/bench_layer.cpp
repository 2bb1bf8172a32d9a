// SPDX-License-Identifier: Apache-2.0
#include "bench_layer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "base/checked.h"
#include "kernels/cuda/sm90/activate_tiles.h"
#include "kernels/cuda/sm90/e4m3_rows.h"
#include "kernels/cuda/sm90/grid_tokens.h"
#include "kernels/cuda/sm90/prepare_weights.h"
#include "kernels/cuda/sm90/token_tiles.h"
#include "measure.h"

namespace halfbyte::bench {
namespace {

// Decode-side scales of w4a4: x and h stay below 2688 times them.
constexpr float kScaleX = 0x1p-9F;
constexpr float kScaleH = 0x1p-6F;

/// With row factors the layout is that of w4a8.
Status prepare(const sm90::WeightLayout& layout,
               const DeviceBuffer& dst,
               const DeviceBuffer* row_factor,
               std::uint32_t seed,
               const device::Stream& stream) {
  const std::int64_t half = layout.shape.half_rows * layout.shape.cols;
  HALFBYTE_ASSIGN_OR_RETURN(const auto codes,
                            DeviceBuffer::allocate(static_cast<std::size_t>(half)));
  HALFBYTE_ASSIGN_OR_RETURN(const auto scales,
                            DeviceBuffer::allocate(static_cast<std::size_t>(half / 8)));
  HALFBYTE_ASSIGN_OR_RETURN(const auto num_blocks_below, DeviceBuffer::allocate(8));
  for (std::int64_t e = 0; e < layout.shape.num_experts; ++e) {
    const auto s = seed + static_cast<std::uint32_t>(2 * e);
    HALFBYTE_RETURN_IF_ERROR(fill_random(codes.data(), half, s, 0, 0, stream));
    HALFBYTE_RETURN_IF_ERROR(fill_random(scales.data(), half / 8, s + 1, 40, 72, stream));
    sm90::PrepareWeightsArgs args;
    for (int i = 0; i < layout.shape.num_halves; ++i) {
      args.codes[i] = codes.as<std::uint8_t>(static_cast<std::size_t>(i * half / 2));
      args.block_scale[i] = scales.as<std::uint8_t>(static_cast<std::size_t>(i * half / 16));
    }
    args.dst = dst.as<std::uint8_t>();
    if (row_factor == nullptr) {
      HALFBYTE_RETURN_IF_ERROR(launch(layout, e, args, stream.handle()));
      continue;
    }
    const sm90::PrepareFp8WeightsArgs fp8 = {args, row_factor->as<float>(),
                                             num_blocks_below.as<unsigned long long>()};
    HALFBYTE_RETURN_IF_ERROR(launch(layout, e, fp8, stream.handle()));
  }
  return stream.synchronize();
}

Status add_copy(const Case& c,
                const sm90::WeightLayout& layout,
                std::uint32_t seed,
                std::vector<DeviceBuffer>& weights,
                std::vector<DeviceBuffer>& factors,
                const device::Stream& stream) {
  HALFBYTE_ASSIGN_OR_RETURN(auto copy,
                            DeviceBuffer::allocate(static_cast<std::size_t>(layout.bytes())));
  DeviceBuffer factor;
  if (c.fp8()) {
    HALFBYTE_ASSIGN_OR_RETURN(factor, DeviceBuffer::allocate(static_cast<std::size_t>(
                                          layout.shape.num_experts * layout.rows() * 4)));
  }
  HALFBYTE_RETURN_IF_ERROR(prepare(layout, copy, c.fp8() ? &factor : nullptr, seed, stream));
  weights.push_back(std::move(copy));
  factors.push_back(std::move(factor));
  return {};
}

sm90::WeightLayout layout_of(const Case& c, const sm90::WeightLayout& layout) {
  return c.fp8() ? sm90::fp8_layout(layout.shape) : layout;
}

}  // namespace

Result<Weights> make_weights(const Case& c, int copies, const device::Stream& stream) {
  Weights w;
  w.num_local = c.num_local;
  w.hidden_size = c.hidden_size;
  w.intermediate_size = c.intermediate_size;
  const sm90::MoeDecodeShape shape = {c.num_local, c.hidden_size, c.intermediate_size};
  for (int i = 0; i < copies; ++i) {
    const unsigned seed = 1000U * static_cast<unsigned>(i);
    HALFBYTE_RETURN_IF_ERROR(
        add_copy(c, layout_of(c, shape.gate_up()), 7U + seed, w.gate_up, w.gate_up_factor, stream));
    HALFBYTE_RETURN_IF_ERROR(
        add_copy(c, layout_of(c, shape.down()), 9U + seed, w.down, w.down_factor, stream));
  }
  std::vector<float> alpha(static_cast<std::size_t>(3 * c.num_local));
  for (std::size_t i = 0; i < alpha.size(); ++i) {
    alpha[i] = 0.3F / std::sqrt(static_cast<float>(c.hidden_size)) *
               (1 + 0.1F * static_cast<float>(i % 7));
    // In w4a4 an alpha holds the scale of what it is applied to.
    const bool down = i >= static_cast<std::size_t>(2 * c.num_local);
    if (c.quantized() && !c.dynamic()) alpha[i] *= down ? kScaleH : kScaleX;
  }
  HALFBYTE_ASSIGN_OR_RETURN(w.alpha, DeviceBuffer::allocate(alpha.size() * 4));
  HALFBYTE_RETURN_IF_ERROR(w.alpha.upload(std::as_bytes(std::span(alpha)), 0, stream));
  HALFBYTE_RETURN_IF_ERROR(stream.synchronize());
  return w;
}

Status Layer::allocate_quantized(const device::Stream& stream) {
  const auto allocate = [&stream](DeviceBuffer& buffer, std::int64_t bytes) -> Status {
    HALFBYTE_ASSIGN_OR_RETURN(buffer, DeviceBuffer::allocate(static_cast<std::size_t>(bytes)));
    return buffer.fill(std::byte{0}, stream);
  };
  if (c_.fp8()) {
    const auto scale_bytes = [](const DeviceBuffer& tiles) {
      return static_cast<std::int64_t>(tiles.size()) / sm90::kFp8BlockCols * 4;
    };
    HALFBYTE_RETURN_IF_ERROR(allocate(x_scales_, scale_bytes(x_tiles_)));
    HALFBYTE_RETURN_IF_ERROR(allocate(h_scales_, scale_bytes(h_tiles_)));
    HALFBYTE_RETURN_IF_ERROR(allocate(x_grid_, c_.num_tokens * c_.hidden_size * 2));
    return allocate(sums_, max_routes_ * c_.intermediate_size * 4);
  }
  if (!c_.quantized()) return {};
  HALFBYTE_RETURN_IF_ERROR(allocate(x_grid_, c_.num_tokens * c_.hidden_size * 2));
  HALFBYTE_RETURN_IF_ERROR(allocate(x_row_scale_, c_.num_tokens * 4));
  if (c_.dynamic()) {
    HALFBYTE_RETURN_IF_ERROR(allocate(sums_, max_routes_ * gate_up(0).output_cols() * 4));
    HALFBYTE_RETURN_IF_ERROR(allocate(row_alpha_, max_routes_ * 4));
  }
  const std::array scale = {cuda::make_quantize_scale(kScaleX), cuda::make_quantize_scale(kScaleH)};
  HALFBYTE_ASSIGN_OR_RETURN(quantize_, DeviceBuffer::allocate(sizeof scale));
  HALFBYTE_RETURN_IF_ERROR(quantize_.upload(std::as_bytes(std::span(scale)), 0, stream));
  return stream.synchronize();
}

sm90::GroupedGemmShape Layer::gate_up(double rows_per_expert) const {
  const sm90::GemmOutput output = c_.dynamic()     ? sm90::GemmOutput::kRows
                                  : c_.quantized() ? sm90::GemmOutput::kQuantized
                                                   : sm90::GemmOutput::kActivated;
  return {decode.gate_up(), output, DType::kF32, rows_per_expert};
}

sm90::GroupedGemmShape Layer::down() const {
  return {decode.down(), c_.dynamic() ? sm90::GemmOutput::kScaledRows : sm90::GemmOutput::kRows};
}

sm90::GroupedGemmFp8Shape Layer::fp8_gate_up(double rows_per_expert) const {
  return {sm90::fp8_layout(decode.gate_up().shape), sm90::GemmOutput::kActivated, DType::kF32,
          rows_per_expert};
}

sm90::GroupedGemmFp8Shape Layer::fp8_down() const {
  return {sm90::fp8_layout(decode.down().shape), sm90::GemmOutput::kRows};
}

int Layer::chosen_tile_tokens(double rows_per_expert, const device::Properties& properties) const {
  return c_.fp8() ? select_config(fp8_gate_up(rows_per_expert), properties).tile_tokens
                  : select_config(gate_up(rows_per_expert), properties).tile_tokens;
}

std::span<const int> Layer::tile_tokens() const {
  if (c_.fp8()) return sm90::list_fp8_tile_tokens();
  return sm90::list_tile_tokens(c_.dynamic() ? down().output : gate_up(0).output);
}

std::size_t Layer::tile_bytes(std::int64_t cols) const {
  return sm90::most_tile_bytes(tile_tokens(), round_up(cols, sm90::kFp8BlockCols), c_.fp8() ? 1 : 2,
                               max_routes_, c_.num_local);
}

Status Layer::quantize(const device::Stream& stream) const {
  if (c_.fp8()) {
    const sm90::E4m3RowsArgs args = {x_.data(), x_grid_.data(), x_scales_.as<float>()};
    return sm90::launch_e4m3_rows(c_.num_tokens, c_.hidden_size, args, stream.handle());
  }
  if (!c_.quantized()) return {};
  const sm90::GridTokensArgs args = {x_.data(),
                                     c_.dynamic() ? nullptr : quantize_.as<cuda::QuantizeScale>(),
                                     x_grid_.data(), x_row_scale_.as<float>()};
  return sm90::launch_grid_tokens(c_.num_tokens, c_.hidden_size, args, stream.handle());
}

Status Layer::quantize_to_fp8(bool h, int tile_tokens, const device::Stream& stream) const {
  const sm90::QuantizeTokensArgs args = {(h ? sums_ : x_).data(),
                                         h,
                                         h ? nullptr : route_row_.as<std::int32_t>(),
                                         offset_.as<std::int64_t>(),
                                         count_.as<std::int32_t>(),
                                         (h ? h_tiles_ : x_tiles_).as<std::uint8_t>(),
                                         (h ? h_scales_ : x_scales_).as<float>()};
  return sm90::launch_quantize_tokens(c_.num_local, c_.num_tokens * c_.top_k,
                                      h ? c_.intermediate_size : c_.hidden_size, tile_tokens, args,
                                      stream.handle());
}

Status Layer::gather(int tile_tokens, const device::Stream& stream) const {
  if (c_.fp8()) return quantize_to_fp8(false, tile_tokens, stream);
  const sm90::GatherTokensArgs args = {x(), route_row_.as<std::int32_t>(),
                                       offset_.as<std::int64_t>(), count_.as<std::int32_t>(),
                                       x_tiles_.data()};
  return sm90::launch_gather_tokens(c_.num_local, c_.num_tokens * c_.top_k, c_.hidden_size,
                                    tile_tokens, args, stream.handle());
}

Status Layer::activate(const Weights& weights,
                       int tile_tokens,
                       const device::Stream& stream) const {
  if (c_.fp8()) return quantize_to_fp8(true, tile_tokens, stream);
  if (!c_.dynamic()) return {};
  const auto* scale = weights.alpha.as<float>();
  const sm90::ActivateTilesArgs args = {sums_.as<float>(),
                                        route_row_.as<std::int32_t>(),
                                        offset_.as<std::int64_t>(),
                                        count_.as<std::int32_t>(),
                                        {},
                                        x_row_scale_.as<float>(),
                                        scale,
                                        scale + c_.num_local,
                                        scale + 2 * c_.num_local,
                                        h_tiles_.data(),
                                        row_alpha_.as<float>()};
  return sm90::launch_activate_tiles(gate_up(0), c_.num_tokens * c_.top_k, tile_tokens, args,
                                     stream.handle());
}

Result<Layer> Layer::create(const Case& c, std::int64_t max_routes, const device::Stream& stream) {
  Layer layer;
  layer.c_ = c;
  layer.max_routes_ = max_routes;
  const auto slots = static_cast<std::size_t>(c.num_tokens * c.top_k);
  const auto hidden = static_cast<std::size_t>(c.hidden_size);
  const auto tokens = static_cast<std::size_t>(c.num_tokens);
  const auto local = static_cast<std::size_t>(c.num_local);
  layer.group_ = {c.num_tokens, c.top_k, c.num_experts, 0, c.num_local};
  layer.combine_ = {c.num_tokens,  c.top_k,      c.num_experts,
                    c.hidden_size, DType::kBf16, DType::kBf16};
  layer.decode = {c.num_local, c.hidden_size, c.intermediate_size, true, DType::kBf16};
  if (c.mode == ActivationMode::kW4a4) layer.decode.tokens = sm90::DecodeTokens::kGrid;
  if (c.fp8()) layer.decode.tokens = sm90::DecodeTokens::kE4m3;
  const auto allocate = [&](DeviceBuffer& buffer, std::size_t bytes) -> Status {
    HALFBYTE_ASSIGN_OR_RETURN(buffer, DeviceBuffer::allocate(bytes));
    return buffer.fill(std::byte{0}, stream);
  };
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.x_, tokens * hidden * 2));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.x_tiles_, layer.tile_bytes(c.hidden_size)));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.h_tiles_, layer.tile_bytes(c.intermediate_size)));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.y_, tokens * hidden * 2));
  HALFBYTE_RETURN_IF_ERROR(
      allocate(layer.h_, slots * static_cast<std::size_t>(c.intermediate_size) * 2));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.rows_, slots * hidden * 2));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.weights_, slots * 4));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.offset_, (local + 1) * 8));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.count_, local * 4));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.route_row_, slots * 4));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.slot_route_, slots * 4));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.workspace_, select_config(layer.group_).workspace_bytes));
  HALFBYTE_RETURN_IF_ERROR(
      allocate(layer.counters_, static_cast<std::size_t>(layer.decode.num_counters()) * 4));
  HALFBYTE_RETURN_IF_ERROR(layer.allocate_quantized(stream));
  // bf16 of random sign and mantissa near 1: bytes 0x3E, 0x3F, 0xBE, 0xBF would do; a narrow range
  // of the upper byte keeps every value finite.
  std::vector<std::uint16_t> x(tokens * hidden);
  std::mt19937 random(5);
  for (std::uint16_t& v : x)
    v = static_cast<std::uint16_t>((random() & 0x80FFU) | 0x3F00U);
  HALFBYTE_RETURN_IF_ERROR(layer.x_.upload(std::as_bytes(std::span(x)), 0, stream));
  std::vector<float> weights(slots);
  for (float& v : weights)
    v = static_cast<float>(random() % 1000 + 1) / 8000.0F;
  HALFBYTE_RETURN_IF_ERROR(layer.weights_.upload(std::as_bytes(std::span(weights)), 0, stream));
  HALFBYTE_RETURN_IF_ERROR(stream.synchronize());
  return layer;
}

Status Layer::group(const Step& step, const device::Stream& stream) const {
  const cuda::GroupRowsArgs args = {step.ids.as<std::int32_t>(),
                                    nullptr,
                                    offset_.as<std::int64_t>(),
                                    count_.as<std::int32_t>(),
                                    route_row_.as<std::int32_t>(),
                                    slot_route_.as<std::int32_t>(),
                                    workspace_.data()};
  return launch(group_, select_config(group_), args, stream.handle());
}

Status Layer::combine(const Step& step, const device::Stream& stream) const {
  const cuda::CombineRowsArgs args = {rows_.data(),
                                      step.ids.as<std::int32_t>(),
                                      weights_.as<float>(),
                                      slot_route_.as<std::int32_t>(),
                                      nullptr,
                                      nullptr,
                                      y_.data()};
  return launch(combine_, select_config(combine_), args, stream.handle());
}

Status Layer::enqueue(const Weights& weights,
                      const Step& step,
                      int copy,
                      const sm90::MoeDecodeConfig& config,
                      const device::Stream& stream) const {
  HALFBYTE_RETURN_IF_ERROR(group(step, stream));
  HALFBYTE_RETURN_IF_ERROR(quantize(stream));
  const auto index = static_cast<std::size_t>(copy) % weights.gate_up.size();
  const auto* alpha = weights.alpha.as<float>();
  sm90::MoeDecodeArgs args = {.x = x(),
                              .route_row = route_row_.as<std::int32_t>(),
                              .expert_offset = offset_.as<std::int64_t>(),
                              .expert_count = count_.as<std::int32_t>(),
                              .gate_up = weights.gate_up[index].as<std::uint8_t>(),
                              .down = weights.down[index].as<std::uint8_t>(),
                              .alpha_gate = alpha,
                              .alpha_up = alpha + c_.num_local,
                              .alpha_down = alpha + 2 * c_.num_local,
                              .activation = {},
                              .h = h_.data(),
                              .rows = rows_.data(),
                              .counters = counters_.as<std::int32_t>(),
                              .h_scale = h_scale()};
  if (c_.fp8()) {
    args.x_block_scale = x_scales_.as<float>();
    args.gate_up_factor = weights.gate_up_factor[index].as<float>();
    args.down_factor = weights.down_factor[index].as<float>();
    args.h_f32 = sums_.as<float>();
    args.h_block_scale = h_scales_.as<float>();
  }
  HALFBYTE_RETURN_IF_ERROR(launch(decode, config, args, stream.handle()));
  return combine(step, stream);
}

Status Layer::gemm(bool second,
                   const Weights& weights,
                   int copy,
                   int tile_tokens,
                   const device::Properties& properties,
                   const device::Stream& stream) const {
  const auto index = static_cast<std::size_t>(copy) % weights.gate_up.size();
  if (c_.fp8()) return fp8_gemm(second, weights, index, tile_tokens, properties, stream);
  const auto* alpha = weights.alpha.as<float>();
  const sm90::GroupedGemmShape shape = second ? down() : gate_up(0);
  sm90::GroupedGemmArgs args;
  args.tokens = second ? h_tiles_.data() : x_tiles_.data();
  args.expert_offset = offset_.as<std::int64_t>();
  args.expert_count = count_.as<std::int32_t>();
  args.weights = (second ? weights.down[index] : weights.gate_up[index]).as<std::uint8_t>();
  if (!c_.dynamic()) {
    args.alpha[0] = second ? alpha + 2 * c_.num_local : alpha;
    args.alpha[1] = alpha + c_.num_local;
  }
  args.output = (second ? rows_ : c_.dynamic() ? sums_ : h_tiles_).data();
  args.h_scale = h_scale();
  args.row_alpha = row_alpha_.as<float>();
  return launch(shape, make_config(shape, tile_tokens, properties), args, stream.handle());
}

Status Layer::fp8_gemm(bool second,
                       const Weights& weights,
                       std::size_t copy,
                       int tile_tokens,
                       const device::Properties& properties,
                       const device::Stream& stream) const {
  const auto* alpha = weights.alpha.as<float>();
  const sm90::GroupedGemmFp8Shape shape = second ? fp8_down() : fp8_gate_up(0);
  const sm90::GroupedGemmFp8Args args = {
      (second ? h_tiles_ : x_tiles_).as<std::uint8_t>(),
      (second ? h_scales_ : x_scales_).as<float>(),
      offset_.as<std::int64_t>(),
      count_.as<std::int32_t>(),
      (second ? weights.down : weights.gate_up)[copy].as<std::uint8_t>(),
      (second ? weights.down_factor : weights.gate_up_factor)[copy].as<float>(),
      {second ? alpha + 2 * c_.num_local : alpha, alpha + c_.num_local},
      {},
      (second ? rows_ : sums_).data()};
  return launch(shape, make_config(shape, tile_tokens, properties), args, stream.handle());
}

Status Layer::enqueue_prefill(const Weights& weights,
                              const Step& step,
                              int copy,
                              int tile_tokens,
                              const device::Properties& properties,
                              const device::Stream& stream) const {
  HALFBYTE_RETURN_IF_ERROR(group(step, stream));
  if (!c_.fp8()) HALFBYTE_RETURN_IF_ERROR(quantize(stream));
  HALFBYTE_RETURN_IF_ERROR(gather(tile_tokens, stream));
  HALFBYTE_RETURN_IF_ERROR(gemm(false, weights, copy, tile_tokens, properties, stream));
  HALFBYTE_RETURN_IF_ERROR(activate(weights, tile_tokens, stream));
  HALFBYTE_RETURN_IF_ERROR(gemm(true, weights, copy, tile_tokens, properties, stream));
  return combine(step, stream);
}

}  // namespace halfbyte::bench
