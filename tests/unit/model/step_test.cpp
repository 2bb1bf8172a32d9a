// SPDX-License-Identifier: Apache-2.0
#include "model/step.h"

#include <gtest/gtest.h>

namespace halfbyte {
namespace {

class CheckBatch : public testing::Test {
 protected:
  CheckBatch() {
    batch_.token_ids = ids_;
    batch_.sequences = {&slice_, 1};
    batch_.logit_rows = rows_;
  }
  Status check() const { return check_batch(batch_, limits_); }

  std::vector<std::int32_t> ids_ = {1, 2, 3};
  std::vector<std::int32_t> blocks_ = {1, 0};
  std::vector<std::int32_t> rows_ = {2};
  std::vector<std::int64_t> tokens_per_rank_;
  SequenceSlice slice_ = {0, 3, 16, blocks_};
  StepLimits limits_ = {
      .capacity_tokens = 4, .max_context_tokens = 24, .num_blocks = 2, .vocab_size = 10};
  Batch batch_;
};

TEST_F(CheckBatch, TakesWhatFits) {
  EXPECT_TRUE(check().ok());
}

// nvfp4-moe 10.4: all ranks see the same list, so all fail and none waits.
TEST_F(CheckBatch, RefusesTooManyTokensOfAnyRank) {
  tokens_per_rank_ = {3, 5};
  batch_.tokens_per_rank = tokens_per_rank_;
  const Status status = check();
  EXPECT_EQ(status.code(), StatusCode::kCapacityExceeded);
  EXPECT_EQ(status.message(), "a forward of 5 tokens, the plan holds 4");
}

TEST_F(CheckBatch, RefusesIdsOutsideTheVocabulary) {
  ids_[1] = 10;
  EXPECT_EQ(check().message(), "token id 10, want 0 .. 9");
  ids_[1] = -1;
  EXPECT_EQ(check().code(), StatusCode::kInvalidArgument);
}

TEST_F(CheckBatch, RefusesBlocksOutsideTheCache) {
  blocks_[1] = 2;
  EXPECT_EQ(check().message(), "cache block 2, want 0 .. 1");
}

TEST_F(CheckBatch, RefusesASequenceThatDoesNotFit) {
  slice_.context_tokens = 22;
  EXPECT_EQ(check().message(), "sequence of 25 tokens, the context holds 24");
  slice_.context_tokens = 16;
  slice_.block_table = std::span(blocks_).first(1);
  EXPECT_EQ(check().message(), "block table of 1 blocks of 16 tokens for 19 tokens");
}

TEST_F(CheckBatch, RefusesTokensWithoutASequence) {
  slice_.num_tokens = 2;
  EXPECT_EQ(check().message(), "sequences cover 2 of 3 tokens");
}

TEST_F(CheckBatch, RefusesLogitsOfRowsThatAreNotThere) {
  rows_ = {3};
  batch_.logit_rows = rows_;
  EXPECT_EQ(check().message(), "logits of row 3 of 3");
}

TEST(StepBuffers, FindTheCacheRowOfEachToken) {
  const std::vector<std::int32_t> first_blocks = {5, 2};
  const std::vector<std::int32_t> second_blocks = {7};
  const std::vector<SequenceSlice> sequences = {{0, 2, 15, first_blocks}, {2, 1, 0, second_blocks}};
  const std::vector<std::int32_t> ids = {1, 2, 3};
  RopeTable rope;
  rope.inv_freq = {1.0F};
  StepBuffers buffers(4, rope);
  Batch batch;
  batch.token_ids = ids;
  batch.sequences = sequences;
  const StepView step = buffers.fill(batch, rope);
  EXPECT_EQ(std::vector<std::int64_t>(step.positions.begin(), step.positions.end()),
            (std::vector<std::int64_t>{15, 16, 0}));
  EXPECT_EQ(std::vector<std::int64_t>(step.cache_rows.begin(), step.cache_rows.end()),
            (std::vector<std::int64_t>{5 * 16 + 15, 2 * 16, 7 * 16}));
  EXPECT_EQ(&step.sequence_of(2), &sequences[1]);
}

}  // namespace
}  // namespace halfbyte
