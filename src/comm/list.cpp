// SPDX-License-Identifier: Apache-2.0
#include "comm/transport.h"

namespace halfbyte {

std::vector<TransportEntry> list_transports() {
  std::vector<TransportEntry> entries;
  entries.push_back({"local", Status()});
  entries.push_back({"nccl", Status(StatusCode::kUnsupported, "nccl is not built")});
  entries.push_back({"mpi", Status(StatusCode::kUnsupported, "mpi is not built")});
  entries.push_back({"in_process", Status()});
  return entries;
}

}  // namespace halfbyte
