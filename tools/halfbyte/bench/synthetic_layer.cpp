// SPDX-License-Identifier: Apache-2.0
#include "bench/synthetic_layer.h"

#include <cmath>
#include <random>
#include <span>
#include <utility>

#include "formats/bf16.h"
#include "moe/device_limits.h"
#include "moe/plan.h"

namespace halfbyte::tool {
namespace {

constexpr std::uint32_t kLargestScale = 0x7E;  // E4M3: 448
// Root mean square of a code times a block scale, over uniform codes and scale bytes 0 to 0x7E.
constexpr float kWeightRms = 293.0F;
constexpr float kLargestActivation = 6.0F;    // few of a normal sample are beyond
constexpr float kNvfp4Range = 6.0F * 448.0F;  // of one code times one block scale

MoeSpec spec_of(const LayerShape& shape) {
  MoeSpec spec;
  spec.hidden_size = shape.hidden_size;
  spec.intermediate_size = shape.intermediate_size;
  spec.num_experts = shape.num_local_experts;
  spec.top_k = shape.top_k;
  spec.x_dtype = spec.y_dtype = DType::kBf16;
  return spec;
}

// Used by w4a4 alone.
ExpertInputScales input_scales() {
  const float scale = kLargestActivation / kNvfp4Range;
  return {{{}, {scale}}, {{}, {scale}}};
}

// Bytes that experts are cut from, each at another place.
class RandomBytes {
 public:
  RandomBytes(std::size_t count, std::uint32_t limit) : bytes_(count) {
    std::mt19937 random(limit);
    for (std::uint8_t& byte : bytes_)
      byte = static_cast<std::uint8_t>(random() % limit);
  }
  std::span<const std::uint8_t> cut(std::int64_t place, std::int64_t count) const {
    const std::size_t spare = bytes_.size() - static_cast<std::size_t>(count);
    return std::span(bytes_).subspan(static_cast<std::size_t>(place) % (spare + 1),
                                     static_cast<std::size_t>(count));
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

class RandomExperts {
 public:
  explicit RandomExperts(const LayerShape& shape)
      : hidden_(shape.hidden_size),
        intermediate_(shape.intermediate_size),
        codes_(static_cast<std::size_t>(hidden_ * intermediate_ / 2 + kSpare), 0x100),
        scales_(static_cast<std::size_t>(hidden_ * intermediate_ / 16 + kSpare),
                kLargestScale + 1) {}

  CanonicalExpert expert(std::int64_t expert_idx) const {
    const std::int64_t place = 3 * expert_idx;
    return {matrix(intermediate_, hidden_, place), matrix(intermediate_, hidden_, place + 1),
            matrix(hidden_, intermediate_, place + 2)};
  }

 private:
  static constexpr std::int64_t kSpare = 1 << 14;
  static constexpr std::int64_t kStride = 37;  // no two matrices of a layer start alike

  CanonicalMatrix matrix(std::int64_t rows, std::int64_t cols, std::int64_t place) const {
    CanonicalMatrix matrix;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.codes = codes_.cut(place * kStride, rows * cols / 2);
    matrix.block_scale = scales_.cut(place * kStride, rows * cols / 16);
    matrix.global_scale = (1.0F + 0.1F * static_cast<float>(place % 7)) /
                          (kWeightRms * std::sqrt(static_cast<float>(cols)));
    return matrix;
  }

  std::int64_t hidden_, intermediate_;
  RandomBytes codes_, scales_;
};

}  // namespace

Result<std::vector<std::unique_ptr<MoeLayer>>> make_synthetic_layers(const LayerShape& shape,
                                                                     const MoeOptions& options,
                                                                     std::int64_t num_layers) {
  MoeOptions shared = options;
  shared.workspace = make_moe_workspace();
  const RandomExperts experts(shape);
  std::vector<std::unique_ptr<MoeLayer>> layers;
  for (std::int64_t i = 0; i < num_layers; ++i) {
    HALFBYTE_ASSIGN_OR_RETURN(auto layer, MoeLayer::create(spec_of(shape), shared, input_scales()));
    for (std::int64_t e = 0; e < shape.num_local_experts; ++e) {
      const std::int64_t place = i * shape.num_local_experts + e;
      HALFBYTE_RETURN_IF_ERROR(layer->load_expert(e, experts.expert(place)));
    }
    HALFBYTE_RETURN_IF_ERROR(layer->finish_loading());
    layers.push_back(std::move(layer));
  }
  return layers;
}

Result<std::int64_t> synthetic_workspace_bytes(const LayerShape& shape, const MoeOptions& options) {
  HALFBYTE_ASSIGN_OR_RETURN(const DeviceLimits limits,
                            read_device_limits(options.device, options.num_threads));
  NoticeSink silent;
  HALFBYTE_ASSIGN_OR_RETURN(const MoePlan plan,
                            make_moe_plan(spec_of(shape), options, limits, 1, 0, silent));
  return static_cast<std::int64_t>(plan.workspace.total_bytes());
}

std::vector<std::uint16_t> make_synthetic_rows(std::int64_t num_tokens, std::int64_t hidden_size) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> rows(static_cast<std::size_t>(num_tokens * hidden_size));
  for (std::uint16_t& value : rows)
    value = f32_to_bf16(normal(random));
  return rows;
}

}  // namespace halfbyte::tool
