// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_COMPATIBILITY_H_
#define HALFBYTE_MOE_COMPATIBILITY_H_

#include "base/log.h"
#include "halfbyte/moe.h"

namespace halfbyte {

/// Other engines' spellings under ours: flashinfer_cutedsl is the CUDA backend of a device of this
/// compute capability (0: none here) in w4a4 unless a mode is given; flashinfer is all_to_all;
/// deepep and unknown names are refused. A notice for each.
Result<MoeOptions> resolve_aliases(MoeOptions options, int compute_capability, NoticeSink& notices);

/// Options with every implied one set (aliases resolved, tp raised to ep, dp attention under
/// all-to-all), or the first check of nvfp4-moe 11.3 that fails among those that need no backend
/// (rows 4 to 7 and 9; rows 1 to 3 and 8 are the registry's, row 10 the token budget's). A notice
/// for each thing set by itself. 0 sizes mean "not given"; none is left in the result.
Result<MoeOptions> resolve_options(const MoeSpec& spec,
                                   MoeOptions options,
                                   NoticeSink& notices,
                                   int compute_capability = 0);

/// Row 9's second half: what the mode allows of the payload and the wire.
Status check_exchange(const MoeOptions& options, ActivationMode mode);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_COMPATIBILITY_H_
