// SPDX-License-Identifier: Apache-2.0
//
// Experts in the form that FlashInfer's Blackwell kernels read: gate_up rows interleaved by 64 [up,
// gate], scales in blocks of 128 x 4, and one alpha per expert for gate and up together.
#ifndef HALFBYTE_FORMATS_SM100_EXCHANGE_H_
#define HALFBYTE_FORMATS_SM100_EXCHANGE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "formats/layout.h"
#include "halfbyte/moe.h"

namespace halfbyte {

struct Sm100Layouts {
  WeightLayout gate_up;
  WeightLayout down;  // its columns are padded as the halves of gate_up are
};

/// Gated experts are padded to 64 rows a half; non-gated ones are neither interleaved nor padded.
Result<Sm100Layouts> make_sm100_layouts(std::int64_t num_experts,
                                        std::int64_t hidden_size,
                                        std::int64_t intermediate_size,
                                        bool gated);

/// The set; alphas are decode-side global scales (they multiply).
template <typename Byte, typename Float>
struct BasicSm100Tensors {
  std::span<Byte> gate_up_codes;        // [layouts.gate_up.code_bytes()]
  std::span<Byte> gate_up_block_scale;  // [layouts.gate_up.scale_bytes()]
  std::span<Byte> down_codes;           // [layouts.down.code_bytes()]
  std::span<Byte> down_block_scale;     // [layouts.down.scale_bytes()]
  std::span<Float> gate_up_alpha;       // [num_experts]
  std::span<Float> down_alpha;          // [num_experts]
};
using Sm100Tensors = BasicSm100Tensors<std::uint8_t, float>;
using ConstSm100Tensors = BasicSm100Tensors<const std::uint8_t, const float>;

/// Writes one expert into the set. When gate and up differ in their global scale, the block scales
/// of the smaller half are multiplied by own / max.
///
/// @return kUnsupported: the expert is not NVFP4, or a changed scale is not exact in E4M3 and
///         `allow_lossy` is false (how many, and the two global scales). kInvalidArgument: shapes
///         or spans that do not fit. Nothing is written then.
Status export_sm100_expert(const Sm100Layouts& layouts,
                           std::int64_t expert_idx,
                           const CanonicalExpert& expert,
                           bool allow_lossy,
                           const Sm100Tensors& dst);

/// An expert that owns its bytes.
struct OwnedExpert {
  std::vector<std::uint8_t> gate_up_codes, gate_up_block_scale;  // gate rows first
  std::vector<std::uint8_t> down_codes, down_block_scale;
  CanonicalExpert view;  // of the vectors above; moving keeps it valid, copying does not

  OwnedExpert() = default;
  OwnedExpert(OwnedExpert&&) = default;
  OwnedExpert& operator=(OwnedExpert&&) = default;
};

/// Reads one expert of the set; its one alpha becomes the global scale of gate and of up.
Result<OwnedExpert> import_sm100_expert(const Sm100Layouts& layouts,
                                        std::int64_t expert_idx,
                                        const ConstSm100Tensors& src);

}  // namespace halfbyte

#endif  // HALFBYTE_FORMATS_SM100_EXCHANGE_H_
