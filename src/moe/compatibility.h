// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_COMPATIBILITY_H_
#define HALFBYTE_MOE_COMPATIBILITY_H_

#include "base/log.h"
#include "halfbyte/moe.h"

namespace halfbyte {

/// Options with every implied one set (aliases resolved, tp raised to ep, dp attention under
/// all-to-all), or the first check of nvfp4-moe 11.3 that fails. A notice for each thing set by
/// itself. 0 sizes mean "not given".
Result<MoeOptions> resolve_options(const MoeSpec& spec, MoeOptions options, NoticeSink& notices);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_COMPATIBILITY_H_
