// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_KERNELS_CPU_PACK_H_
#define HALFBYTE_KERNELS_CPU_PACK_H_

#include <cstddef>
#include <cstdint>

#include "halfbyte/moe.h"
#include "kernels/cpu/panel_layout.h"

namespace halfbyte::cpu {

/// The panel shape of a canonical matrix. kUnsupported: FP8 whose scale groups do not lie on
/// multiples of 16 columns. kInvalidArgument: a span's size does not match the shape.
Result<PanelShape> panel_shape(const CanonicalMatrix& weight);

/// Writes panel p of `weight` at dst + p * panel_stride, padding included.
/// kCorruptData: an E4M3 NaN or a negative block scale, naming row and block.
Status pack_panels(const CanonicalMatrix& weight,
                   const PanelShape& shape,
                   std::uint8_t* dst,
                   std::int64_t panel_stride);

}  // namespace halfbyte::cpu

#endif  // HALFBYTE_KERNELS_CPU_PACK_H_
