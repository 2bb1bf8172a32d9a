// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TESTS_BUGS_LOADER_BUGS_H_
#define HALFBYTE_TESTS_BUGS_LOADER_BUGS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/tiny_checkpoint.h"
#include "weights/checkpoint_weights.h"

namespace halfbyte::test {

/// A checkpoint on disk, opened; keeps the notices.
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

/// Replaces one fp32 scalar.
inline void set_scalar(TinyCheckpoint& checkpoint, const std::string& name, float value) {
  const auto shape = checkpoint.tensors.at(name).shape;
  put(checkpoint.tensors, f32_tensor(name, shape, {value}));
}

/// Drops the tensors of a linear and puts a bf16 one in its place.
inline void make_bf16(TinyCheckpoint& checkpoint,
                      const std::string& module,
                      std::int64_t rows,
                      std::int64_t cols) {
  std::erase_if(checkpoint.tensors,
                [&](const auto& entry) { return entry.first.starts_with(module + "."); });
  put(checkpoint.tensors,
      bf16_tensor(module + ".weight", {rows, cols},
                  std::vector<float>(static_cast<std::size_t>(rows * cols), 0.25F)));
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_BUGS_LOADER_BUGS_H_
