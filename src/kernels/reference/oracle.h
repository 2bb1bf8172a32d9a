// SPDX-License-Identifier: Apache-2.0
//
// What tests measure backends with: one expert in fp64 without intermediate rounding, exact integer
// sums for NVFP4 x NVFP4, and the error bounds of docs/numerics.md.
#ifndef HALFBYTE_KERNELS_REFERENCE_ORACLE_H_
#define HALFBYTE_KERNELS_REFERENCE_ORACLE_H_

#include <cstdint>
#include <span>

#include "halfbyte/moe.h"
#include "kernels/reference/expert.h"

namespace halfbyte::reference {

/// One expert on one row in fp64: h [I] after the activation (before it is quantised or rounded;
/// may be null) and y [H], unweighted. x [H] is the activation as given. Values are quantised only
/// where `mode` says so, from values rounded to fp32. `bf16_h` also rounds h to bf16 before GEMM2.
void oracle_expert_row(const CanonicalExpert& expert,
                       const ActivationSpec& activation,
                       ActivationMode mode,
                       const ExpertScalars& scalars,
                       const float* x,
                       bool bf16_h,
                       double* h,
                       double* y);

/// h of one element in fp64, with the exact sigmoid.
double oracle_activate(const ActivationSpec& activation, double g, double u);

/// One stage: out [matrix.rows] = alpha * sum over x [cols] * W without its global scale, and
/// abs_sum [rows] = |alpha| * sum |x| |w| (may be null).
void oracle_gemm_row(
    const CanonicalMatrix& matrix, const double* x, double alpha, double* out, double* abs_sum);

/// sum of x * w over NVFP4 rows (codes [cols / 2], block scales [cols / 16], no scalars) in units
/// of 2^-20, exactly. cols <= 2^19. No block scale may be NaN.
std::int64_t exact_dot_units(const std::uint8_t* x_codes,
                             const std::uint8_t* x_block_scale,
                             const std::uint8_t* w_codes,
                             const std::uint8_t* w_block_scale,
                             std::int64_t cols);
inline constexpr double kExactDotUnit = 0x1p-20;

/// Whether every partial sum of that dot product, in any order, is exact in fp32:
/// sum |x w| <= 2^24 * q, q = the smallest lsb(sf_x) * lsb(sf_w) / 4 over blocks with both scales
/// non-zero.
bool fp32_sums_are_exact(const std::uint8_t* x_codes,
                         const std::uint8_t* x_block_scale,
                         const std::uint8_t* w_codes,
                         const std::uint8_t* w_block_scale,
                         std::int64_t cols);

/// Hard bounds of one element of one GEMM stage; `abs_sum` = sum |x| |w| times |alpha|.
/// IEEE fp32 sums: longest chain of additions * 2^-24.
double fp32_gemm_bound(double abs_sum, std::int64_t longest_chain);
/// bf16 tensor cores: (K / 16 + split parts) * 2^-22.
double tensor_core_gemm_bound(double abs_sum, std::int64_t cols, std::int64_t split_parts);

/// ||got - want|| / ||want||; 0 when both are zero, infinity when only `want` is, NaN when `got`
/// has one.
double rel_l2(std::span<const float> got, std::span<const double> want);
/// max |got - want|; NaN when `got` has one.
double max_abs_error(std::span<const float> got, std::span<const double> want);

}  // namespace halfbyte::reference

#endif  // HALFBYTE_KERNELS_REFERENCE_ORACLE_H_
