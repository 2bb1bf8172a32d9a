// SPDX-License-Identifier: Apache-2.0
//
// The left operand of an expert's GEMM in each activation mode: what the weights are multiplied
// with, and which scalar the sum is multiplied with afterwards.
#ifndef HALFBYTE_KERNELS_REFERENCE_EXPERT_OPERAND_H_
#define HALFBYTE_KERNELS_REFERENCE_EXPERT_OPERAND_H_

#include <cstdint>
#include <vector>

#include "halfbyte/moe.h"

namespace halfbyte::reference {

/// Memory of one operand; grows to the widest row of its thread.
struct OperandBuffers {
  std::vector<float> values;
  std::vector<float> col_scale;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> block_scale;
};

/// A view of one row, ready to multiply.
struct Operand {
  const float* values = nullptr;     // [size], exact: as given, or decoded codes without a scalar
  const float* col_scale = nullptr;  // kW4a8: [ceil(size / 128)]; else null
  std::int64_t size = 0;
  float encode_scale = 1.0F;     // NVFP4: a = RN(1 / s); global scales are divided by it
  float row_scale = 1.0F;        // NVFP4: s
  bool is_nvfp4 = false;         // the values were quantised to NVFP4
  bool weights_as_e4m3 = false;  // kW4a8
};

/// Quantises row [size] as `mode` says; `s` is the decode-side scale of kW4a4.
Operand make_operand(
    ActivationMode mode, const float* row, std::int64_t size, float s, OperandBuffers& buffers);

/// The same from codes [size / 2] and block scales [size / 16] that were quantised with s.
Operand make_quantized_operand(ActivationMode mode,
                               const std::uint8_t* codes,
                               const std::uint8_t* block_scale,
                               std::int64_t size,
                               float s,
                               OperandBuffers& buffers);

/// What a sum over this operand is multiplied with: the global scale, in the w4a4 modes divided by
/// the activation's encode scale; 0 for a row of kW4a4Dynamic without content.
float operand_alpha(const Operand& operand, float global_scale);

/// Row `row` of a weight as the operand's mode sees it, dst [cols]. Returns p: the sum is to be
/// multiplied by 2^-p (0 unless `as_e4m3` and the matrix is NVFP4).
int read_weight_row(const CanonicalMatrix& matrix, std::int64_t row, bool as_e4m3, float* dst);

/// sum of operand * weight_row in fp64.
double dot_operand(const Operand& operand, const float* weight_row, std::int64_t size);

}  // namespace halfbyte::reference

#endif  // HALFBYTE_KERNELS_REFERENCE_EXPERT_OPERAND_H_
