// SPDX-License-Identifier: Apache-2.0
//
// What /metrics has after requests of all kinds. Those of experts: expert_usage_test.cpp.
#include "unit/server/api_fixture.h"

namespace halfbyte::server {
namespace {

using ::testing::ContainsRegex;

class MetricsApiTest : public ApiTest {
 protected:
  // How many requests got an error of this status, as the metrics have it.
  void expect_rejected(const std::string& status, int count) {
    EXPECT_THAT(get("/metrics").body,
                ContainsRegex("num_rejected_requests_total[{][^}]*status=\"" + status +
                              "\"[^}]*[}] " + std::to_string(count) + "\n"));
  }
};

TEST_F(MetricsApiTest, HaveTheNamesOfTheDocumentation) {
  make_ready();
  complete_ok(body_for(fake_prompt(7, 3), 5));
  complete(body_for({}, 5));
  const std::string text = get("/metrics").body;
  const std::pair<std::string, std::vector<std::string>> kinds[] = {
      {"gauge",
       {"num_running_reqs", "num_queue_reqs", "num_paused_reqs", "num_retracted_reqs",
        "token_usage", "max_total_num_tokens", "num_used_tokens", "num_free_blocks",
        "cache_hit_rate", "gen_throughput", "weight_memory_usage_gb", "kv_cache_memory_usage_gb",
        "engine_state", "startup_time_seconds", "weight_load_duration_seconds",
        "weight_load_bytes"}},
      {"counter",
       {"prompt_tokens_total", "generation_tokens_total", "cached_tokens_total",
        "num_requests_total", "num_aborted_requests_total", "num_rejected_requests_total",
        "num_retracted_requests_total", "evicted_tokens_total"}},
      {"histogram",
       {"time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
        "queue_time_seconds", "prompt_tokens_histogram", "generation_tokens_histogram",
        "iteration_tokens_total", "step_seconds", "step_host_seconds"}}};
  for (const auto& [kind, names] : kinds) {
    for (const std::string& name : names)
      EXPECT_THAT(text, HasSubstr("# TYPE halfbyte:" + name + " " + kind + "\n"));
  }
}

TEST_F(MetricsApiTest, CountWhatOneRequestTook) {
  make_ready();
  Json body = body_for(fake_prompt(7, 3), 5);
  body["ignore_eos"] = true;
  complete_ok(body);
  EXPECT_EQ(metric("halfbyte:prompt_tokens_total"), 7.0);
  EXPECT_EQ(metric("halfbyte:generation_tokens_total"), 5.0);
  EXPECT_EQ(metric("halfbyte:time_to_first_token_seconds_count"), 1.0);
  EXPECT_EQ(metric("halfbyte:inter_token_latency_seconds_count"), 4.0);
  EXPECT_EQ(metric("halfbyte:e2e_request_latency_seconds_count"), 1.0);
  EXPECT_EQ(metric("halfbyte:prompt_tokens_histogram_sum"), 7.0);
  EXPECT_EQ(metric("halfbyte:generation_tokens_histogram_sum"), 5.0);
  EXPECT_GT(metric("halfbyte:startup_time_seconds"), 0.0);
  EXPECT_THAT(get("/metrics").body, ContainsRegex("engine_state[{][^}]*\"ready\"[^}]*[}] 1\n"));
}

TEST_F(MetricsApiTest, CountRequestsThatGotAnErrorByItsStatus) {
  make_ready();
  complete(body_for({}, 5));
  complete(body_for({}, 5));
  expect_rejected("400", 2);
  EXPECT_EQ(get("/nothing").status, 404);
  expect_rejected("404", 1);
  const Json refused = Json::parse(api_.refusal_body(413, "the body is larger than 5 bytes"));
  EXPECT_EQ(refused["error"]["message"], "the body is larger than 5 bytes");
  expect_rejected("413", 1);
  const auto prompt = fake_prompt(7, 1);
  control_.nan_after_token = prompt.back();
  for (const bool stream : {false, true}) {
    Json body = body_for(prompt, 5);
    body["stream"] = stream;
    complete(body);
  }
  expect_rejected("500", 2);
  EXPECT_EQ(metric("halfbyte:num_aborted_requests_total"), 2.0);
  EXPECT_THAT(get("/metrics").body,
              ContainsRegex("num_requests_total[{][^}]*finished_reason=\"abort\"[^}]*[}] 2\n"));
}

}  // namespace
}  // namespace halfbyte::server
