// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TESTS_SUPPORT_OPENED_CHECKPOINT_H_
#define HALFBYTE_TESTS_SUPPORT_OPENED_CHECKPOINT_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/tiny_checkpoint.h"
#include "weights/checkpoint_weights.h"

namespace halfbyte::test {

/// Writes a checkpoint, opens it, keeps the notices.
struct OpenedCheckpoint {
  TempDirectory dir;
  std::vector<std::string> notices;
  Result<std::unique_ptr<CheckpointWeights>> weights = Status(StatusCode::kInternal, "");
  explicit OpenedCheckpoint(const TinyCheckpoint& checkpoint) {
    checkpoint.write(dir);
    weights = CheckpointWeights::open(dir.string(), false,
                                      std::make_shared<NoticeSink>([this](std::string_view line) {
                                        notices.emplace_back(line);
                                      }));
  }
  std::string error() const { return weights.ok() ? "" : weights.status().to_string(); }
  CheckpointWeights& operator*() { return *weights.value(); }
};

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_SUPPORT_OPENED_CHECKPOINT_H_
