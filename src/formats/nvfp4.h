// SPDX-License-Identifier: Apache-2.0
//
// The NVFP4 quantisers, operation by operation: the oracle of every backend (docs/numerics.md).
#ifndef HALFBYTE_FORMATS_NVFP4_H_
#define HALFBYTE_FORMATS_NVFP4_H_

#include <cstdint>
#include <span>

#include "halfbyte/status.h"

namespace halfbyte {

inline constexpr std::int64_t kNvfp4BlockSize = 16;
inline constexpr float kNvfp4Max = 2688.0F;  // 6 * 448: amax / 2688 is a tensor's scale

/// Quantises activations x [num_rows, cols] (cols % 16 == 0) with the decode-side scale `s` (> 0;
/// 0 gives zeros). Exact mode: a block holding a NaN or an infinity becomes scale 0x7F with codes
/// 0, whatever `s` is; a non-zero block never gets scale 0.
///   codes [num_rows, cols / 2], block_scale [num_rows, cols / 16], linear layout.
void quantize_activations(const float* x,
                          std::int64_t num_rows,
                          std::int64_t cols,
                          float s,
                          std::uint8_t* codes,
                          std::uint8_t* block_scale);

/// The scale of one row for w4a4_dynamic: RN(amax / 2688) over its finite values; 0 when amax <
/// 2^-100; 1 when no value is finite.
float dynamic_row_scale(const float* row, std::int64_t cols);

/// One row of codes [cols / 2] and block scales [cols / 16] without any scalar: e2m1 * e4m3, exact.
/// A block whose scale is NaN decodes to NaN.
void decode_nvfp4_row(const std::uint8_t* codes,
                      const std::uint8_t* block_scale,
                      std::int64_t cols,
                      float* dst);

/// decode_nvfp4_row for a row that quantize_activations wrote.
void decode_activation_row(const std::uint8_t* codes,
                           const std::uint8_t* block_scale,
                           std::int64_t cols,
                           float* dst);

/// RN(amax(w) / 2688), at least the smallest positive fp32; 1 for an all-zero w. Values that are
/// not finite are left out: quantize_weights refuses them with their place.
float weight_global_scale(std::span<const float> w);

/// One scale for gate and up together, for engines that can hold only one.
float shared_gate_up_global_scale(std::span<const float> gate, std::span<const float> up);

/// Quantises weights w [rows, cols] offline with `global_scale` (5.3): an all-zero block stores
/// scale 0x00, others at least 0x01 and at most 0x7E.
/// @return kInvalidArgument: a shape that does not fit, global_scale not finite and > 0, or a value
///         that is not finite, naming row and column.
Status quantize_weights(std::span<const float> w,
                        std::int64_t rows,
                        std::int64_t cols,
                        float global_scale,
                        std::span<std::uint8_t> codes,
                        std::span<std::uint8_t> block_scale);

}  // namespace halfbyte

#endif  // HALFBYTE_FORMATS_NVFP4_H_
