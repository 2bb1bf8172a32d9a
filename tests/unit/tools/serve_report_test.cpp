// SPDX-License-Identifier: Apache-2.0
#include "bench_serve/report.h"

#include <gtest/gtest.h>

namespace halfbyte::tool {
namespace {

// An answer of a token each 0.1 s, the first after `ttft` seconds.
Outcome answer(double sent, double ttft, int num_tokens) {
  Outcome outcome;
  outcome.sent = sent;
  for (int i = 0; i < num_tokens; ++i)
    outcome.chunks.push_back(sent + ttft + 0.1 * i);
  outcome.done = outcome.chunks.back();
  outcome.prompt_tokens = 10;
  outcome.completion_tokens = num_tokens;
  outcome.finish_reason = "length";
  return outcome;
}

ServeReport report_of(const LoadResult& load, const GoodputLimits& limits = {}) {
  const std::vector<Prompt> prompts(load.outcomes.size(), Prompt{"", 5, 10});
  return make_report(load, prompts, limits, {});
}

LoadResult two_answers() {
  LoadResult load;
  load.outcomes = {answer(0.0, 0.2, 5), answer(1.0, 0.4, 3)};  // end at 0.6 and 1.6
  load.max_under_way = 1;
  return load;
}

TEST(ServeReport, CountsAndTimes) {
  const ServeReport report = report_of(two_answers());
  EXPECT_EQ(report.num_successful, 2);
  EXPECT_DOUBLE_EQ(report.duration_s, 1.6);
  EXPECT_EQ(report.input_tokens, 20);
  EXPECT_EQ(report.output_tokens, 8);
  EXPECT_DOUBLE_EQ(report.per_second(report.output_tokens), 5.0);
  EXPECT_NEAR(report.ttft.mean, 300.0, 1e-9);
  EXPECT_NEAR(report.itl.median, 100.0, 1e-9);
  EXPECT_NEAR(report.tpot.p99, 100.0, 1e-9);
  EXPECT_NEAR(report.e2e.mean, 600.0, 1e-9);
  EXPECT_NEAR(report.mean_under_way, 1.2 / 1.6, 1e-9);
  EXPECT_DOUBLE_EQ(report.tokens_per_chunk, 1.0);
  EXPECT_EQ(report.num_prompts_counted_otherwise, 0);
}

TEST(ServeReport, LeavesFailuresOutOfTheLatencies) {
  LoadResult load = two_answers();
  load.outcomes.push_back({.done = 9.0, .error = "connection refused"});
  load.outcomes.push_back(answer(0.0, 5.0, 1));
  load.outcomes.back().finish_reason = "abort";
  const ServeReport report = report_of(load);
  EXPECT_EQ(report.num_successful, 2);
  EXPECT_EQ(report.num_failed, 1);
  EXPECT_EQ(report.num_aborted, 1);
  EXPECT_EQ(report.first_error, "connection refused");
  EXPECT_NEAR(report.ttft.mean, 300.0, 1e-9);
  EXPECT_DOUBLE_EQ(report.duration_s, 9.0);
}

TEST(ServeReport, CountsWhatKeepsTheLimits) {
  EXPECT_EQ(report_of(two_answers(), {.ttft_ms = 300}).num_good, 1);
  EXPECT_EQ(report_of(two_answers(), {.tpot_ms = 99}).num_good, 0);
  EXPECT_EQ(report_of(two_answers(), {.e2e_ms = 601}).num_good, 2);
}

TEST(ServeReport, SaysWhenAnEventHasSeveralTokens) {
  LoadResult load = two_answers();
  load.outcomes[0].completion_tokens = 10;
  load.outcomes[1].completion_tokens = 6;
  const ServeReport report = report_of(load);
  EXPECT_DOUBLE_EQ(report.tokens_per_chunk, 2.0);
  EXPECT_NE(to_text(report, false).find("an event has 2.00 tokens"), std::string::npos);
}

TEST(ServeReport, CountsEventsWhereThereIsNoUsage) {
  LoadResult load = two_answers();
  load.outcomes[0].completion_tokens = load.outcomes[1].completion_tokens = -1;
  const ServeReport report = report_of(load);
  EXPECT_FALSE(report.has_usage);
  EXPECT_EQ(report.output_tokens, 8);
  EXPECT_NE(to_text(report, false).find("no usage"), std::string::npos);
}

TEST(ServeReport, ComparesTheServersCountsWithItsOwn) {
  LoadResult load = two_answers();
  load.outcomes[1].prompt_tokens = 11;
  load.outcomes[0].text = load.outcomes[1].text = "abcde";
  DatasetOptions dataset;
  dataset.count_tokens = [](std::string_view text) -> Result<std::int64_t> {
    return static_cast<std::int64_t>(text.size());
  };
  const std::vector<Prompt> prompts(2, Prompt{"", 5, 10});
  const ServeReport report = make_report(load, prompts, {}, dataset);
  EXPECT_EQ(report.num_prompts_counted_otherwise, 1);
  EXPECT_EQ(report.local_output_tokens, 10);
}

// ITL is 100 ms: a tenth of it is 10.
TEST(ServeReport, SaysWhenTheClientWasTheLimit) {
  LoadResult load = two_answers();
  load.loop_lags_ms.assign(100, 9.0);
  EXPECT_FALSE(report_of(load).client_bound);
  load.loop_lags_ms.assign(100, 11.0);
  EXPECT_TRUE(report_of(load).client_bound);
  load.loop_lags_ms.clear();
  load.cpu_share = 0.95;
  EXPECT_TRUE(report_of(load).client_bound);
  EXPECT_NE(to_text(report_of(load), false).find("CLIENT-BOUND"), std::string::npos);
}

TEST(ServeReport, OfNothingIsZero) {
  LoadResult load;
  load.outcomes.push_back({.done = 1.0, .error = "x"});
  const ServeReport report = report_of(load);
  EXPECT_EQ(report.ttft.p99, 0.0);
  EXPECT_EQ(to_json(report)["output_tokens_per_s"], 0.0);
}

TEST(Goodput, ReadsLimits) {
  const std::vector<std::string> given = {"ttft:200", "tpot:12.5"};
  const auto limits = parse_goodput(given);
  ASSERT_TRUE(limits.ok());
  EXPECT_EQ(limits.value().ttft_ms, 200.0);
  EXPECT_EQ(limits.value().tpot_ms, 12.5);
  EXPECT_TRUE(std::isinf(limits.value().e2e_ms));
  for (const char* bad : {"ttft", "ttft:", "ttft:x", "ttft:-1", "itl:3", "ttft:1ms", ""}) {
    EXPECT_EQ(parse_goodput(std::vector<std::string>{bad}).status().code(),
              StatusCode::kInvalidArgument)
        << bad;
  }
}

}  // namespace
}  // namespace halfbyte::tool
