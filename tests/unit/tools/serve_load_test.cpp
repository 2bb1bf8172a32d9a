// SPDX-License-Identifier: Apache-2.0
//
// What is sent, when, and where to.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "bench_serve/arrivals.h"
#include "bench_serve/plot.h"
#include "bench_serve/prompts.h"
#include "bench_serve/server_address.h"

namespace halfbyte::tool {
namespace {

TEST(ArrivalTimes, AreAllAtOnceWithoutARate) {
  EXPECT_EQ(arrival_times(3, INFINITY, 1), (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(arrival_times(0, 2.0, 1).empty());
}

// A Poisson process of 4 a second: gaps have mean 1/4 and standard deviation 1/4. Of 10,000 gaps
// the mean is within 4 standard errors, 0.01; the seed is fixed.
TEST(ArrivalTimes, AreAPoissonProcess) {
  const std::vector<double> times = arrival_times(10'001, 4.0, 7);
  EXPECT_EQ(times.front(), 0.0);
  double squares = 0.0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    ASSERT_GE(times[i], times[i - 1]);
    squares += std::pow(times[i] - times[i - 1] - 0.25, 2);
  }
  EXPECT_NEAR(times.back() / 10'000, 0.25, 0.01);
  EXPECT_NEAR(std::sqrt(squares / 10'000), 0.25, 0.02);
}

TEST(ArrivalTimes, FollowFromTheSeed) {
  EXPECT_EQ(arrival_times(9, 2.0, 5), arrival_times(9, 2.0, 5));
  EXPECT_NE(arrival_times(9, 2.0, 5), arrival_times(9, 2.0, 6));
}

TEST(BaseUrl, IsTakenApart) {
  const auto address = [](const char* url) {
    const auto parsed = parse_base_url(url);
    return parsed.ok()
               ? parsed.value().host + "|" + parsed.value().port + "|" + parsed.value().prefix
               : parsed.status().to_string();
  };
  EXPECT_EQ(address("http://localhost:8000"), "localhost|8000|");
  EXPECT_EQ(address("http://localhost:8000/v1"), "localhost|8000|");
  EXPECT_EQ(address("http://a.b/x/v1/"), "a.b|80|/x");
  EXPECT_EQ(address("http://[::1]:30000/"), "::1|30000|");
  EXPECT_EQ(address("http://[::1]"), "::1|80|");
}

TEST(BaseUrl, IsRefusedWhenItIsNone) {
  for (const char* bad : {"", "localhost:8000", "http://", "http://a:", "http://a:b"})
    EXPECT_EQ(parse_base_url(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  EXPECT_EQ(parse_base_url("https://a").status().code(), StatusCode::kUnsupported);
}

DatasetOptions dataset(const char* name) {
  DatasetOptions options;
  options.name = name;
  options.num_prompts = 4;
  options.input_len = 20;
  options.output_len = 8;
  return options;
}

// A file for one test; the name is the test's.
class DatasetFile {
 public:
  explicit DatasetFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("halfbyte_" +
               std::string(testing::UnitTest::GetInstance()->current_test_info()->name()))) {
    std::ofstream(path_) << text;
  }
  ~DatasetFile() { std::filesystem::remove(path_); }
  DatasetFile(const DatasetFile&) = delete;
  DatasetFile& operator=(const DatasetFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(Prompts, OfRandomIdsHaveTheirLengthsAndVocabulary) {
  DatasetOptions options = dataset("random-ids");
  options.vocab_size = 3;
  const auto prompts = make_prompts(options);
  ASSERT_TRUE(prompts.ok());
  ASSERT_EQ(prompts.value().size(), 4U);
  for (const Prompt& prompt : prompts.value()) {
    EXPECT_EQ(prompt.content.size(), 20U);
    EXPECT_EQ(prompt.num_tokens, 20);
    EXPECT_EQ(prompt.output_tokens, 8);
    for (const auto& id : prompt.content)
      EXPECT_LT(id.get<int>(), 3);
  }
}

TEST(Prompts, DrawLengthsFromTheRange) {
  DatasetOptions options = dataset("random-ids");
  options.num_prompts = 200;
  options.range_ratio = 0.5;
  const auto prompts = make_prompts(options);
  std::int64_t least = 100, most = 0;
  for (const Prompt& prompt : prompts.value()) {
    least = std::min(least, prompt.num_tokens);
    most = std::max(most, prompt.num_tokens);
  }
  EXPECT_EQ(least, 10);
  EXPECT_EQ(most, 20);
}

TEST(Prompts, OfRandomTextHaveAWordForAToken) {
  const auto prompts = make_prompts(dataset("random"));
  const auto text = prompts.value()[0].content.get<std::string>();
  EXPECT_EQ(std::ranges::count(text, ' '), 20);
  EXPECT_EQ(prompts.value()[0].num_tokens, -1);
  EXPECT_EQ(make_prompts(dataset("random")).value()[3].content, prompts.value()[3].content);
}

// A tokenizer that counts bytes: words end when 20 bytes are there.
TEST(Prompts, OfRandomTextAreCountedByATokenizer) {
  DatasetOptions options = dataset("random");
  options.count_tokens = [](std::string_view text) -> Result<std::int64_t> {
    return static_cast<std::int64_t>(text.size());
  };
  const auto prompts = make_prompts(options);
  EXPECT_GE(prompts.value()[0].num_tokens, 20);
  EXPECT_LT(prompts.value()[0].num_tokens, 26);
}

TEST(Prompts, OfAGroupBeginAlike) {
  DatasetOptions options = dataset("generated-shared-prefix");
  options.num_groups = 2;
  options.prompts_per_group = 2;
  options.system_prompt_len = 10;
  options.question_len = 3;
  const auto prompts = make_prompts(options);
  ASSERT_EQ(prompts.value().size(), 4U);
  const auto prefix = [&](std::size_t i) {
    const auto text = prompts.value()[i].content.get<std::string>();
    return text.substr(0, text.find("\n\n"));
  };
  EXPECT_EQ(prefix(0), prefix(2));
  EXPECT_EQ(prefix(1), prefix(3));
  EXPECT_NE(prefix(0), prefix(1));
  EXPECT_NE(prompts.value()[0].content, prompts.value()[2].content);
}

TEST(Prompts, ComeFromALineEach) {
  const DatasetFile file(
      "{\"prompt\": \"a\", \"output_tokens\": 3}\n\n"
      "{\"conversations\": [{\"content\": \"b\"}, {\"content\": \"c\"}]}\n");
  DatasetOptions options = dataset("custom");
  options.path = file.path();
  EXPECT_NE(make_prompts(options).status().message().find("line 3"), std::string::npos);
  options.fixed_output_len = 7;
  const auto prompts = make_prompts(options);
  ASSERT_EQ(prompts.value().size(), 2U);
  EXPECT_EQ(prompts.value()[0].content, "a");
  EXPECT_EQ(prompts.value()[1].content, "b");
  EXPECT_EQ(prompts.value()[1].output_tokens, 7);
}

TEST(Prompts, ComeFromShareGpt) {
  const DatasetFile file(
      "[{\"conversations\": [{\"value\": \"one\"}]},"
      "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"value\": \"four\"}]}]");
  DatasetOptions options = dataset("sharegpt");
  options.path = file.path();
  EXPECT_NE(make_prompts(options).status().message().find("--output-len"), std::string::npos);
  options.count_tokens = [](std::string_view text) -> Result<std::int64_t> {
    return static_cast<std::int64_t>(text.size());
  };
  const auto prompts = make_prompts(options);
  ASSERT_EQ(prompts.value().size(), 1U);
  EXPECT_EQ(prompts.value()[0].content, "q");
  EXPECT_EQ(prompts.value()[0].output_tokens, 4);
}

TEST(Prompts, AreRefusedByName) {
  const auto error = [](const DatasetOptions& options) {
    return make_prompts(options).status().to_string();
  };
  EXPECT_NE(error(dataset("sonnet")).find("\"sonnet\" is no data set"), std::string::npos);
  EXPECT_NE(error(dataset("custom")).find("--dataset-path"), std::string::npos);
  DatasetOptions options = dataset("sharegpt");
  options.path = "/nothing";
  EXPECT_NE(error(options).find("/nothing"), std::string::npos);
}

// 1, 4 at 100 and 400 tokens a second: the axis ends at 500, so the second point is at 4/5.
TEST(Plot, HasAPointForEachRun) {
  const std::vector<PlotPoint> points = {{1, 100, 5, 9}, {4, 400, 6, 20}};
  const std::string svg = plot_svg("a<b", points);
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("a&lt;b"), std::string::npos);
  EXPECT_NE(svg.find("points=\"70.0,252.0 430.0,108.0\""), std::string::npos) << svg;
}

}  // namespace
}  // namespace halfbyte::tool
