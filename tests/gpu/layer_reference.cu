// SPDX-License-Identifier: Apache-2.0
#include "layer_reference.h"

#include <cuda_runtime.h>

namespace halfbyte::test {
namespace {

__device__ double e2m1(unsigned code) {
  const double magnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double m = magnitudes[code & 7U];
  return (code & 8U) != 0 ? -m : m;
}

__device__ double e4m3(unsigned byte) {
  const int exponent = static_cast<int>(byte >> 3 & 15U);
  const double mantissa = byte & 7U;
  return exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
}

__device__ double sum_over_lanes(double v) {
  for (int d = 16; d > 0; d /= 2)
    v += __shfl_xor_sync(~0U, v, d);
  return v;
}

__device__ double max_over_lanes(double v) {
  for (int d = 16; d > 0; d /= 2)
    v = fmax(v, __shfl_xor_sync(~0U, v, d));
  return v;
}

/// One warp an output; a step of 32 columns at a time, in the order of the tensor core's: lanes of
/// a quarter have eight columns, quarters are 16 apart.
__global__ void fp8_gemm_kernel(const float* weights,
                                int rows,
                                int cols,
                                const double* a,
                                const std::int32_t* route_expert,
                                double* sum,
                                double* magnitude,
                                double* largest) {
  const std::int64_t route = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (row >= rows) return;
  const float* w = weights + (std::int64_t{route_expert[route]} * rows + row) * cols;
  double total = 0;
  double block_sum = 0;
  double absolute = 0;
  double tops = 0;
  for (int step = 0; step * 32 < (cols + 127) / 128 * 128; ++step) {
    if (step % 4 == 0) block_sum = 0;
    const int k = step / 2 * 64 + lane / 8 * 16 + step % 2 * 8 + lane % 8;
    const double product = k < cols ? a[route * cols + k] * w[k] : 0;
    const double before = fabs(block_sum);
    const double part = sum_over_lanes(product);
    total += part;
    block_sum += part;
    absolute += sum_over_lanes(fabs(product));
    tops += fmax(before, max_over_lanes(fabs(product)));
  }
  if (lane != 0) return;
  sum[route * rows + row] = total;
  magnitude[route * rows + row] = absolute;
  largest[route * rows + row] = tops;
}

/// One warp an output.
__global__ void gemm_kernel(CanonicalOnDevice w,
                            const std::uint16_t* a,
                            int a_stride,
                            const std::int32_t* a_row,
                            const std::int32_t* route_expert,
                            double* sum,
                            double* magnitude) {
  const int route = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (row >= w.rows) return;
  const std::int64_t matrix_row = std::int64_t{route_expert[route]} * w.rows + row;
  const std::uint16_t* x = a + std::int64_t{a_row == nullptr ? route : a_row[route]} * a_stride;
  double total = 0;
  double absolute = 0;
  for (int k = lane; k < w.cols; k += 32) {
    const unsigned byte = w.codes[matrix_row * (w.cols / 2) + k / 2];
    const double scale = e4m3(w.block_scale[matrix_row * (w.cols / 16) + k / 16]);
    const double value = __uint_as_float(static_cast<unsigned>(x[k]) << 16);
    const double product = value * e2m1(k % 2 == 0 ? byte & 15U : byte >> 4) * scale;
    total += product;
    absolute += fabs(product);
  }
  total = sum_over_lanes(total);
  absolute = sum_over_lanes(absolute);
  if (lane != 0) return;
  sum[std::int64_t{route} * w.rows + row] = total;
  magnitude[std::int64_t{route} * w.rows + row] = absolute;
}

dim3 grid_of(int num_routes, int rows) {
  return {static_cast<unsigned>(num_routes), static_cast<unsigned>((rows + 7) / 8)};
}

}  // namespace

void reference_gemm(const CanonicalOnDevice& weights,
                    const std::uint16_t* a,
                    int a_stride,
                    const std::int32_t* a_row,
                    const std::int32_t* route_expert,
                    int num_routes,
                    double* sum,
                    double* magnitude,
                    const device::Stream& stream) {
  if (num_routes == 0) return;
  gemm_kernel<<<grid_of(num_routes, weights.rows), dim3(32, 8), 0, stream.handle()>>>(
      weights, a, a_stride, a_row, route_expert, sum, magnitude);
}

void reference_gemm(const float* weights,
                    int rows,
                    int cols,
                    const double* a,
                    const std::int32_t* route_expert,
                    int num_routes,
                    double* sum,
                    double* magnitude,
                    double* largest,
                    const device::Stream& stream) {
  if (num_routes == 0) return;
  fp8_gemm_kernel<<<grid_of(num_routes, rows), dim3(32, 8), 0, stream.handle()>>>(
      weights, rows, cols, a, route_expert, sum, magnitude, largest);
}

}  // namespace halfbyte::test
