// SPDX-License-Identifier: Apache-2.0
//
// Numbers here are multiples of 1/8 and penalties powers of two, so that every step is exact and
// the expected logits can be written down as formulas.
#include "engine/token_selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "fake_constraint.h"

namespace halfbyte {
namespace {

using test::FakeConstraint;
using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Sequence sequence_of(std::vector<std::int32_t> prompt, const std::vector<std::int32_t>& answer) {
  Sequence sequence;
  sequence.num_prompt_tokens = static_cast<std::int64_t>(prompt.size());
  sequence.tokens = std::move(prompt);
  sequence.tokens.insert(sequence.tokens.end(), answer.begin(), answer.end());
  return sequence;
}

std::int32_t select(const std::vector<float>& logits, Sequence& sequence) {
  TokenSelector selector;
  auto selected = selector.select(logits, sequence);
  EXPECT_TRUE(selected.ok()) << selected.status().to_string();
  return selected.ok() ? selected->token_id : -1;
}

std::string refusal(const std::vector<float>& logits, Sequence& sequence) {
  TokenSelector selector;
  auto selected = selector.select(logits, sequence);
  EXPECT_FALSE(selected.ok());
  return selected.ok() ? "" : std::string(selected.status().message());
}

// What the interface says a logit becomes, for one token after the other.
std::vector<float> adjusted(std::vector<float> logits, const Sequence& sequence) {
  const SamplingParams& params = sequence.sampling;
  const auto answer = sequence.tokens.begin() + sequence.num_prompt_tokens;
  const bool no_end = sequence.tokens.end() - answer < params.min_new_tokens;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    float& x = logits[i];
    for (const auto& [biased, bias] : params.logit_bias) {
      if (biased == id) x += bias;
    }
    if (std::ranges::count(sequence.tokens, id) > 0) {
      x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
    }
    const auto count = std::count(answer, sequence.tokens.end(), id);
    x -= params.frequency_penalty * static_cast<float>(count);
    if (count > 0) x -= params.presence_penalty;
    if (no_end && std::ranges::count(sequence.end_token_ids, id) > 0) x = -kInf;
    if (sequence.constraint && i % 2 != 0) x = -kInf;
  }
  return logits;
}

TEST(TokenSelector, EqualsTheFormulasOverRandomRequests) {
  std::mt19937 rng(11);
  const auto below = [&rng](int end) {
    return static_cast<int>(rng() % static_cast<unsigned>(end));
  };
  constexpr int kVocab = 40;
  TokenSelector selector;
  for (int round = 0; round < 2000; ++round) {
    std::vector<float> logits(kVocab);
    for (float& logit : logits)
      logit = static_cast<float>(below(64) - 32) / 8;
    std::vector<std::int32_t> prompt(static_cast<std::size_t>(1 + below(20)));
    for (std::int32_t& id : prompt)
      id = below(kVocab);
    std::vector<std::int32_t> answer(static_cast<std::size_t>(below(20)));
    for (std::int32_t& id : answer)
      id = below(kVocab);
    Sequence sequence = sequence_of(prompt, answer);
    SamplingParams& params = sequence.sampling;
    params.presence_penalty = static_cast<float>(below(5) - 2) / 2;
    params.frequency_penalty = static_cast<float>(below(9) - 4) / 4;
    params.repetition_penalty = below(2) == 0 ? 1.0F : below(2) == 0 ? 2.0F : 0.5F;
    params.min_new_tokens = below(20);
    for (int i = below(4); i > 0; --i) {
      params.logit_bias.emplace_back(below(kVocab), static_cast<float>(below(9) - 4));
    }
    sequence.end_token_ids = {below(kVocab), below(kVocab)};
    if (below(2) == 0) sequence.constraint = std::make_unique<FakeConstraint>();
    params.temperature = below(2) == 0 ? 0.0F : 0.75F;
    params.seed = rng();

    const std::vector<float> want = adjusted(logits, sequence);
    auto selected = selector.select(logits, sequence);
    ASSERT_TRUE(selected.ok()) << selected.status().to_string();
    ASSERT_EQ(selected->token_id, Sampler().sample(want, params, sequence.num_tokens()).value());
  }
}

TEST(TokenSelector, RepetitionCountsThePromptAndPresenceTheAnswer) {
  Sequence sequence = sequence_of({1}, {2});
  sequence.sampling.repetition_penalty = 2;
  EXPECT_EQ(select({1.5F, 2, 2}, sequence), 0);
  EXPECT_EQ(select({-3.5F, -2, -2}, sequence), 0) << "a logit below 0 is multiplied";
  sequence.sampling.repetition_penalty = 1;
  sequence.sampling.presence_penalty = 1;
  EXPECT_EQ(select({1, 1.5F, 2}, sequence), 1);
}

TEST(TokenSelector, NoPenaltyMakesALogitOverflow) {
  Sequence sequence = sequence_of({0}, {});
  sequence.sampling.repetition_penalty = std::numeric_limits<float>::min();
  EXPECT_EQ(select({1e30F, 1}, sequence), 0);
  sequence.sampling.repetition_penalty = 2;
  EXPECT_EQ(select({-3e38F, -kInf}, sequence), 0);
}

TEST(TokenSelector, EndsOfTextWaitForMinNewTokens) {
  Sequence sequence = sequence_of({5, 5}, {3});
  sequence.sampling.min_new_tokens = 2;
  sequence.end_token_ids = {1, 2};
  EXPECT_EQ(select({0, 9, 8, 1}, sequence), 3);
  sequence.tokens.push_back(3);
  EXPECT_EQ(select({0, 9, 8, 1}, sequence), 1);
}

TEST(TokenSelector, AConstraintSeesEveryTokenThatItAllowed) {
  std::vector<std::int32_t> accepted;
  Sequence sequence = sequence_of({5}, {});
  sequence.constraint = std::make_unique<FakeConstraint>(&accepted);
  EXPECT_EQ(select({0, 9, 1, 9}, sequence), 2);
  EXPECT_EQ(select({2, 9, 1, 9}, sequence), 0);
  EXPECT_EQ(accepted, (std::vector<std::int32_t>{2, 0}));
}

// The mask of 3 tokens is a word of 32 bits, of which it sets the last.
TEST(TokenSelector, BitsPastTheVocabularyAllowNothing) {
  Sequence sequence = sequence_of({5}, {});
  sequence.constraint =
      std::make_unique<FakeConstraint>(nullptr, FakeConstraint::Fault::kLastBitsOnly);
  EXPECT_EQ(refusal({1, 2, 3}, sequence), "constraint: its mask allows no token of the vocabulary");
}

TEST(TokenSelector, SaysWhyNoTokenIsLeft) {
  Sequence sequence = sequence_of({5}, {7, 7});
  sequence.constraint =
      std::make_unique<FakeConstraint>(nullptr, FakeConstraint::Fault::kEmptyMask);
  EXPECT_EQ(refusal({1, 2, 3}, sequence), "constraint: its mask allows no token of the vocabulary");

  sequence.constraint = std::make_unique<FakeConstraint>();
  EXPECT_EQ(refusal({-kInf, 2, -kInf}, sequence),
            "the logits of all tokens that the constraint allows are -inf: none can be chosen");
  sequence.end_token_ids = {0, 2};
  sequence.sampling.min_new_tokens = 3;
  EXPECT_EQ(
      refusal({1, 2, 3}, sequence),
      "min_new_tokens is 3 and the answer has 2 tokens, but only an end of text can come next");
}

TEST(TokenSelector, AConstraintsFailureIsTheAnswer) {
  using Fault = FakeConstraint::Fault;
  for (const auto& [fault, message] :
       {std::pair(Fault::kFillFails, "constraint: no mask today"),
        std::pair(Fault::kAcceptFails, "constraint: token 2 refused"),
        std::pair(Fault::kThrows, "constraint: it threw out of grammar")}) {
    Sequence sequence = sequence_of({5}, {});
    sequence.constraint = std::make_unique<FakeConstraint>(nullptr, fault);
    EXPECT_EQ(refusal({1, 2, 3}, sequence), message);
  }
}

TEST(TokenSelector, AMaskHidesNoLogitThatIsNoNumber) {
  Sequence sequence = sequence_of({5}, {});
  sequence.constraint = std::make_unique<FakeConstraint>();
  EXPECT_THAT(refusal({1, kNan, 3}, sequence), HasSubstr("logit of token 1 is nan"));
  EXPECT_THAT(refusal({1, kInf, 3}, sequence), HasSubstr("logit of token 1 is inf"));
}

// Four logits, two tokens: the model's head has rows that no text stands for.
TEST(TokenSelector, NeverChoosesAnIdThatIsNoToken) {
  TokenSelector selector(2);
  const auto chosen = [&selector](const std::vector<float>& logits, Sequence& sequence) {
    auto selected = selector.select(logits, sequence);
    return selected.ok() ? std::to_string(selected->token_id)
                         : std::string(selected.status().message());
  };
  Sequence sequence = sequence_of({3}, {});
  EXPECT_EQ(chosen({1, 2, 9, kNan}, sequence), "1");
  sequence.sampling.repetition_penalty = 2;  // of a prompt that has such an id
  sequence.sampling.logit_bias = {{0, 5.0F}, {2, 100.0F}};
  EXPECT_EQ(chosen({1, 2, 9, 9}, sequence), "0");
  sequence.sampling.temperature = 1;
  for (sequence.sampling.seed = 0; sequence.sampling.seed < 50; ++sequence.sampling.seed) {
    EXPECT_THAT(chosen({1, 2, 50, 50}, sequence), testing::AnyOf("0", "1"));
  }
  sequence.sampling.min_new_tokens = 1;
  sequence.end_token_ids = {0, 1, 3};
  EXPECT_THAT(chosen({1, 2, 9, 9}, sequence), HasSubstr("only an end of text can come next"));
}

// The mask has id 31 alone.
TEST(TokenSelector, AMaskOfIdsThatAreNoTokensAllowsNothing) {
  TokenSelector selector(20);
  Sequence sequence = sequence_of({5}, {});
  sequence.constraint =
      std::make_unique<FakeConstraint>(nullptr, FakeConstraint::Fault::kLastBitsOnly);
  const auto selected = selector.select(std::vector<float>(40, 1.0F), sequence);
  ASSERT_FALSE(selected.ok());
  EXPECT_EQ(selected.status().message(), "constraint: its mask allows no token of the vocabulary");
}

// Weights 1/2, 1/4, 1/8, 1/8 of the model, whatever bias and temperature then choose.
TEST(TokenSelector, LogprobsAreOfTheModelsOwnLogits) {
  const float ln2 = std::log(2.0F);
  const std::vector<float> logits = {10 - 2 * ln2, 10 - 3 * ln2, 10 - ln2, 10 - 3 * ln2, -kInf};
  Sequence sequence = sequence_of({4}, {});
  sequence.sampling.logit_bias = {{1, 50.0F}};
  sequence.sampling.num_logprobs = 5;
  TokenSelector selector;
  const auto selected = selector.select(logits, sequence);
  ASSERT_TRUE(selected.ok());
  const std::vector<std::pair<std::int32_t, float>> want = {
      {1, -3 * ln2}, {2, -ln2}, {0, -2 * ln2}, {1, -3 * ln2}, {3, -3 * ln2}, {4, -kInf}};
  ASSERT_EQ(selected->logprobs.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(selected->logprobs[i].token_id, want[i].first) << i;
    EXPECT_FLOAT_EQ(selected->logprobs[i].logprob, want[i].second) << i;
  }
}

TEST(TokenSelector, GivesAsManyLogprobsAsWereAskedFor) {
  Sequence sequence = sequence_of({0}, {});
  TokenSelector selector;
  for (const int wanted : {-1, 0, 1, 3}) {
    sequence.sampling.num_logprobs = wanted;
    const auto selected = selector.select(std::vector<float>{1, 2, 3}, sequence);
    ASSERT_TRUE(selected.ok());
    EXPECT_EQ(selected->logprobs.size(), static_cast<std::size_t>(wanted + 1));
  }
}

}  // namespace
}  // namespace halfbyte
