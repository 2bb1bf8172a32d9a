// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

namespace halfbyte {

void NoticeSink::notice(std::string_view key, std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (!sink_ || seen_.contains(key)) return;
  seen_.emplace(key);
  sink_(line);
}

}  // namespace halfbyte
