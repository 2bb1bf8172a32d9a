// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_CHECKPOINT_MODULE_PATH_H_
#define HALFBYTE_CHECKPOINT_MODULE_PATH_H_

#include <string_view>

namespace halfbyte {

/// A tensor's or module's name without the wrapper's prefix (checkpoints.md 5.1):
/// "model.language_model.layers.0" and "backbone.layers.0" are both "layers.0".
std::string_view strip_prefix(std::string_view name);

/// The container of a module: "a.b" of "a.b.c", empty for "a".
std::string_view parent_path(std::string_view path);

}  // namespace halfbyte

#endif  // HALFBYTE_CHECKPOINT_MODULE_PATH_H_
