// SPDX-License-Identifier: Apache-2.0
//
// nvfp4-moe 1.6 and 9.1; the numbers are the specification's examples.
#include "weights/sharding.h"

#include <gtest/gtest.h>

#include <numeric>

namespace halfbyte {
namespace {

MoeSpec spec_of(std::int64_t experts, std::int64_t hidden, std::int64_t intermediate) {
  MoeSpec spec;
  spec.num_experts = experts;
  spec.hidden_size = hidden;
  spec.intermediate_size = intermediate;
  return spec;
}

TEST(ShardExperts, ThirtyExpertsOverEightRanks) {
  const std::int64_t counts[] = {4, 4, 4, 4, 4, 4, 3, 3};
  const std::int64_t offsets[] = {0, 4, 8, 12, 16, 20, 24, 27};
  for (int rank = 0; rank < 8; ++rank) {
    const auto shard = shard_experts(spec_of(30, 64, 64), 8, 8, rank);
    ASSERT_TRUE(shard.ok());
    EXPECT_EQ(shard->num_local_experts, counts[rank]);
    EXPECT_EQ(shard->first_expert, offsets[rank]);
    EXPECT_EQ(shard->intermediate_size, 64);
  }
}

TEST(ShardExperts, MoreRanksThanExpertsLeavesSomeWithNone) {
  const auto shard = shard_experts(spec_of(2, 64, 64), 4, 4, 3);
  ASSERT_TRUE(shard.ok());
  EXPECT_EQ(shard->num_local_experts, 0);
}

TEST(ShardExperts, RefusesWhatCannotBeCut) {
  EXPECT_FALSE(shard_experts(spec_of(4, 64, 64), 3, 2, 0).ok());
  EXPECT_FALSE(shard_experts(spec_of(4, 60, 64), 2, 1, 0).ok());
  EXPECT_FALSE(shard_experts(spec_of(4, 64, 72), 2, 1, 0).ok());
  EXPECT_FALSE(shard_experts(spec_of(4, 64, 32), 4, 1, 0).ok());  // 2 groups, 4 ranks
  EXPECT_FALSE(shard_experts(spec_of(4, 64, 64), 2, 1, 2).ok());
}

/// An expert whose bytes are all different modulo 251.
struct Whole {
  std::vector<std::uint8_t> codes, scales;
  CanonicalExpert expert;
  Whole(std::int64_t hidden, std::int64_t intermediate)
      : codes(static_cast<std::size_t>(hidden * intermediate / 2)),
        scales(static_cast<std::size_t>(hidden * intermediate / 16)) {
    for (std::size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<std::uint8_t>(i % 251);
    for (std::size_t i = 0; i < scales.size(); ++i)
      scales[i] = static_cast<std::uint8_t>(i % 127);
    expert.gate.rows = expert.up.rows = intermediate;
    expert.gate.cols = expert.up.cols = hidden;
    expert.down.rows = hidden;
    expert.down.cols = intermediate;
    for (CanonicalMatrix* m : {&expert.gate, &expert.up, &expert.down}) {
      m->codes = codes;
      m->block_scale = scales;
    }
  }
};

TEST(CutExpert, TheWholeExpertIsNotCopied) {
  const Whole whole(32, 48);
  const auto cut = cut_expert(whole.expert, {0, 1, 0, 48});
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->view.down.codes.data(), whole.codes.data());
}

TEST(CutExpert, PartsPutTogetherAreTheWhole) {
  const Whole whole(32, 48);
  for (const auto& [begin, size] : {std::pair{0, 32}, {32, 16}}) {
    const auto cut = cut_expert(whole.expert, {0, 1, begin, size});
    ASSERT_TRUE(cut.ok());
    EXPECT_EQ(cut->view.up.rows, size);
    EXPECT_EQ(cut->view.up.codes.data(), whole.codes.data() + begin * 16);
    EXPECT_EQ(cut->view.up.block_scale.data(), whole.scales.data() + begin * 2);
    for (std::int64_t row = 0; row < 32; ++row) {
      for (std::int64_t byte = 0; byte < size / 2; ++byte) {
        ASSERT_EQ(cut->view.down.codes[static_cast<std::size_t>(row * size / 2 + byte)],
                  whole.codes[static_cast<std::size_t>(row * 24 + begin / 2 + byte)]);
      }
      ASSERT_EQ(cut->view.down.block_scale[static_cast<std::size_t>(row * size / 16)],
                whole.scales[static_cast<std::size_t>(row * 3 + begin / 16)]);
    }
  }
  EXPECT_FALSE(cut_expert(whole.expert, {0, 1, 8, 16}).ok());
}

// Every element of a cut fp8 matrix keeps the scale it had, also when the cut is inside a block.
TEST(CutExpert, Fp8ScalesFollowTheirElements) {
  constexpr std::int64_t kRows = 256, kCols = 16;
  std::vector<std::uint8_t> codes(kRows * kCols);
  std::vector<float> scale = {1.0F, 2.0F}, other = {3.0F, 4.0F};
  CanonicalExpert expert;
  for (CanonicalMatrix* m : {&expert.gate, &expert.up, &expert.down}) {
    m->format = WeightFormat::kFp8;
    m->codes = codes;
    m->rows = m == &expert.down ? kCols : kRows;
    m->cols = m == &expert.down ? kRows : kCols;
    m->scale = m == &expert.down ? other : scale;
    m->scale_block_rows = m->scale_block_cols = 128;
  }
  for (const auto& [begin, size] : {std::pair{0, 96}, {96, 96}, {192, 64}, {128, 128}}) {
    const auto cut = cut_expert(expert, {0, 1, begin, size});
    ASSERT_TRUE(cut.ok()) << cut.status().to_string();
    const CanonicalMatrix& up = cut->view.up;
    const CanonicalMatrix& down = cut->view.down;
    for (std::int64_t i = 0; i < size; ++i) {
      EXPECT_EQ(up.scale[static_cast<std::size_t>(i / up.scale_block_rows)],
                scale[static_cast<std::size_t>((begin + i) / 128)]);
      EXPECT_EQ(down.scale[static_cast<std::size_t>(i / down.scale_block_cols)],
                other[static_cast<std::size_t>((begin + i) / 128)]);
    }
  }
}

}  // namespace
}  // namespace halfbyte
