// SPDX-License-Identifier: Apache-2.0
//
// MoE layers with random NVFP4 weights.
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_SYNTHETIC_LAYER_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_SYNTHETIC_LAYER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/shapes.h"
#include "halfbyte/moe.h"

namespace halfbyte::tool {

/// Layers of `shape` with bf16 in and out, ready to run and with one workspace. Codes are uniform,
/// block scales take every legal value, global scales differ between experts and are such that
/// outputs are of the order of the inputs. An expert of another rank is no expert here: a layer has
/// shape.num_local_experts. Errors: those of MoeLayer::create.
Result<std::vector<std::unique_ptr<MoeLayer>>> make_synthetic_layers(const LayerShape& shape,
                                                                     const MoeOptions& options,
                                                                     std::int64_t num_layers);

/// Scratch memory that such a layer plans. Errors: those of MoeLayer::create.
Result<std::int64_t> synthetic_workspace_bytes(const LayerShape& shape, const MoeOptions& options);

/// [num_tokens, hidden_size] bf16 values, normal with deviation 1.
std::vector<std::uint16_t> make_synthetic_rows(std::int64_t num_tokens, std::int64_t hidden_size);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_SYNTHETIC_LAYER_H_
