// SPDX-License-Identifier: Apache-2.0
//
// fp64 sums over canonical weights, on the device: what each GEMM stage is compared with.
#ifndef HALFBYTE_TESTS_GPU_LAYER_REFERENCE_H_
#define HALFBYTE_TESTS_GPU_LAYER_REFERENCE_H_

#include <cstdint>

#include "device/stream.h"

namespace halfbyte::test {

/// One matrix of every expert in canonical form, device pointers.
struct CanonicalOnDevice {
  const std::uint8_t* codes = nullptr;        // [experts, rows, cols / 2]
  const std::uint8_t* block_scale = nullptr;  // [experts, rows, cols / 16]
  int rows = 0;
  int cols = 0;
};

/// For every route: sum[route][row] = sum_k a_k w_k and magnitude = sum_k |a_k w_k|, with a the
/// bf16 row `a_row[route]` (or `route`) of stride a_stride. Null pointers of `a_row` are allowed.
void reference_gemm(const CanonicalOnDevice& weights,
                    const std::uint16_t* a,
                    int a_stride,
                    const std::int32_t* a_row,
                    const std::int32_t* route_expert,
                    int num_routes,
                    double* sum,
                    double* magnitude,
                    const device::Stream& stream);

/// The same of E4M3 products, as plain values: weights [experts, rows, cols], and a row of `a`
/// [routes, cols] each. `largest` is the sum, over the tensor core's steps of 32 columns
/// (formats/sm90_fp8_layout.h), of the step's largest |a w| or |sum so far of its 128 columns|.
void reference_gemm(const float* weights,
                    int rows,
                    int cols,
                    const double* a,
                    const std::int32_t* route_expert,
                    int num_routes,
                    double* sum,
                    double* magnitude,
                    double* largest,
                    const device::Stream& stream);

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_GPU_LAYER_REFERENCE_H_
