// SPDX-License-Identifier: Apache-2.0
//
// B16: a tensor-parallel cut through a group of 16; B18: the group size guessed from sizes; B24:
// loading a second time. Sizes are the reports'.
#include "loader_bugs.h"
#include "weights/sharding.h"

namespace halfbyte {
namespace {

TEST(GroupBorders, CutsAreOnBordersOf16AndCoverTheExpert) {
  for (const auto& [intermediate, ranks] : {std::pair{1856, 8}, {128, 3}}) {
    MoeSpec spec;
    spec.hidden_size = 64;
    spec.intermediate_size = intermediate;
    spec.num_experts = 4;
    std::int64_t next = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto shard = shard_experts(spec, ranks, 1, rank);
      ASSERT_TRUE(shard.ok());
      EXPECT_EQ(shard->intermediate_begin, next);
      EXPECT_EQ(shard->intermediate_size % 16, 0);
      if (ranks == 8) {
        EXPECT_EQ(shard->intermediate_size, rank < 4 ? 240 : 224);
      }
      next += shard->intermediate_size;
    }
    EXPECT_EQ(next, intermediate);
  }
}

TEST(GroupBorders, NineGroupsOf16AreNotTwelve) {
  test::TinySizes sizes;
  sizes.hidden = 144;
  test::OpenedCheckpoint opened(test::tiny_checkpoint(test::TinyDialect::kModelOpt, sizes));
  ASSERT_TRUE(opened.weights.ok()) << opened.error();
  const auto expert = (*opened).expert(0, 0);
  ASSERT_TRUE(expert.ok());
  EXPECT_EQ(expert->up.matrix.block_scale.size(), 16U * 9U);

  test::TinyCheckpoint padded = test::tiny_checkpoint(test::TinyDialect::kModelOpt, sizes);
  const std::string name = "model.layers.0.mlp.experts.0.up_proj.weight_scale";
  put(padded.tensors,
      test::byte_tensor(name, DType::kF8E4m3, {16, 12}, std::vector<std::uint8_t>(16 * 12, 0x38)));
  EXPECT_THAT(test::OpenedCheckpoint(padded).error(),
              testing::HasSubstr("shape [16, 12], want [16, 9]"));
}

TEST(GroupBorders, LoadingAgainIsAFreshLoad) {
  test::TinyCheckpoint other = test::tiny_checkpoint(test::TinyDialect::kModelOpt, {}, 8);
  test::OpenedCheckpoint a(test::tiny_checkpoint()), b(other);
  const float scale_a = (*a).expert(0, 1)->up.matrix.global_scale;
  const float scale_b = (*b).expert(0, 1)->up.matrix.global_scale;
  EXPECT_EQ((*a).expert(0, 1)->up.matrix.global_scale, scale_a);
  EXPECT_EQ((*b).expert(0, 1)->up.matrix.global_scale, scale_b);
  test::OpenedCheckpoint again(other);
  EXPECT_EQ((*again).expert(0, 1)->up.matrix.global_scale, scale_b);
}

}  // namespace
}  // namespace halfbyte
