// SPDX-License-Identifier: Apache-2.0
#include "moe/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "comm/transport.h"
#include "moe/device_limits.h"

namespace halfbyte {
namespace {

struct Pair {
  std::string_view transport;
  std::string_view backend;
  TakenByAuto taken_by_auto;
};

// nvfp4-moe 11.1: the order is the preference.
constexpr Pair kPairs[] = {
    {"local", "cuda_sm100", TakenByAuto::kWorldOne}, {"local", "cuda_sm90", TakenByAuto::kWorldOne},
    {"local", "cpu", TakenByAuto::kWorldOne},        {"local", "reference", TakenByAuto::kNo},
    {"nccl", "cuda_sm100", TakenByAuto::kWorldMany}, {"nccl", "cuda_sm90", TakenByAuto::kWorldMany},
    {"mpi", "cpu", TakenByAuto::kWorldMany},         {"mpi", "reference", TakenByAuto::kNo},
    {"in_process", "cpu", TakenByAuto::kNo},         {"in_process", "reference", TakenByAuto::kNo},
    {"in_process", "cuda_sm90", TakenByAuto::kNo},   {"in_process", "cuda_sm100", TakenByAuto::kNo},
};

Status transport_status(std::string_view name) {
  if (name == "local") return {};
  for (const TransportEntry& entry : list_transports()) {
    if (entry.name == name) return entry.available.clone();
  }
  return {StatusCode::kUnsupported,
          fmt::format("transport {} is not built into this halfbyte", name)};
}

Status default_can_run(std::string_view transport,
                       std::string_view backend,
                       const MoeSpec& spec,
                       ActivationMode mode,
                       const DeviceLimits& limits) {
  HALFBYTE_ASSIGN_OR_RETURN(const auto found, find_backend(backend));
  HALFBYTE_RETURN_IF_ERROR(found->can_use(limits));
  HALFBYTE_RETURN_IF_ERROR(found->can_run(spec, mode));
  if (transport == "in_process" && found->device_kind() == DeviceKind::kCuda) {
    return {StatusCode::kUnsupported,
            fmt::format("{}: in_process moves tokens through host memory, and a layer on a CUDA "
                        "device is one rank until nccl connects several",
                        backend)};
  }
  return transport_status(transport);
}

ActivationMode default_resolve_auto(std::string_view backend, const MoeSpec& spec) {
  auto found = find_backend(backend);
  return found.ok() ? found.value()->resolve_auto(spec) : ActivationMode::kAuto;
}

RegistryEntry default_entry(const Pair& pair) {
  const auto can_run = [pair](const MoeSpec& spec, ActivationMode mode,
                              const DeviceLimits& limits) {
    return default_can_run(pair.transport, pair.backend, spec, mode, limits);
  };
  const auto resolve_auto = [pair](const MoeSpec& spec) {
    return default_resolve_auto(pair.backend, spec);
  };
  return {std::string(pair.transport), std::string(pair.backend), pair.taken_by_auto, can_run,
          resolve_auto};
}

std::vector<RegistryEntry> default_entries() {
  std::vector<RegistryEntry> entries;
  for (const Pair& pair : kPairs)
    entries.push_back(default_entry(pair));
  return entries;
}

ActivationMode mode_of(const RegistryEntry& entry, const MoeSpec& spec, ActivationMode given) {
  if (given != ActivationMode::kAuto || !entry.resolve_auto) return given;
  return entry.resolve_auto(spec);
}

std::string pair_name(const RegistryEntry& entry) {
  return fmt::format("{} + {}", entry.transport, entry.backend);
}

Status fits_world(const RegistryEntry& entry, int world, bool transport_named) {
  if (entry.transport == "local" && world > 1) {
    return {StatusCode::kUnsupported, fmt::format("local is one rank, there are {}", world)};
  }
  if (entry.transport != "local" && world == 1 && !transport_named) {
    return {StatusCode::kUnsupported, "it connects several ranks, there is one"};
  }
  return {};
}

Status entry_can_run(const RegistryEntry& entry,
                     const MoeSpec& spec,
                     const MoeOptions& options,
                     const DeviceLimits& limits,
                     int world) {
  HALFBYTE_RETURN_IF_ERROR(
      entry.can_run(spec, mode_of(entry, spec, options.activation_mode), limits));
  return fits_world(entry, world, options.transport != "auto");
}

// With both names left to auto, the rows that auto takes; several ranks end in the rows of this
// process (9 and 10), after all others.
std::vector<const RegistryEntry*> auto_candidates(const std::vector<RegistryEntry>& registry,
                                                  int world) {
  const TakenByAuto wanted = world == 1 ? TakenByAuto::kWorldOne : TakenByAuto::kWorldMany;
  std::vector<const RegistryEntry*> candidates;
  for (const RegistryEntry& entry : registry) {
    if (entry.taken_by_auto == wanted) candidates.push_back(&entry);
  }
  if (world == 1) return candidates;
  for (const RegistryEntry& entry : registry) {
    const bool on_host = entry.backend == "cpu" || entry.backend == "reference";
    if (entry.transport == "in_process" && on_host) candidates.push_back(&entry);
  }
  return candidates;
}

bool matches(std::string_view wanted, std::string_view name) {
  return wanted == "auto" || wanted == name;
}

std::vector<const RegistryEntry*> named_candidates(const std::vector<RegistryEntry>& registry,
                                                   const MoeOptions& options) {
  std::vector<const RegistryEntry*> candidates;
  for (const RegistryEntry& entry : registry) {
    if (matches(options.transport, entry.transport) &&
        matches(options.runner_backend, entry.backend)) {
      candidates.push_back(&entry);
    }
  }
  return candidates;
}

// Every name that the registry knows, in its order.
template <typename NameOf>
Status check_name(std::string_view option,
                  std::string_view given,
                  const std::vector<RegistryEntry>& registry,
                  NameOf name_of) {
  std::vector<std::string> known = {"auto"};
  for (const RegistryEntry& entry : registry) {
    if (std::find(known.begin(), known.end(), name_of(entry)) == known.end()) {
      known.push_back(name_of(entry));
    }
  }
  if (std::find(known.begin(), known.end(), given) != known.end()) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("{} is \"{}\", want {}", option, given, fmt::join(known, ", "))};
}

Status check_names(const std::vector<RegistryEntry>& registry, const MoeOptions& options) {
  HALFBYTE_RETURN_IF_ERROR(check_name("--moe-runner-backend", options.runner_backend, registry,
                                      [](const RegistryEntry& entry) { return entry.backend; }));
  return check_name("--moe-transport", options.transport, registry,
                    [](const RegistryEntry& entry) { return entry.transport; });
}

// A reason, and the pairs that gave it.
struct Skipped {
  std::string reason;
  std::vector<std::string> pairs;
};

void add_skipped(const RegistryEntry& entry, std::string_view reason, std::vector<Skipped>& all) {
  const auto same = std::find_if(all.begin(), all.end(),
                                 [reason](const Skipped& one) { return one.reason == reason; });
  if (same != all.end()) {
    same->pairs.push_back(pair_name(entry));
  } else {
    all.push_back({std::string(reason), {pair_name(entry)}});
  }
}

Status nothing_runs(const MoeOptions& options, int world, const std::vector<Skipped>& skipped) {
  std::vector<std::string> lines;
  lines.reserve(skipped.size());
  for (const Skipped& one : skipped)
    lines.push_back(fmt::format("{} skipped: {}", fmt::join(one.pairs, ", "), one.reason));
  const std::string reasons =
      lines.empty() ? "there is no such entry" : fmt::format("{}", fmt::join(lines, "; "));
  return {StatusCode::kUnsupported,
          fmt::format("--moe-runner-backend {} with --moe-transport {} cannot run on {} rank{}: {}",
                      options.runner_backend, options.transport, world, world == 1 ? "" : "s",
                      reasons)};
}

}  // namespace

Result<std::vector<RegistryEntry>> make_registry(std::vector<RegistryEntry> entries) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const RegistryEntry& entry : entries) {
    if (!seen.emplace(entry.transport, entry.backend).second) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("the registry lists {} twice", pair_name(entry)));
    }
  }
  return entries;
}

const std::vector<RegistryEntry>& default_registry() {
  static const std::vector<RegistryEntry> registry = make_registry(default_entries()).value();
  return registry;
}

Result<std::shared_ptr<ExpertBackend>> find_backend(std::string_view name) {
  for (const std::shared_ptr<ExpertBackend>& backend : list_expert_backends()) {
    if (backend->name() == name) return backend;
  }
  return Status(StatusCode::kUnsupported, fmt::format("{} is not built into this halfbyte", name));
}

Result<RegistryChoice> choose_entry(const std::vector<RegistryEntry>& registry,
                                    const MoeSpec& spec,
                                    const MoeOptions& options,
                                    const DeviceLimits& limits,
                                    int world) {
  HALFBYTE_RETURN_IF_ERROR(check_names(registry, options));
  const bool named = options.transport != "auto" || options.runner_backend != "auto";
  const auto candidates =
      named ? named_candidates(registry, options) : auto_candidates(registry, world);
  RegistryChoice choice;
  std::vector<Skipped> skipped;
  for (const RegistryEntry* entry : candidates) {
    const Status status = entry_can_run(*entry, spec, options, limits, world);
    if (!status.ok()) {
      add_skipped(*entry, status.message(), skipped);
      choice.log.push_back(fmt::format("{} skipped: {}", pair_name(*entry), status.message()));
      continue;
    }
    choice.transport = entry->transport;
    choice.backend = entry->backend;
    choice.mode = mode_of(*entry, spec, options.activation_mode);
    choice.log.push_back(fmt::format("{} chosen, {}{}", pair_name(*entry),
                                     activation_mode_name(choice.mode),
                                     named ? " (named by option)" : ""));
    return choice;
  }
  return nothing_runs(options, world, skipped);
}

namespace {

// Of the device that the backend is asked about.
Result<DeviceLimits> limits_here(const ExpertBackend& backend, const MoeOptions& options) {
  if (backend.device_kind() == DeviceKind::kHost)
    return read_device_limits({}, options.num_threads);
  const bool named = options.device.kind == DeviceKind::kCuda;
  auto limits = read_device_limits(named ? options.device : Device{DeviceKind::kCuda, 0},
                                   options.num_threads);
  if (!limits.ok()) return limits.take_status().with_context(backend.name());
  return limits;
}

Status can_run_here(const RegistryEntry& entry, const MoeSpec& spec, const MoeOptions& options) {
  HALFBYTE_ASSIGN_OR_RETURN(const auto backend, find_backend(entry.backend));
  HALFBYTE_ASSIGN_OR_RETURN(const DeviceLimits limits, limits_here(*backend, options));
  return entry.can_run(spec, mode_of(entry, spec, options.activation_mode), limits);
}

}  // namespace

std::vector<BackendReport> list_backends(const MoeSpec& spec, const MoeOptions& options) {
  std::vector<BackendReport> reports;
  for (const RegistryEntry& entry : default_registry()) {
    BackendReport report;
    report.transport = entry.transport;
    report.backend = entry.backend;
    report.taken_by_auto = entry.taken_by_auto == TakenByAuto::kNo         ? "no"
                           : entry.taken_by_auto == TakenByAuto::kWorldOne ? "world 1"
                                                                           : "world > 1";
    report.can_run = can_run_here(entry, spec, options);
    auto backend = find_backend(entry.backend);
    if (report.can_run.ok() && backend.ok()) report.note = backend.value()->note();
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace halfbyte
