// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TESTS_BUGS_LOADER_BUGS_H_
#define HALFBYTE_TESTS_BUGS_LOADER_BUGS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/opened_checkpoint.h"

namespace halfbyte::test {

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
