// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_BACKENDS_NOT_BUILT_H_
#define HALFBYTE_MOE_BACKENDS_NOT_BUILT_H_

#include <memory>
#include <string>

#include "moe/expert_backend.h"

namespace halfbyte {

/// A backend that this build does not contain: it stands in the list, and says why it cannot run.
std::shared_ptr<ExpertBackend> make_not_built_backend(std::string name, std::string reason);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_NOT_BUILT_H_
