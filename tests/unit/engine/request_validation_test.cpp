// SPDX-License-Identifier: Apache-2.0
#include "engine/request_validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace halfbyte {
namespace {

using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What is said of default parameters with one change, over ten tokens.
std::string message(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params;
  change(params);
  const Status status = validate_sampling(params, 10);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(ValidateSampling, NamesTheParameterItsValueAndItsRange) {
  EXPECT_EQ(message([](auto& p) { p.temperature = -1; }),
            "temperature is -1, want a finite number of at least 0");
  EXPECT_THAT(message([](auto& p) { p.temperature = kNan; }), HasSubstr("temperature is nan"));
  EXPECT_THAT(message([](auto& p) { p.temperature = kInf; }), HasSubstr("temperature is inf"));
  EXPECT_THAT(message([](auto& p) { p.top_k = -2; }), HasSubstr("top_k is -2"));
  EXPECT_EQ(message([](auto& p) { p.top_p = 0; }), "top_p is 0, want more than 0 and at most 1");
  EXPECT_THAT(message([](auto& p) { p.top_p = 1.5F; }), HasSubstr("top_p is 1.5"));
  EXPECT_THAT(message([](auto& p) { p.top_p = kNan; }), HasSubstr("top_p is nan"));
  EXPECT_EQ(message([](auto& p) { p.min_p = 1.1F; }), "min_p is 1.1, want 0 to 1");
  EXPECT_THAT(message([](auto& p) { p.min_p = kNan; }), HasSubstr("min_p is nan"));
  EXPECT_EQ(message([](auto& p) { p.presence_penalty = 2.5F; }),
            "presence_penalty is 2.5, want -2 to 2");
  EXPECT_THAT(message([](auto& p) { p.presence_penalty = kNan; }), HasSubstr("is nan"));
  EXPECT_EQ(message([](auto& p) { p.frequency_penalty = -3; }),
            "frequency_penalty is -3, want -2 to 2");
  EXPECT_EQ(message([](auto& p) { p.repetition_penalty = 0; }),
            "repetition_penalty is 0, want more than 0 and at most 2");
  EXPECT_THAT(message([](auto& p) { p.repetition_penalty = 2.1F; }), HasSubstr("is 2.1"));
}

TEST(ValidateSampling, NamesCountsAndIds) {
  EXPECT_EQ(message([](auto& p) { p.max_new_tokens = -1; }),
            "max_new_tokens is -1, want at least 0");
  EXPECT_EQ(message([](auto& p) { p.min_new_tokens = 129; }),
            "min_new_tokens is 129, want 0 to 128: max_new_tokens");
  EXPECT_THAT(message([](auto& p) { p.min_new_tokens = -1; }), HasSubstr("min_new_tokens is -1"));
  EXPECT_EQ(message([](auto& p) { p.num_logprobs = 11; }),
            "num_logprobs is 11, want 0 to 10, the vocabulary's size, or -1 for none");
  EXPECT_THAT(message([](auto& p) { p.num_logprobs = -2; }), HasSubstr("num_logprobs is -2"));
  EXPECT_EQ(message([](auto& p) { p.num_prompt_logprobs = 11; }),
            "num_prompt_logprobs is 11, want 0 to 10, the vocabulary's size, or -1 for none");
  EXPECT_EQ(message([](auto& p) { p.stop_token_ids = {3, 10}; }),
            "a stop token id is 10, want 0 to 9: the model's vocabulary");
  EXPECT_EQ(message([](auto& p) { p.logit_bias = {{3, 1.0F}, {-1, 1.0F}}; }),
            "a token id of logit_bias is -1, want 0 to 9: the model's vocabulary");
  EXPECT_EQ(message([](auto& p) { p.logit_bias = {{3, 100.5F}}; }),
            "logit_bias of token 3 is 100.5, want -100 to 100");
  EXPECT_THAT(message([](auto& p) { p.logit_bias = {{3, kNan}}; }), HasSubstr("is nan"));
}

TEST(ValidateSampling, TakesTheEndsOfEveryRange) {
  SamplingParams params;
  params.top_k = -1;
  params.min_p = 1;
  params.presence_penalty = -2;
  params.frequency_penalty = 2;
  params.repetition_penalty = 2;
  params.min_new_tokens = params.max_new_tokens = 1;
  params.num_logprobs = 10;
  params.num_prompt_logprobs = 10;
  params.logit_bias = {{0, -100.0F}, {9, 100.0F}};
  params.stop_token_ids = {0, 9};
  EXPECT_TRUE(validate_sampling(params, 10).ok());
}

// A cache of one block of 16 tokens.
TEST(ValidateRequest, HoldsWhatDependsOnThePrompt) {
  EngineInfo info;
  info.vocab_size = 10;
  info.max_context_tokens = 100;
  Request request;
  request.prompt_ids.assign(16, 1);
  request.sampling.max_new_tokens = 1;
  EXPECT_TRUE(validate_request(request, info, 1).ok()) << "the answer's last token needs no place";
  request.sampling.max_new_tokens = 0;
  EXPECT_TRUE(validate_request(request, info, 1).ok());
  request.sampling.prompt_logprob_start = 16;
  EXPECT_TRUE(validate_request(request, info, 1).ok());
  request.sampling.prompt_logprob_start = 17;
  EXPECT_EQ(validate_request(request, info, 1).message(),
            "prompt_logprob_start is 17, want 0 to 16: the prompt's length");
  request.sampling.prompt_logprob_start = -1;
  EXPECT_FALSE(validate_request(request, info, 1).ok());
  request.sampling.prompt_logprob_start = 0;
  request.prompt_ids.push_back(1);
  EXPECT_THAT(std::string(validate_request(request, info, 1).message()),
              HasSubstr("need 2 cache blocks"));
}

}  // namespace
}  // namespace halfbyte
