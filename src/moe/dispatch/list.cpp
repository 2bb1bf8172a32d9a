// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "moe/dispatch/dispatchers.h"
#include "moe/dispatcher.h"

namespace halfbyte {

std::vector<std::string> list_dispatchers() {
  return {"local", "standard", "all_to_all"};
}

Result<std::unique_ptr<Dispatcher>> make_dispatcher(std::string_view name,
                                                    Transport* transport,
                                                    DeviceKind device_kind) {
  const bool on_host = device_kind == DeviceKind::kHost;
  if (name == "local") return on_host ? make_local_dispatcher() : make_local_cuda_dispatcher();
  if (name == "standard" && on_host) return make_standard_dispatcher(transport);
  if (name == "all_to_all" && on_host) return make_all_to_all_dispatcher(transport);
  if (name == "standard" || name == "all_to_all") {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("dispatch {} moves tokens through host memory: a layer on a CUDA device "
                    "is one rank, until nccl connects several",
                    name));
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("no dispatcher is named '{}': there are {}", name,
                            fmt::join(list_dispatchers(), ", ")));
}

}  // namespace halfbyte
