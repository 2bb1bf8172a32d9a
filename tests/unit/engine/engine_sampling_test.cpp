// SPDX-License-Identifier: Apache-2.0
//
// What requests may ask of their tokens, through the whole engine. Expected tokens:
// engine_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <future>

#include "fake_constraint.h"
#include "fake_model.h"

namespace halfbyte::test {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

std::vector<Request> penalized_requests(std::uint32_t count) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < count; ++i) {
    Request request = make_request(1 + (i * 23) % 60, i, 20 + (i * 7) % 40);
    SamplingParams& sampling = request.sampling;
    sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    sampling.seed = i;
    sampling.min_p = i % 3 == 0 ? 0.1F : 0.0F;
    sampling.presence_penalty = i % 3 == 1 ? 1.5F : 0.0F;
    sampling.frequency_penalty = i % 4 == 1 ? 0.7F : 0.0F;
    sampling.repetition_penalty = i % 5 == 1 ? 1.3F : 1.0F;
    sampling.min_new_tokens = i % 2 == 0 ? 15 : 0;
    sampling.logit_bias = {{kFakeEos, 4.0F}, {static_cast<std::int32_t>(i), -2.0F}};
    requests.push_back(std::move(request));
  }
  return requests;
}

// Eight blocks are few: requests are sent back and computed again, and keep their penalties.
TEST(EngineSampling, PenaltiesAreThoseOfARequestAloneAlsoWhenItIsSentBack) {
  for (const std::int64_t num_blocks : {8, 200}) {
    FakeControl control;
    const auto engine = start_fake_engine({.num_blocks = num_blocks}, control);
    const std::vector<Request> requests = penalized_requests(24);
    const std::vector<RequestId> ids = submit_together(*engine, control, requests);
    const auto answers = collect(*engine, ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(answers.at(ids[i]).tokens, expected_tokens(requests[i], 256)) << i;
    }
    EXPECT_EQ(engine->stats().preemptions > 0, num_blocks == 8);
  }
}

TEST(EngineSampling, NoAnswerEndsBeforeMinNewTokens) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  Request request = make_request(5, 1, 20);
  request.sampling.logit_bias = {{kFakeEos, 100.0F}};
  request.sampling.min_new_tokens = 7;
  const RequestId id = engine->submit(copy_of(request)).value();
  const Answer answer = collect(*engine, {id}).at(id);
  EXPECT_EQ(answer.tokens.size(), 8U);
  EXPECT_EQ(answer.tokens.back(), kFakeEos);
  EXPECT_EQ(answer.finish_reason, FinishReason::kStop);

  request.sampling.ignore_eos = true;  // then it is a token like others
  const RequestId ignoring = engine->submit(std::move(request)).value();
  EXPECT_THAT(collect(*engine, {ignoring}).at(ignoring).tokens, Each(kFakeEos));
}

// -log of the sum over the vocabulary, from the fake model's logits after each prefix.
TEST(EngineSampling, EachTokenHasItsLogprobAndTheLikeliestOnes) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  Request request = make_request(5, 1, 12);
  request.sampling.temperature = 2;
  request.sampling.num_logprobs = 2;
  request.sampling.ignore_eos = true;
  const RequestId id = engine->submit(copy_of(request)).value();
  const Answer answer = collect(*engine, {id}).at(id);
  ASSERT_EQ(answer.logprobs.size(), 12U);
  std::vector<std::int32_t> tokens = request.prompt_ids;
  for (std::size_t i = 0; i < 12; ++i) {
    const std::vector<float> logits = fake_logits(tokens);
    double sum = 0;
    for (const float logit : logits)
      sum += std::exp(static_cast<double>(logit));
    const std::vector<TokenLogprob>& logprobs = answer.logprobs[i];
    ASSERT_EQ(logprobs.size(), 3U);
    EXPECT_EQ(logprobs[0].token_id, answer.tokens[i]);
    EXPECT_EQ(logprobs[1].token_id, std::ranges::max_element(logits) - logits.begin());
    EXPECT_GE(logprobs[1].logprob, logprobs[2].logprob);
    for (const TokenLogprob& logprob : logprobs) {
      const double logit = logits[static_cast<std::size_t>(logprob.token_id)];
      EXPECT_NEAR(logprob.logprob, logit - std::log(sum), 1e-5);
    }
    tokens.push_back(answer.tokens[i]);
  }
}

TEST(EngineSampling, AConstraintHoldsAlsoForARequestThatIsSentBack) {
  FakeControl control;
  std::promise<void> submitted;  // all together, or each could end before the next one comes
  control.before_forward = [all = submitted.get_future().share()](int, const Batch&) {
    all.wait();
    return Status();
  };
  const auto engine = start_fake_engine({.num_blocks = 8}, control);
  constexpr std::size_t kRequests = 6;
  std::vector<std::vector<std::int32_t>> accepted(kRequests);
  std::vector<Request> requests;
  std::vector<RequestId> ids;
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    requests.push_back(make_request(10 + i, i, 60));
    Request request = copy_of(requests.back());
    request.constraint = std::make_unique<FakeConstraint>(&accepted[i]);
    ids.push_back(engine->submit(std::move(request)).value());
  }
  submitted.set_value();
  const auto answers = collect(*engine, ids);
  EXPECT_GT(engine->stats().preemptions, 0);
  for (std::size_t i = 0; i < kRequests; ++i) {
    const std::vector<std::int32_t>& tokens = answers.at(ids[i]).tokens;
    EXPECT_EQ(tokens, expected_tokens(requests[i], 256, std::make_unique<FakeConstraint>())) << i;
    EXPECT_EQ(accepted[i], tokens) << "each token once, in order";
  }
}

// The fake model's end of text is even, so the constraint allows it.
TEST(EngineSampling, AnEndOfTextEndsAConstrainedAnswerAlsoIfIgnored) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  Request request = make_request(5, 1, 20);
  request.sampling.logit_bias = {{kFakeEos, 100.0F}};
  request.sampling.ignore_eos = true;
  request.constraint = std::make_unique<FakeConstraint>();
  const RequestId id = engine->submit(std::move(request)).value();
  const Answer answer = collect(*engine, {id}).at(id);
  EXPECT_EQ(answer.tokens, (std::vector<std::int32_t>{kFakeEos}));
  EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
}

TEST(EngineSampling, AConstraintsFailureEndsItsOwnRequestOnly) {
  using Fault = FakeConstraint::Fault;
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  const Request healthy = make_request(20, 2, 30);
  std::vector<RequestId> ids = {engine->submit(copy_of(healthy)).value()};
  for (const Fault fault :
       {Fault::kEmptyMask, Fault::kFillFails, Fault::kAcceptFails, Fault::kThrows}) {
    Request request = make_request(20, 1, 30);
    request.constraint = std::make_unique<FakeConstraint>(nullptr, fault);
    ids.push_back(engine->submit(std::move(request)).value());
  }
  const auto answers = collect(*engine, ids);
  EXPECT_EQ(answers.at(ids[0]).tokens, expected_tokens(healthy, 256));
  for (std::size_t i = 1; i < ids.size(); ++i) {
    EXPECT_EQ(answers.at(ids[i]).finish_reason, FinishReason::kError);
    EXPECT_THAT(answers.at(ids[i]).error, HasSubstr("constraint: "));
    EXPECT_EQ(answers.at(ids[i]).error_code,
              i == 1 ? StatusCode::kInvalidArgument : StatusCode::kInternal)
        << "only an empty mask is what was asked for";
    EXPECT_TRUE(answers.at(ids[i]).tokens.empty());
  }
  EXPECT_FALSE(engine->stats().failed);
  EXPECT_EQ(engine->stats().free_blocks, engine->stats().total_blocks);
}

TEST(EngineSampling, ConstrainedAndOtherRequestsMayBeOnAnyRank) {
  FakeControl control;
  const auto engine = start_fake_engine({.num_ranks = 4, .dp_size = 2}, control);
  std::vector<RequestId> ids;
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 8; ++i) {
    requests.push_back(make_request(10 + i, i, 20));
    Request request = copy_of(requests.back());
    if (i % 2 == 0) request.constraint = std::make_unique<FakeConstraint>();
    ids.push_back(engine->submit(std::move(request)).value());
  }
  const auto answers = collect(*engine, ids);
  for (std::size_t i = 0; i < 8; ++i) {
    std::unique_ptr<TokenConstraint> constraint;
    if (i % 2 == 0) constraint = std::make_unique<FakeConstraint>();
    EXPECT_EQ(answers.at(ids[i]).tokens, expected_tokens(requests[i], 256, std::move(constraint)))
        << i;
  }
}

}  // namespace
}  // namespace halfbyte::test
