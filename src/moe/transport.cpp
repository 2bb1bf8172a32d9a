// SPDX-License-Identifier: Apache-2.0
#include "halfbyte/transport.h"

#include <fmt/format.h>

#include <utility>

#include "base/no_throw.h"
#include "comm/transport.h"

namespace halfbyte {

Result<std::vector<std::shared_ptr<Transport>>> make_in_process_ranks(
    int num_ranks, std::chrono::milliseconds deadline) {
  if (num_ranks < 1 || deadline.count() <= 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} ranks with a deadline of {} ms, want 1 or more of both",
                              num_ranks, deadline.count()));
  }
  return no_throw([&]() -> Result<std::vector<std::shared_ptr<Transport>>> {
    std::vector<std::shared_ptr<Transport>> ranks;
    for (std::unique_ptr<Transport>& rank : make_in_process_transports(num_ranks)) {
      rank->set_deadline(deadline);
      ranks.push_back(std::move(rank));
    }
    return ranks;
  });
}

void abort_ranks(Transport& transport, const Status& why) {
  transport.abort(why);
}

}  // namespace halfbyte
