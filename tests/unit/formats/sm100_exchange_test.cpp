// SPDX-License-Identifier: Apache-2.0
#include "formats/sm100_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "formats/convert.h"
#include "formats/e4m3.h"

namespace halfbyte {
namespace {

using ::testing::HasSubstr;

// An expert with random codes; block scales are taken from [scale_low, scale_high].
struct TestExpert {
  std::vector<std::vector<std::uint8_t>> bytes;
  CanonicalExpert view;

  TestExpert(
      std::int64_t hidden, std::int64_t intermediate, bool gated, int scale_low, int scale_high) {
    bytes.reserve(6);
    std::mt19937 random(17);
    if (gated) fill(view.gate, intermediate, hidden, scale_low, scale_high, random);
    fill(view.up, intermediate, hidden, scale_low, scale_high, random);
    fill(view.down, hidden, intermediate, scale_low, scale_high, random);
  }

  void fill(CanonicalMatrix& matrix,
            std::int64_t rows,
            std::int64_t cols,
            int low,
            int high,
            std::mt19937& random) {
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.codes = random_bytes(rows * cols / 2, 0, 255, random);
    matrix.block_scale = random_bytes(rows * cols / 16, low, high, random);
  }

  std::span<const std::uint8_t> random_bytes(std::int64_t count,
                                             int low,
                                             int high,
                                             std::mt19937& random) {
    std::uniform_int_distribution<int> any(low, high);
    std::vector<std::uint8_t>& vector = bytes.emplace_back(static_cast<std::size_t>(count));
    for (std::uint8_t& byte : vector)
      byte = static_cast<std::uint8_t>(any(random));
    return vector;
  }
};

struct TestSet {
  std::vector<std::uint8_t> gate_up_codes, gate_up_scale, down_codes, down_scale;
  std::vector<float> gate_up_alpha, down_alpha;
  explicit TestSet(const Sm100Layouts& layouts)
      : gate_up_codes(static_cast<std::size_t>(layouts.gate_up.code_bytes()), 0xEE),
        gate_up_scale(static_cast<std::size_t>(layouts.gate_up.scale_bytes()), 0xEE),
        down_codes(static_cast<std::size_t>(layouts.down.code_bytes()), 0xEE),
        down_scale(static_cast<std::size_t>(layouts.down.scale_bytes()), 0xEE),
        gate_up_alpha(static_cast<std::size_t>(layouts.gate_up.shape.num_experts)),
        down_alpha(gate_up_alpha.size()) {}
  Sm100Tensors dst() {
    return {gate_up_codes, gate_up_scale, down_codes, down_scale, gate_up_alpha, down_alpha};
  }
  ConstSm100Tensors src() const {
    return {gate_up_codes, gate_up_scale, down_codes, down_scale, gate_up_alpha, down_alpha};
  }
};

Sm100Layouts layouts_for(std::int64_t experts,
                         std::int64_t hidden,
                         std::int64_t intermediate,
                         bool gated) {
  Result<Sm100Layouts> layouts = make_sm100_layouts(experts, hidden, intermediate, gated);
  EXPECT_TRUE(layouts.ok());
  return layouts.ok() ? *layouts : Sm100Layouts();
}

void expect_equal_weights(const CanonicalMatrix& got, const CanonicalMatrix& want) {
  ASSERT_EQ(got.rows, want.rows);
  std::vector<float> got_row(static_cast<std::size_t>(want.cols)), want_row(got_row.size());
  for (std::int64_t row = 0; row < want.rows; ++row) {
    dequantize_row(got, row, got_row.data());
    dequantize_row(want, row, want_row.data());
    ASSERT_EQ(got_row, want_row) << row;
  }
}

TEST(Sm100Exchange, EqualGlobalScalesComeBackUnchanged) {
  for (const bool gated : {true, false}) {
    TestExpert expert(144, 96, gated, 0, 0x7E);
    expert.view.gate.global_scale = 0.3F;
    expert.view.up.global_scale = 0.3F;
    expert.view.down.global_scale = 0.7F;
    const Sm100Layouts layouts = layouts_for(3, 144, 96, gated);
    TestSet set(layouts);
    ASSERT_TRUE(export_sm100_expert(layouts, 2, expert.view, false, set.dst()).ok());
    EXPECT_EQ(set.gate_up_alpha[2], 0.3F);
    EXPECT_EQ(set.down_alpha[2], 0.7F);
    const Result<OwnedExpert> back = import_sm100_expert(layouts, 2, set.src());
    ASSERT_TRUE(back.ok());
    if (gated) expect_equal_weights(back->view.gate, expert.view.gate);
    expect_equal_weights(back->view.up, expert.view.up);
    expect_equal_weights(back->view.down, expert.view.down);
  }
}

TEST(Sm100Exchange, RowsAreUpFirstInBlocksOf64) {
  TestExpert expert(16, 64, true, 0x38, 0x38);
  const Sm100Layouts layouts = layouts_for(1, 16, 64, true);
  TestSet set(layouts);
  ASSERT_TRUE(export_sm100_expert(layouts, 0, expert.view, false, set.dst()).ok());
  EXPECT_TRUE(std::equal(expert.view.up.codes.begin(), expert.view.up.codes.end(),
                         set.gate_up_codes.begin()));
  EXPECT_TRUE(std::equal(expert.view.gate.codes.begin(), expert.view.gate.codes.end(),
                         set.gate_up_codes.begin() + 64 * 8));
}

TEST(Sm100Exchange, AnExactRatioIsFoldedIntoTheSmallerHalf) {
  // up = 4 * gate, and every block scale divided by 4 stays a normal E4M3 value.
  TestExpert expert(32, 64, true, 0x20, 0x7E);
  expert.view.gate.global_scale = 0.25F;
  expert.view.up.global_scale = 1.0F;
  const Sm100Layouts layouts = layouts_for(1, 32, 64, true);
  TestSet set(layouts);
  ASSERT_TRUE(export_sm100_expert(layouts, 0, expert.view, false, set.dst()).ok());
  EXPECT_EQ(set.gate_up_alpha[0], 1.0F);
  const Result<OwnedExpert> back = import_sm100_expert(layouts, 0, set.src());
  ASSERT_TRUE(back.ok());
  expect_equal_weights(back->view.gate, expert.view.gate);
  expect_equal_weights(back->view.up, expert.view.up);
}

TEST(Sm100Exchange, AnInexactRatioIsRefusedUnlessLossyIsAllowed) {
  TestExpert expert(32, 64, true, 0x21, 0x7E);
  expert.view.gate.global_scale = 1.0F;
  expert.view.up.global_scale = 0.9F;
  const Sm100Layouts layouts = layouts_for(1, 32, 64, true);
  TestSet set(layouts);
  const Status refused = export_sm100_expert(layouts, 0, expert.view, false, set.dst());
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("allow_lossy"));
  EXPECT_EQ(set.gate_up_codes[0], 0xEE);  // nothing written
  ASSERT_TRUE(export_sm100_expert(layouts, 0, expert.view, true, set.dst()).ok());
  const Result<OwnedExpert> back = import_sm100_expert(layouts, 0, set.src());
  ASSERT_TRUE(back.ok());
  expect_equal_weights(back->view.gate, expert.view.gate);  // the larger half is untouched
  for (std::size_t i = 0; i < expert.view.up.block_scale.size(); ++i) {
    const float want = e4m3_to_f32(expert.view.up.block_scale[i]) * 0.9F;
    EXPECT_NEAR(e4m3_to_f32(back->view.up.block_scale[i]), want, want / 16.0F);
  }
}

TEST(Sm100Exchange, AScaleThatWouldUnderflowIsNotExact) {
  TestExpert expert(16, 64, true, 0x01, 0x01);
  expert.view.gate.global_scale = 0x1p-4F;
  expert.view.up.global_scale = 1.0F;
  const Sm100Layouts layouts = layouts_for(1, 16, 64, true);
  TestSet set(layouts);
  EXPECT_EQ(export_sm100_expert(layouts, 0, expert.view, false, set.dst()).code(),
            StatusCode::kUnsupported);
}

TEST(Sm100Exchange, OtherFormatsAndShapesAreRefused) {
  TestExpert expert(32, 64, true, 1, 2);
  const Sm100Layouts layouts = layouts_for(1, 32, 64, true);
  TestSet set(layouts);
  EXPECT_EQ(export_sm100_expert(layouts, 1, expert.view, false, set.dst()).code(),
            StatusCode::kInvalidArgument);
  const Sm100Layouts other = layouts_for(1, 48, 64, true);
  TestSet other_set(other);
  EXPECT_EQ(export_sm100_expert(other, 0, expert.view, false, other_set.dst()).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(export_sm100_expert(other, 0, expert.view, false, set.dst()).code(),
            StatusCode::kInvalidArgument);
  expert.view.down.format = WeightFormat::kBf16;
  EXPECT_EQ(export_sm100_expert(layouts, 0, expert.view, false, set.dst()).code(),
            StatusCode::kUnsupported);
  EXPECT_EQ(import_sm100_expert(other, 0, set.src()).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace halfbyte
