// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TESTS_UNIT_WEIGHTS_OPENED_CHECKPOINT_H_
#define HALFBYTE_TESTS_UNIT_WEIGHTS_OPENED_CHECKPOINT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/opened_checkpoint.h"

namespace halfbyte::test {

using Opened = OpenedCheckpoint;

/// A tensor of one repeated byte.
inline TestTensor bytes_of(const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
  std::int64_t bytes = dtype_bytes(dtype);
  for (const std::int64_t dim : shape)
    bytes *= dim;
  return byte_tensor(name, dtype, std::move(shape),
                     std::vector<std::uint8_t>(static_cast<std::size_t>(bytes), 0x30));
}

inline void expect_same(const CanonicalMatrix& a, const CanonicalMatrix& b) {
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.cols, b.cols);
  EXPECT_EQ(a.global_scale, b.global_scale);
  EXPECT_TRUE(std::equal(a.codes.begin(), a.codes.end(), b.codes.begin(), b.codes.end()));
  EXPECT_TRUE(std::equal(a.block_scale.begin(), a.block_scale.end(), b.block_scale.begin(),
                         b.block_scale.end()));
}

inline void expect_same_experts(CheckpointWeights& a, CheckpointWeights& b) {
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const auto info_a = a.expert_layer(layer, ActivationMode::kW4a4);
    const auto info_b = b.expert_layer(layer, ActivationMode::kW4a4);
    ASSERT_TRUE(info_a.ok() && info_b.ok());
    EXPECT_EQ(info_a->input_scales.gate_up.values, info_b->input_scales.gate_up.values);
    EXPECT_EQ(info_a->input_scales.down.values, info_b->input_scales.down.values);
    for (std::int64_t expert = 0; expert < 4; ++expert) {
      const auto x = a.expert(layer, expert);
      const auto y = b.expert(layer, expert);
      ASSERT_TRUE(x.ok() && y.ok());
      expect_same(x->gate.matrix, y->gate.matrix);
      expect_same(x->up.matrix, y->up.matrix);
      expect_same(x->down.matrix, y->down.matrix);
    }
  }
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_UNIT_WEIGHTS_OPENED_CHECKPOINT_H_
