// SPDX-License-Identifier: Apache-2.0
//
// Which (transport, backend) pair runs a layer: one ordered list, each entry with its reason.
#ifndef HALFBYTE_MOE_REGISTRY_H_
#define HALFBYTE_MOE_REGISTRY_H_

#include <functional>
#include <string>
#include <vector>

#include "halfbyte/backends.h"
#include "moe/expert_backend.h"

namespace halfbyte {

enum class TakenByAuto : std::int32_t { kNo = 0, kWorldOne = 1, kWorldMany = 2 };

struct RegistryEntry {
  std::string transport;
  std::string backend;
  TakenByAuto taken_by_auto = TakenByAuto::kNo;
  std::function<Status(const MoeSpec&, ActivationMode, const DeviceLimits&)> can_run;
  /// What kAuto means for this entry; kAuto itself when a mode must be named.
  std::function<ActivationMode(const MoeSpec&)> resolve_auto;
};

/// The list as given; kInvalidArgument when a pair stands in it twice. Tests build lists of their
/// own.
Result<std::vector<RegistryEntry>> make_registry(std::vector<RegistryEntry> entries);
/// The pairs of nvfp4-moe 11.1, in order.
const std::vector<RegistryEntry>& default_registry();

struct RegistryChoice {
  std::string transport;
  std::string backend;
  ActivationMode mode = ActivationMode::kW4a16;
  std::vector<std::string> log;  // a line per skipped entry with its reason, then the chosen one
};

/// Rules of 11.1. `limits` are those of the device the layer lives on, `world` is the number of
/// ranks. No transport of this tree has a launcher, so several ranks may end in this process.
/// @return kInvalidArgument: a name that no entry has; kUnsupported: nothing can run, with the
///         reasons of all entries, or of the named one, each reason once.
Result<RegistryChoice> choose_entry(const std::vector<RegistryEntry>& registry,
                                    const MoeSpec& spec,
                                    const MoeOptions& options,
                                    const DeviceLimits& limits,
                                    int world);

/// The backend of this name in this build, or why there is none (kUnsupported: "not built").
Result<std::shared_ptr<ExpertBackend>> find_backend(std::string_view name);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_REGISTRY_H_
