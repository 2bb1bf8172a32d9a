// SPDX-License-Identifier: Apache-2.0
//
// Rules: nvfp4-moe 2.2.
#include "moe/expert_check.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

namespace halfbyte {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kHidden = 48;
constexpr std::int64_t kIntermediate = 32;

MoeSpec small_spec() {
  MoeSpec spec;
  spec.hidden_size = kHidden;
  spec.intermediate_size = kIntermediate;
  spec.num_experts = 2;
  spec.top_k = 1;
  return spec;
}

struct OwnedMatrix {
  OwnedMatrix(std::int64_t num_rows, std::int64_t num_cols)
      : rows(num_rows),
        cols(num_cols),
        codes(static_cast<std::size_t>(rows * cols / 2), 0x22),
        block_scale(static_cast<std::size_t>(rows * cols / 16), 0x38) {}
  CanonicalMatrix view() const {
    CanonicalMatrix matrix;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.codes = codes;
    matrix.block_scale = block_scale;
    matrix.global_scale = global_scale;
    return matrix;
  }
  std::int64_t rows, cols;
  std::vector<std::uint8_t> codes, block_scale;
  float global_scale = 0.5F;
};

struct OwnedExpert {
  OwnedMatrix gate{kIntermediate, kHidden};
  OwnedMatrix up{kIntermediate, kHidden};
  OwnedMatrix down{kHidden, kIntermediate};
  CanonicalExpert view() const { return {gate.view(), up.view(), down.view()}; }
};

Status refusal(const OwnedExpert& expert) {
  auto checked = check_expert(small_spec(), expert.view());
  EXPECT_FALSE(checked.ok());
  return checked.ok() ? Status() : checked.take_status();
}

TEST(ExpertCheck, AGoodExpertIsUsedWhereItLies) {
  const OwnedExpert expert;
  auto checked = check_expert(small_spec(), expert.view());
  ASSERT_TRUE(checked.ok());
  EXPECT_EQ(checked->view.up.block_scale.data(), expert.up.block_scale.data());
}

TEST(ExpertCheck, EveryBadGlobalScaleIsNamed) {
  for (const float bad : {NAN, INFINITY, -INFINITY, 0.0F, -0.0F, -1.0F}) {
    OwnedExpert expert;
    expert.gate.global_scale = bad;
    expert.down.global_scale = bad;
    const Status status = refusal(expert);
    EXPECT_EQ(status.code(), StatusCode::kCorruptData);
    EXPECT_THAT(std::string(status.message()), HasSubstr("gate.global_scale"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("down.global_scale"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("want finite and > 0"));
  }
}

// Row 2 has three groups of 16: byte 7 is its group 1.
TEST(ExpertCheck, ANanBlockScaleNeedsAZeroBlock) {
  for (const std::uint8_t byte : std::vector<std::uint8_t>{0x7F, 0xFF}) {
    OwnedExpert expert;
    expert.up.block_scale[7] = byte;
    const Status status = refusal(expert);
    EXPECT_EQ(status.code(), StatusCode::kCorruptData);
    EXPECT_THAT(std::string(status.message()), HasSubstr("up.block_scale: row 2 group 1 is 0x"));

    std::fill_n(expert.up.codes.begin() + 7 * 8, 8, std::uint8_t{0x80});  // 0 and -0
    auto checked = check_expert(small_spec(), expert.view());
    ASSERT_TRUE(checked.ok());
    EXPECT_EQ(checked->view.up.block_scale[7], 0x00);
    EXPECT_EQ(checked->view.up.block_scale[6], 0x38);
    EXPECT_EQ(expert.up.block_scale[7], byte);  // the caller's bytes stay
  }
}

TEST(ExpertCheck, ANegativeBlockScaleIsRefusedEvenOverZeros) {
  for (const std::uint8_t byte : std::vector<std::uint8_t>{0x80, 0xB8, 0xFE}) {
    OwnedExpert expert;
    std::fill(expert.down.codes.begin(), expert.down.codes.end(), std::uint8_t{0});
    expert.down.block_scale.back() = byte;
    EXPECT_THAT(std::string(refusal(expert).message()), HasSubstr("row 47 group 1"));
  }
}

// The scan looks at eight bytes at a time: every position must be seen, and every byte value judged
// as if alone. Over codes that are not zero, exactly the bytes below 0x7F are legal.
TEST(ExpertCheck, EveryByteAtEveryPositionIsJudged) {
  for (int byte = 0; byte < 256; ++byte) {
    OwnedExpert expert;
    const auto at = static_cast<std::size_t>(byte) % expert.gate.block_scale.size();
    expert.gate.block_scale[at] = static_cast<std::uint8_t>(byte);
    EXPECT_EQ(check_expert(small_spec(), expert.view()).ok(), byte < 0x7F) << byte;
  }
  for (std::size_t at = 0; at < OwnedExpert().gate.block_scale.size(); ++at) {
    OwnedExpert expert;
    expert.gate.block_scale[at] = 0x7F;
    EXPECT_FALSE(check_expert(small_spec(), expert.view()).ok()) << at;
  }
}

TEST(ExpertCheck, SixteenFindingsAreListedAndTheRestCounted) {
  OwnedExpert expert;
  std::fill_n(expert.gate.block_scale.begin(), 20, std::uint8_t{0x80});
  EXPECT_THAT(std::string(refusal(expert).message()), HasSubstr("; and 4 more"));
}

TEST(ExpertCheck, OtherShapesAndFormatsAreTheCallersMistake) {
  OwnedExpert short_codes;
  short_codes.up.codes.pop_back();
  EXPECT_THAT(std::string(refusal(short_codes).message()), HasSubstr("up.codes holds 767"));

  OwnedExpert short_scales;
  short_scales.down.block_scale.pop_back();
  EXPECT_EQ(refusal(short_scales).code(), StatusCode::kInvalidArgument);

  OwnedExpert swapped;
  std::swap(swapped.up, swapped.down);
  EXPECT_THAT(std::string(refusal(swapped).message()), HasSubstr("up is [48, 32], want [32, 48]"));

  CanonicalExpert other = OwnedExpert().view();
  other.up.format = WeightFormat::kBf16;
  EXPECT_FALSE(check_expert(small_spec(), other).ok());
}

// 2.1: relu2 models have no gate tensor, and one present is refused.
TEST(ExpertCheck, ANonGatedExpertHasNoGate) {
  const OwnedExpert expert;
  MoeSpec spec = small_spec();
  spec.activation.function = ActivationFunction::kRelu2;
  EXPECT_THAT(std::string(check_expert(spec, expert.view()).status().message()),
              HasSubstr("no gate"));
  CanonicalExpert without = expert.view();
  without.gate = CanonicalMatrix();
  EXPECT_TRUE(check_expert(spec, without).ok());
  EXPECT_FALSE(check_expert(small_spec(), without).ok());
}

}  // namespace
}  // namespace halfbyte
