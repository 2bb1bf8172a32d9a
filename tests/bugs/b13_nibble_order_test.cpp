// SPDX-License-Identifier: Apache-2.0
//
// Element 2i is the low nibble, 2i + 1 the high one.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "formats/convert.h"
#include "kernels/reference/dense.h"

namespace halfbyte::reference {
namespace {

struct OneBlock {
  std::vector<std::uint8_t> codes = std::vector<std::uint8_t>(8, 0);
  std::vector<std::uint8_t> block_scale = {0x38};
  CanonicalMatrix matrix;
  explicit OneBlock(std::uint8_t first_byte) {
    codes[0] = first_byte;
    matrix.rows = 1;
    matrix.cols = 16;
    matrix.codes = codes;
    matrix.block_scale = block_scale;
  }
};

TEST(B13NibbleOrder, Byte0x21TimesOneAndTenIs10Point5) {
  const OneBlock block(0x21);
  std::vector<float> x(16, 0.0F);
  x[0] = 1.0F;
  x[1] = 10.0F;
  float y = 0.0F;
  linear(block.matrix, nullptr, x.data(), 1, &y);
  EXPECT_EQ(y, 10.5F);  // the other order gives 6
}

TEST(B13NibbleOrder, Byte0x9AIsMinusOneThenMinusHalf) {
  const OneBlock block(0x9A);
  std::vector<float> row(16);
  decode_row(block.matrix, 0, row.data());
  EXPECT_EQ(row[0], -1.0F);
  EXPECT_EQ(row[1], -0.5F);
}

}  // namespace
}  // namespace halfbyte::reference
