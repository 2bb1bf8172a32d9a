// SPDX-License-Identifier: Apache-2.0
#include "server/expert_usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/metrics.h"
#include "server/page.h"

namespace halfbyte::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<ExpertLoad> two_layers() {
  std::vector<ExpertLoad> load(2);
  load[0].layer_idx = 1;
  load[0].counters.tokens_per_expert = {6, 1, 1, 0};
  load[0].counters.num_steps = 2;
  load[0].counters.experts_touched = 5;
  load[0].counters.expert_bytes_read = 1000;
  load[0].counters.dispatch_bytes = 30;
  load[0].rank_dispatch_bytes = {10, 20};
  load[1].layer_idx = 2;
  load[1].counters.tokens_per_expert = {0, 0, 0, 0};
  load[1].counters.expert_bytes_read = 24;
  load[1].rank_dispatch_bytes = {0, 3};
  return load;
}

// The mean of 6, 1, 1, 0 is 2.
TEST(ExpertUsage, ImbalanceIsTheBusiestOverTheMean) {
  EXPECT_DOUBLE_EQ(imbalance_of(two_layers()[0].counters), 3.0);
  EXPECT_DOUBLE_EQ(imbalance_of(two_layers()[1].counters), 0.0);
  EXPECT_DOUBLE_EQ(imbalance_of({}), 0.0);
}

TEST(ExpertUsage, IsAnObjectForEachLayer) {
  const Json layers = expert_load_json(two_layers())["layers"];
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0]["layer"], 1);
  EXPECT_EQ(layers[0]["tokens"], Json({6, 1, 1, 0}));
  EXPECT_EQ(layers[0]["imbalance"], 3.0);
  EXPECT_EQ(layers[0]["experts_touched"], 5);
  EXPECT_EQ(expert_load_json({}), Json({{"layers", Json::array()}}));
}

TEST(ExpertUsage, IsInTheMetrics) {
  const std::string text = Metrics("m").render({}, "ready", two_layers());
  EXPECT_THAT(text, HasSubstr("halfbyte:expert_imbalance{layer=\"1\",model_name=\"m\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("halfbyte:experts_touched{layer=\"1\",model_name=\"m\"} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("halfbyte:expert_weight_bytes_read_total{model_name=\"m\"} 1024\n"));
  EXPECT_THAT(text, HasSubstr("halfbyte:dispatch_bytes_total{rank=\"0\",model_name=\"m\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("halfbyte:dispatch_bytes_total{rank=\"1\",model_name=\"m\"} 23\n"));
  EXPECT_THAT(text, Not(HasSubstr("expert_tokens_total")));
}

TEST(ExpertUsage, ShowsEachExpertWhereThatIsAskedFor) {
  const std::string text = Metrics("m", true).render({}, "ready", two_layers());
  EXPECT_THAT(
      text,
      HasSubstr("halfbyte:expert_tokens_total{layer=\"1\",expert=\"0\",model_name=\"m\"} 6\n"));
}

TEST(ExpertUsage, OfAModelWithoutExpertsIsInNoMetric) {
  EXPECT_THAT(Metrics("m", true).render({}, "ready"), Not(HasSubstr("expert")));
}

TEST(Page, RunsOnlyWhatCarriesItsNonce) {
  const HttpResponse page = page_response("abc");
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_THAT(page.body, HasSubstr("<script nonce=\"abc\">"));
  EXPECT_THAT(page.body, HasSubstr("<style nonce=\"abc\">"));
  EXPECT_THAT(page.body, Not(HasSubstr("NONCE")));
  EXPECT_TRUE(page.body.ends_with("</html>\n"));
  ASSERT_FALSE(page.headers.empty());
  EXPECT_EQ(page.headers[0].first, "Content-Security-Policy");
  EXPECT_THAT(page.headers[0].second, HasSubstr("default-src 'none'; script-src 'nonce-abc';"));
}

// Nothing from elsewhere: no address but this server's own.
TEST(Page, NamesNoOtherServer) {
  const std::string body = page_response("abc").body;
  EXPECT_THAT(body, Not(HasSubstr("http://")));
  EXPECT_THAT(body, Not(HasSubstr("https://")));
  EXPECT_THAT(body, Not(HasSubstr("src=")));
}

}  // namespace
}  // namespace halfbyte::server
