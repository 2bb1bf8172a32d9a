// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/operand_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/nvfp4.h"

namespace halfbyte::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The largest magnitude of a group; NaN when a value is not finite.
float group_amax(const float* x, std::int64_t count) {
  float amax = 0.0F;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) return kNan;
    amax = std::max(amax, std::abs(x[i]));
  }
  return amax;
}

std::int32_t nearest(float x, float inv_scale) {
  return static_cast<std::int32_t>(std::lrint(x * inv_scale));
}

void quantize_group(const float* x, std::int64_t cols, Split15Record& record) {
  record = {};
  const float amax = group_amax(x, cols);
  if (amax < kSmallestAmax) return;
  record.scale = amax / kSplit15Max * 0.5F;
  if (std::isnan(amax)) return;
  for (std::int64_t i = 0; i < cols; ++i) {
    const std::int32_t q = nearest(x[i], kSplit15Max / amax);
    const std::int32_t high = (q + 64) >> 7;
    record.high[i] = static_cast<std::int8_t>(high);
    record.low[i] = static_cast<std::int8_t>(q - high * 128);
    record.q[split15_q_position(i)] = static_cast<std::int16_t>(q);
    record.correction[i / kScaleCols] -= kWeightOffset * q;
  }
}

void quantize_block(const float* x, std::int64_t block, Int8Record& record) {
  const float amax = group_amax(x, kScaleCols);
  if (amax < kSmallestAmax) return;
  record.scale[block] = amax / kInt8Max * 0.5F;
  if (std::isnan(amax)) return;
  for (std::int64_t i = 0; i < kScaleCols; ++i) {
    const std::int32_t q = nearest(x[i], kInt8Max / amax);
    record.q[block * kScaleCols + i] = static_cast<std::int8_t>(q);
    record.start[block] -= kWeightOffset * q;
  }
}

void decode_block(const std::uint8_t* codes,
                  std::uint8_t block_scale,
                  std::int64_t block,
                  Int8Record& record) {
  record.scale[block] = e4m3_to_f32(block_scale) * 0.25F;  // both operands count halves
  for (std::int64_t i = 0; i < kScaleCols; ++i) {
    const auto q = static_cast<std::int32_t>(e2m1_to_f32(e2m1_code_at(codes, i)) * 2.0F);
    record.q[block * kScaleCols + i] = static_cast<std::int8_t>(q);
    record.start[block] -= kWeightOffset * q;
  }
}

}  // namespace

void quantize_split15(const float* x, std::int64_t cols, Split15Record* row) {
  for (std::int64_t col = 0; col < cols; col += kSuperblockCols)
    quantize_group(x + col, std::min(kSuperblockCols, cols - col), row[col / kSuperblockCols]);
}

void quantize_int8(const float* x, std::int64_t cols, Int8Record* row) {
  std::fill_n(row, num_records(cols), Int8Record{});
  for (std::int64_t col = 0; col < cols; col += kScaleCols) {
    quantize_block(x + col, col % kSuperblockCols / kScaleCols, row[col / kSuperblockCols]);
  }
}

void quantize_nvfp4(const float* x, std::int64_t cols, float s, Int8Record* row) {
  std::uint8_t codes[kSuperblockCols / 2];
  std::uint8_t block_scale[kSuperblockCols / kScaleCols];
  for (std::int64_t col = 0; col < cols; col += kSuperblockCols) {
    const std::int64_t count = std::min(kSuperblockCols, cols - col);
    quantize_activations(x + col, 1, count, s, codes, block_scale);
    int8_from_nvfp4(codes, block_scale, count, row + col / kSuperblockCols);
  }
}

void int8_from_nvfp4(const std::uint8_t* codes,
                     const std::uint8_t* block_scale,
                     std::int64_t cols,
                     Int8Record* row) {
  std::fill_n(row, num_records(cols), Int8Record{});
  for (std::int64_t col = 0; col < cols; col += kScaleCols) {
    decode_block(codes + col / 2, block_scale[col / kScaleCols], col % kSuperblockCols / kScaleCols,
                 row[col / kSuperblockCols]);
  }
}

}  // namespace halfbyte::cpu
