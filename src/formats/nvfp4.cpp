// SPDX-License-Identifier: Apache-2.0
#include "formats/nvfp4.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "formats/e2m1.h"
#include "formats/e4m3.h"

namespace halfbyte {
namespace {

constexpr float kOneSixth = std::bit_cast<float>(0x3E2AAAABU);
constexpr std::int64_t kCodeBytesPerBlock = kNvfp4BlockSize / 2;
constexpr std::uint8_t kSmallestScale = 0x01;  // 2^-9

/// max |x| of one block, or NaN when a value is not finite.
float block_amax(const float* x) {
  float amax = 0.0F;
  for (std::int64_t i = 0; i < kNvfp4BlockSize; ++i) {
    if (!std::isfinite(x[i])) return std::numeric_limits<float>::quiet_NaN();
    amax = std::max(amax, std::fabs(x[i]));
  }
  return amax;
}

float finite_amax(std::span<const float> values) {
  float amax = 0.0F;
  for (const float value : values) {
    if (std::isfinite(value)) amax = std::max(amax, std::fabs(value));
  }
  return amax;
}

// A non-zero block never gets scale zero.
std::uint8_t round_block_scale(float t) {
  return std::max(f32_to_e4m3(t), kSmallestScale);
}

void pack_block(const std::array<std::uint8_t, kNvfp4BlockSize>& codes, std::uint8_t* packed) {
  for (std::size_t j = 0; j < kCodeBytesPerBlock; ++j)
    packed[j] = static_cast<std::uint8_t>(codes[2 * j] | (codes[2 * j + 1] << 4));
}

/// The scalars of one call, each rounded to fp32 in this order.
struct ActivationScale {
  float a;  // encode side
  float c;  // a / 6
  float d;  // decode side again
  explicit ActivationScale(float s) : a(1.0F / s), c(a * kOneSixth), d(1.0F / a) {}
};

/// Returns the block's scale byte.
std::uint8_t quantize_block(const float* x,
                            float amax,
                            ActivationScale scale,
                            std::uint8_t* codes) {
  const std::uint8_t block_scale = round_block_scale(amax * scale.c);
  const float q =
      std::min(1.0F / (e4m3_to_f32(block_scale) * scale.d), std::numeric_limits<float>::max());
  std::array<std::uint8_t, kNvfp4BlockSize> unpacked;
  for (std::size_t i = 0; i < unpacked.size(); ++i)
    unpacked[i] = f32_to_e2m1(x[i] * q);
  pack_block(unpacked, codes);
  return block_scale;
}

std::uint8_t quantize_weight_block(const float* w, float global_scale, std::uint8_t* codes) {
  const float amax = block_amax(w);
  std::fill_n(codes, kCodeBytesPerBlock, std::uint8_t{0});
  if (amax == 0.0F) return 0;
  const std::uint8_t block_scale = round_block_scale(amax / (6.0F * global_scale));
  const float step = e4m3_to_f32(block_scale) * global_scale;
  std::array<std::uint8_t, kNvfp4BlockSize> unpacked;
  // `step` may underflow to 0 for the smallest global scales; a zero stays a zero even then.
  for (std::size_t i = 0; i < unpacked.size(); ++i)
    unpacked[i] = f32_to_e2m1(w[i] == 0.0F ? w[i] : w[i] / step);
  pack_block(unpacked, codes);
  return block_scale;
}

Status check_weight_shapes(std::span<const float> w,
                           std::int64_t rows,
                           std::int64_t cols,
                           std::span<std::uint8_t> codes,
                           std::span<std::uint8_t> block_scale) {
  if (rows < 0 || cols < 0 || cols % kNvfp4BlockSize != 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("weight of {} x {}: the width must be a multiple of 16", rows, cols));
  }
  const auto count = static_cast<std::size_t>(rows * cols);
  if (w.size() != count || codes.size() != count / 2 || block_scale.size() != count / 16) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("weight of {} x {}: got {} values, {} code bytes and {} block scales, "
                    "want {}, {} and {}",
                    rows, cols, w.size(), codes.size(), block_scale.size(), count, count / 2,
                    count / 16));
  }
  return {};
}

Status check_weight_values(std::span<const float> w, std::int64_t cols) {
  const auto bad =
      std::find_if(w.begin(), w.end(), [](float value) { return !std::isfinite(value); });
  if (bad == w.end()) return {};
  const auto index = static_cast<std::int64_t>(bad - w.begin());
  return Status(StatusCode::kInvalidArgument,
                fmt::format("weight at row {}, column {}: got {}, want finite", index / cols,
                            index % cols, *bad));
}

}  // namespace

void quantize_activations(const float* x,
                          std::int64_t num_rows,
                          std::int64_t cols,
                          float s,
                          std::uint8_t* codes,
                          std::uint8_t* block_scale) {
  const ActivationScale scale(s);
  for (std::int64_t block = 0; block < num_rows * cols / kNvfp4BlockSize; ++block) {
    const float* values = x + block * kNvfp4BlockSize;
    std::uint8_t* packed = codes + block * kCodeBytesPerBlock;
    const float amax = block_amax(values);
    if (std::isnan(amax) || amax == 0.0F || s == 0.0F) {
      std::fill_n(packed, kCodeBytesPerBlock, std::uint8_t{0});
      block_scale[block] = std::isnan(amax) ? kE4m3Nan : std::uint8_t{0};
    } else {
      block_scale[block] = quantize_block(values, amax, scale, packed);
    }
  }
}

float dynamic_row_scale(const float* row, std::int64_t cols) {
  const std::span<const float> values(row, static_cast<std::size_t>(cols));
  const bool any_finite =
      std::any_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  if (!any_finite) return 1.0F;
  const float amax = finite_amax(values);
  return amax < 0x1p-100F ? 0.0F : amax / kNvfp4Max;
}

void decode_nvfp4_row(const std::uint8_t* codes,
                      const std::uint8_t* block_scale,
                      std::int64_t cols,
                      float* dst) {
  for (std::int64_t block = 0; block < cols / kNvfp4BlockSize; ++block) {
    const float scale = e4m3_to_f32(block_scale[block]);
    const std::uint8_t* packed = codes + block * kCodeBytesPerBlock;
    float* values = dst + block * kNvfp4BlockSize;
    for (std::int64_t j = 0; j < kCodeBytesPerBlock; ++j) {
      values[2 * j] = kE2m1Values[packed[j] & 15U] * scale;
      values[2 * j + 1] = kE2m1Values[packed[j] >> 4] * scale;
    }
  }
}

void decode_activation_row(const std::uint8_t* codes,
                           const std::uint8_t* block_scale,
                           std::int64_t cols,
                           float* dst) {
  decode_nvfp4_row(codes, block_scale, cols, dst);
}

float weight_global_scale(std::span<const float> w) {
  return shared_gate_up_global_scale(w, {});
}

float shared_gate_up_global_scale(std::span<const float> gate, std::span<const float> up) {
  const float amax = std::max(finite_amax(gate), finite_amax(up));
  if (amax == 0.0F) return 1.0F;
  return std::max(amax / kNvfp4Max, std::numeric_limits<float>::denorm_min());
}

Status quantize_weights(std::span<const float> w,
                        std::int64_t rows,
                        std::int64_t cols,
                        float global_scale,
                        std::span<std::uint8_t> codes,
                        std::span<std::uint8_t> block_scale) {
  HALFBYTE_RETURN_IF_ERROR(check_weight_shapes(w, rows, cols, codes, block_scale));
  if (!std::isfinite(global_scale) || global_scale <= 0.0F) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("weight global scale: got {}, want finite and > 0", global_scale));
  }
  HALFBYTE_RETURN_IF_ERROR(check_weight_values(w, cols));
  for (std::size_t block = 0; block < block_scale.size(); ++block)
    block_scale[block] = quantize_weight_block(&w[block * kNvfp4BlockSize], global_scale,
                                               &codes[block * kCodeBytesPerBlock]);
  return {};
}

}  // namespace halfbyte
