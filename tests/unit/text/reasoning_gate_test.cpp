// SPDX-License-Identifier: Apache-2.0
//
// Where reasoning ends: ReasoningParser says what is content, and the constraint is asked about no
// more and no less.
#include "text/reasoning_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace halfbyte {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Ids of the vocabulary below.
enum Id : std::int32_t {
  kEnd,
  kOpen,
  kClose,
  kLess,
  kSlash,
  kThinkMore,
  kThinkNewline,
  kThinkA,
  kNewline,
  kTwoNewlines,
  kA,
  kB,
  kWhole,
  kNumIds
};

std::shared_ptr<const ReasoningTokens> tokens() {
  return std::make_shared<ReasoningTokens>(
      AnswerVocabulary{{"", "<think>", "</think>", " <", "/", "think>", "think>\n", "think>a", "\n",
                        "\n\n", "a", "b", "x</think>a"},
                       {kEnd}});
}

// Allows `a` alone, or the end.
class OnlyA : public TokenConstraint {
 public:
  explicit OnlyA(std::vector<std::int32_t>& accepted) : accepted_(accepted) {}
  Status fill_mask(std::span<std::uint32_t> mask) override {
    mask[0] = (1U << kA) | (1U << kEnd);
    return {};
  }
  Status accept(std::int32_t token_id) override {
    if (token_id != kA && token_id != kEnd) return {StatusCode::kInvalidArgument, "no"};
    accepted_.push_back(token_id);
    return {};
  }
  void rollback(int num_tokens) override {
    accepted_.resize(accepted_.size() - static_cast<std::size_t>(num_tokens));
  }

 private:
  std::vector<std::int32_t>& accepted_;
};

class ReasoningGateTest : public testing::Test {
 protected:
  void start(Reasoning reasoning) {
    gate_ = std::make_unique<ReasoningGate>(tokens(), std::make_unique<OnlyA>(content_), reasoning);
  }
  std::vector<int> allowed() {
    std::vector<std::uint32_t> mask(1);
    EXPECT_TRUE(gate_->fill_mask(mask).ok());
    std::vector<int> ids;
    for (int id = 0; id < 32; ++id) {
      if (((mask[0] >> id) & 1U) != 0) ids.push_back(id);
    }
    return ids;
  }
  void accept(std::initializer_list<std::int32_t> ids) {
    for (const std::int32_t id : ids) {
      const auto now = allowed();
      EXPECT_TRUE(std::ranges::count(now, id) > 0) << id << " is masked";
      const Status status = gate_->accept(id);
      EXPECT_TRUE(status.ok()) << id << ": " << status.to_string();
    }
  }

  std::vector<std::int32_t> content_;
  std::unique_ptr<ReasoningGate> gate_;
};

TEST_F(ReasoningGateTest, AsksTheConstraintAtOnceWhereThereIsNoReasoning) {
  start(Reasoning::kNone);
  EXPECT_THAT(allowed(), ElementsAre(kEnd, kA));
  accept({kA, kA, kEnd});
  EXPECT_THAT(content_, ElementsAre(kA, kA, kEnd));
}

TEST_F(ReasoningGateTest, LetsAnyTextReasonAndNothingEndIt) {
  start(Reasoning::kBegun);
  EXPECT_THAT(allowed(), ElementsAre(kOpen, kClose, kLess, kSlash, kThinkMore, kThinkNewline,
                                     kThinkA, kNewline, kTwoNewlines, kA, kB));
  accept({kB, kNewline, kOpen, kB});
  EXPECT_FALSE(gate_->accept(kEnd).ok());
  EXPECT_FALSE(gate_->accept(kWhole).ok());
  EXPECT_THAT(content_, IsEmpty());
  accept({kClose, kA});
  EXPECT_THAT(content_, ElementsAre(kA));
}

TEST_F(ReasoningGateTest, LetsAnAnswerBeginWithEither) {
  start(Reasoning::kMayBegin);
  EXPECT_THAT(allowed(), ElementsAre(kEnd, kOpen, kA));
  accept({kA});
  EXPECT_THAT(allowed(), ElementsAre(kEnd, kA));
  start(Reasoning::kMayBegin);
  accept({kOpen, kB, kClose, kA});
  EXPECT_FALSE(gate_->accept(kB).ok());
}

// "</think>" in pieces; no piece may close it and go on.
TEST_F(ReasoningGateTest, FindsAMarkerInPieces) {
  start(Reasoning::kBegun);
  accept({kLess, kSlash});
  const auto now = allowed();
  EXPECT_THAT(std::ranges::count(now, int{kThinkA}), 0);
  EXPECT_FALSE(gate_->accept(kThinkA).ok());
  accept({kThinkNewline, kA});
  EXPECT_THAT(content_, ElementsAre(kA));
  start(Reasoning::kBegun);
  accept({kLess, kSlash, kB, kThinkA, kThinkMore, kB, kLess, kLess, kSlash, kThinkMore, kA});
}

// ReasoningParser drops them; a model that writes on forever is stopped.
TEST_F(ReasoningGateTest, TakesAFewNewlinesBehindTheMarker) {
  start(Reasoning::kBegun);
  accept({kClose});
  EXPECT_THAT(allowed(), ElementsAre(kEnd, kNewline, kTwoNewlines, kA));
  for (int i = 0; i < ReasoningGate::kMaxNewlineTokens; ++i)
    accept({kTwoNewlines});
  EXPECT_THAT(allowed(), ElementsAre(kEnd, kA));
  accept({kA});
  EXPECT_FALSE(gate_->accept(kNewline).ok());
  EXPECT_THAT(content_, ElementsAre(kA));
}

TEST_F(ReasoningGateTest, RollsBackOverEveryBorder) {
  const std::vector<std::int32_t> answer = {kOpen,    kB,       kLess, kSlash, kThinkMore,
                                            kNewline, kNewline, kA,    kA,     kEnd};
  start(Reasoning::kMayBegin);
  std::vector<std::vector<int>> masks = {allowed()};
  for (const std::int32_t id : answer) {
    accept({id});
    masks.push_back(allowed());
  }
  for (int back = 1; back <= static_cast<int>(answer.size()); ++back) {
    gate_->rollback(back);
    const std::size_t at = answer.size() - static_cast<std::size_t>(back);
    EXPECT_EQ(allowed(), masks[at]) << back;
    for (std::size_t i = at; i < answer.size(); ++i)
      accept({answer[i]});
  }
  EXPECT_THAT(content_, ElementsAre(kA, kA, kEnd));
}

TEST_F(ReasoningGateTest, SaysWhenAMaskHasTheWrongSize) {
  start(Reasoning::kBegun);
  std::vector<std::uint32_t> mask(2);
  EXPECT_EQ(gate_->fill_mask(mask).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace halfbyte
