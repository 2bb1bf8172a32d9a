// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "moe/dispatch/dispatchers.h"
#include "moe/dispatcher.h"

namespace halfbyte {

std::vector<std::string> list_dispatchers() {
  return {"local", "standard", "all_to_all"};
}

Result<std::unique_ptr<Dispatcher>> make_dispatcher(std::string_view name, Transport* transport) {
  if (name == "local") return make_local_dispatcher();
  if (name == "standard") return make_standard_dispatcher(transport);
  if (name == "all_to_all") return make_all_to_all_dispatcher(transport);
  return Status(StatusCode::kInvalidArgument,
                fmt::format("no dispatcher is named '{}': there are {}", name,
                            fmt::join(list_dispatchers(), ", ")));
}

}  // namespace halfbyte
