// SPDX-License-Identifier: Apache-2.0
//
// y = x W^T on the CPU for every weight format; experts and dense linears use the same kernels.
#ifndef HALFBYTE_KERNELS_CPU_LINEAR_H_
#define HALFBYTE_KERNELS_CPU_LINEAR_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/host_buffer.h"
#include "base/thread_pool.h"
#include "halfbyte/moe.h"
#include "kernels/cpu/kernel_table.h"

namespace halfbyte::cpu {

/// A weight matrix in the layout of the kernels. Owns its memory; immutable once packed; any thread
/// may read.
struct PackedMatrix {
  WeightFormat format = WeightFormat::kNvfp4;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  float global_scale = 1.0F;          // 1 unless kNvfp4
  std::int64_t scale_block_cols = 0;  // kFp8
  HostBuffer data;                    // panel_layout.h
};

/// Packs a canonical matrix. FP8 whose scale groups do not lie on multiples of 16 columns is kept
/// in fp32 (one rounding per weight). kInvalidArgument: spans that do not match the shape.
/// kCorruptData: an E4M3 NaN or a negative block scale.
Result<PackedMatrix> pack_matrix(const CanonicalMatrix& weight);

/// Where the products go: y [num_tokens, rows], each sum times `scale`.
struct LinearOutput {
  float* data = nullptr;
  std::int64_t row_stride = 0;  // floats
  float scale = 1.0F;
};

/// y = scale * x W^T, block scales applied, the matrix's global scale left to `y.scale`. Each
/// element is summed in an order that depends on cols alone: the same bits for every num_tokens and
/// number of threads.
///
/// x [num_tokens, cols] in fp32: weights of any format, exact; at least 8 partial sums.
void linear(const PackedMatrix& weight,
            const float* x,
            std::int64_t num_tokens,
            const LinearOutput& y,
            ThreadPool& pool,
            const KernelTable& kernels = best_kernel_table());
/// x [num_tokens, num_records(cols)] as integers (operand_rows.h), kNvfp4 weights: an expert's
/// kernels and their contract (integer_kernels.h), the same bits on every instruction set.
void linear(const PackedMatrix& weight,
            const Split15Record* x,
            std::int64_t num_tokens,
            const LinearOutput& y,
            ThreadPool& pool,
            const KernelTable& kernels = best_kernel_table());
void linear(const PackedMatrix& weight,
            const Int8Record* x,
            std::int64_t num_tokens,
            const LinearOutput& y,
            ThreadPool& pool,
            const KernelTable& kernels = best_kernel_table());

/// The instruction set that runs here and what the better ones lack: "avx2 (no avx512f, no
/// avx_vnni)".
std::string isa_description();

}  // namespace halfbyte::cpu

#endif  // HALFBYTE_KERNELS_CPU_LINEAR_H_
