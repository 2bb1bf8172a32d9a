// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_SCALES_H_
#define HALFBYTE_MOE_SCALES_H_

#include <vector>

#include "base/log.h"
#include "comm/transport.h"
#include "halfbyte/moe.h"
#include "weights/sharding.h"

namespace halfbyte {

/// Every scalar that the kernels of one layer read; per local expert (nvfp4-moe 4.2, 4.3).
struct ExpertScales {
  float s1 = 1.0F;  // decode-side activation scale of X: max over all experts, gate and up
  float s2 = 1.0F;  // of h
  float a1 = 1.0F;  // RN(1 / s1)
  float a2 = 1.0F;
  std::vector<float> gate_global_scale, up_global_scale, down_global_scale;  // [L], multiply
  // [L]: kW4a16, kW4a8: the global scales; kW4a4: RN(gs / max(a, 1e-12)); kW4a4Dynamic: computed
  // per row from the global scales at run time.
  std::vector<float> gate_alpha, up_alpha, down_alpha;
};

/// Reduces input scales of all E experts to one scalar. Accepts the shapes of nvfp4-moe 4.1; a
/// shape [L] with a transport is all-reduced once. kCorruptData when a value is not finite, not > 0
/// or above 1e12.
Result<float> resolve_input_scale(const ScaleTensor& scale,
                                  std::string_view name,
                                  bool two_columns,
                                  std::int64_t num_experts,
                                  std::int64_t num_local_experts,
                                  Transport* transport,
                                  NoticeSink& notices);

/// Global scales of the local experts, one vector per column asked for (nvfp4-moe 4.1).
Result<std::vector<std::vector<float>>> resolve_global_scale(const ScaleTensor& scale,
                                                             std::string_view name,
                                                             int num_columns,
                                                             std::int64_t num_experts,
                                                             const ExpertShard& shard);

/// Fills a1, a2 and the alphas of `mode` from s1, s2 and the global scales.
void derive_alphas(ActivationMode mode, ExpertScales& scales);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_SCALES_H_
