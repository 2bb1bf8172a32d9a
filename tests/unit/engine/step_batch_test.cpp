// SPDX-License-Identifier: Apache-2.0
#include "engine/step_batch.h"

#include <gtest/gtest.h>

namespace halfbyte {
namespace {

// 3 tokens that continue 20 cached ones, and a whole prompt of 2 whose last logits are wanted.
RankBatch two_slices() {
  RankBatch batch;
  batch.add(std::vector<std::int32_t>{5, 6, 7}, 20, std::vector<std::int32_t>{3, 1}, 0);
  batch.add(std::vector<std::int32_t>{8, 9}, 0, std::vector<std::int32_t>{4}, 1);
  return batch;
}

TEST(StepBatch, AViewCoversTheTokensInOrder) {
  const RankBatch batch = two_slices();
  const std::vector<std::int64_t> tokens_per_rank = {5, 0};
  const BatchView view(batch, tokens_per_rank, true);
  ASSERT_EQ(view.batch().sequences.size(), 2U);
  EXPECT_EQ(view.batch().sequences[1].first_token, 3);
  EXPECT_EQ(view.batch().sequences[1].num_tokens, 2);
  EXPECT_EQ(view.batch().sequences[0].context_tokens, 20);
  EXPECT_EQ(view.batch().sequences[0].block_table[1], 1);
  ASSERT_EQ(view.batch().logit_rows.size(), 1U);
  EXPECT_EQ(view.batch().logit_rows[0], 4);
  EXPECT_EQ(view.batch().tokens_per_rank.size(), 2U);
  EXPECT_TRUE(BatchView(batch, tokens_per_rank, false).batch().logit_rows.empty());
}

TEST(StepBatch, LogitsAreWantedOfASlicesLastRows) {
  RankBatch batch = two_slices();
  batch.add(std::vector<std::int32_t>{1, 2, 3}, 0, std::vector<std::int32_t>{5}, 2);
  EXPECT_EQ(batch.logit_rows, (std::vector<std::int32_t>{4, 6, 7}));
}

TEST(StepBatch, AMessageReadsBackAsItWasWritten) {
  const std::vector<RankBatch> batches = {two_slices(), RankBatch()};
  auto decoded = decode_step(encode_step(batches));
  ASSERT_TRUE(decoded.ok());
  ASSERT_EQ(decoded->size(), 2U);
  const RankBatch& first = decoded->front();
  EXPECT_EQ(first.token_ids, batches[0].token_ids);
  EXPECT_EQ(first.logit_rows, batches[0].logit_rows);
  ASSERT_EQ(first.slices.size(), 2U);
  EXPECT_EQ(first.slices[0].context_tokens, 20);
  EXPECT_EQ(first.slices[0].block_table, (std::vector<std::int32_t>{3, 1}));
  EXPECT_EQ((*decoded)[1].num_tokens(), 0);
}

// Every proper prefix, a trailing word, and counts that the message cannot hold.
TEST(StepBatch, ADamagedMessageIsRefused) {
  const std::vector<RankBatch> batches = {two_slices()};
  std::vector<std::int32_t> words = encode_step(batches);
  for (std::size_t length = 0; length < words.size(); ++length) {
    auto decoded = decode_step(std::span(words).first(length));
    ASSERT_FALSE(decoded.ok()) << length;
    EXPECT_EQ(decoded.status().code(), StatusCode::kTransportError);
  }
  words.push_back(0);
  EXPECT_FALSE(decode_step(words).ok());
  EXPECT_FALSE(decode_step(std::vector<std::int32_t>{-1}).ok());
  EXPECT_FALSE(decode_step(std::vector<std::int32_t>{1, 2000000000}).ok());
}

}  // namespace
}  // namespace halfbyte
