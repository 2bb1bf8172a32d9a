// SPDX-License-Identifier: Apache-2.0
//
// nvfp4-moe 12.4 to 12.7: buckets, the choice of a tactic, the file that remembers it.
#include "moe/tuning.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace halfbyte {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kFailed = std::numeric_limits<double>::infinity();

class TuningFile : public testing::Test {
 protected:
  TuningFile()
      : directory_(std::filesystem::temp_directory_path() /
                   ("halfbyte_tuning_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(directory_);
  }
  ~TuningFile() override { std::filesystem::remove_all(directory_); }

  std::string directory() const { return directory_.string(); }
  std::string path(const TuningKey& key) const {
    return (directory_ / tuning_file_name(key)).string();
  }
  void write_text(const TuningKey& key, const std::string& text) const {
    std::ofstream(path(key), std::ios::binary) << text;
  }
  std::string text(const TuningKey& key) const {
    std::ostringstream out;
    out << std::ifstream(path(key)).rdbuf();
    return out.str();
  }

 private:
  std::filesystem::path directory_;
};

const TuningKey kKey = {{"device", "NVIDIA H200"}, {"layout", "sm90 v1"}, {"experts", "256"}};
const TuningTable kTable = {{1, "decode 32x8"}, {64, "decode 128x8"}, {300, "prefill 96"}};

TEST(TokenBuckets, AreThoseOfTheSpecification) {
  EXPECT_THAT(token_buckets(1), ElementsAre(1));
  EXPECT_THAT(token_buckets(100), ElementsAre(1, 2, 4, 8, 16, 32, 64, 100));
  EXPECT_THAT(token_buckets(6000),
              ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048,
                          2560, 3072, 3584, 4096, 6000));
  EXPECT_EQ(token_buckets(32768).back(), 32768);
  EXPECT_EQ(*(token_buckets(32768).end() - 2), 16384);
  EXPECT_TRUE(token_buckets(0).empty());
}

TEST(TokenBuckets, EveryCountHasTheSmallestThatHoldsIt) {
  const std::vector<std::int64_t> buckets = token_buckets(3000);
  EXPECT_EQ(bucket_of(buckets, 1), 1);
  EXPECT_EQ(bucket_of(buckets, 3), 4);
  EXPECT_EQ(bucket_of(buckets, 257), 512);
  EXPECT_EQ(bucket_of(buckets, 2561), 3000);
  EXPECT_EQ(bucket_of(buckets, 3000), 3000);
}

TEST(PickTactic, TheDefaultIsLeftForThreePercent) {
  const auto pick = [](std::vector<double> us, std::size_t standard) {
    return pick_tactic(us, standard);
  };
  EXPECT_EQ(pick({100, 97.1}, 0), 0U);
  EXPECT_EQ(pick({100, 97}, 0), 1U);
  EXPECT_EQ(pick({90, 100, 90}, 1), 0U);  // the first of equals
  EXPECT_EQ(pick({100, 100}, 1), 1U);
  EXPECT_EQ(pick({kFailed, 100}, 0), 1U);
  EXPECT_EQ(pick({kFailed, kFailed}, 1), 1U);
}

TEST(FindTactic, IsThatOfTheSmallestBucketThatHoldsTheStep) {
  EXPECT_EQ(*find_tactic(kTable, 1), "decode 32x8");
  EXPECT_EQ(*find_tactic(kTable, 2), "decode 128x8");
  EXPECT_EQ(*find_tactic(kTable, 300), "prefill 96");
  EXPECT_EQ(find_tactic(kTable, 301), nullptr);
  EXPECT_EQ(find_tactic({}, 1), nullptr);
}

// Times that a test sets; a tactic may fail its check or, from some timing on, to run.
class FakeTimer final : public TacticTimer {
 public:
  Status set_step(std::int64_t num_tokens, const std::string& default_tactic) override {
    calls.push_back("step " + std::to_string(num_tokens) + " " + default_tactic);
    return num_tokens == refused_tokens ? failure() : Status();
  }
  Status check(const std::string& tactic) override {
    calls.push_back("check " + tactic);
    return tactic == wrong ? failure() : Status();
  }
  Result<double> microseconds(const std::string& tactic) override {
    const int timing = num_timings[tactic]++;
    if (tactic == broken && timing == 3) return failure();
    // One timing in three is disturbed, whatever runs.
    return us.at(tactic) * (timing % 3 == 1 ? 10 : 1);
  }
  static Status failure() { return {StatusCode::kDeviceError, "fails"}; }

  std::map<std::string, double> us = {{"a", 100}, {"b", 98}, {"c", 90}, {"d", 80}};
  std::string wrong, broken;
  std::int64_t refused_tokens = 0;
  std::vector<std::string> calls;
  std::map<std::string, int> num_timings;
};

std::string pick_of(FakeTimer& timer, std::vector<std::string> names) {
  const std::vector<TacticList> lists = {{8, std::move(names)}};
  return measure_tactics(lists, timer).value().at(8);
}

TEST(MeasureTactics, TakesTheMedianOfTimingsInTurns) {
  FakeTimer timer;
  EXPECT_EQ(pick_of(timer, {"a", "b", "c"}), "c");
  EXPECT_THAT(timer.calls, ElementsAre("step 8 a", "check a", "check b", "check c"));
  for (const auto& [tactic, num_timings] : timer.num_timings)
    EXPECT_GE(num_timings, 10) << tactic;
}

TEST(MeasureTactics, LeavesTheDefaultForThreePercentAlone) {
  FakeTimer timer;
  EXPECT_EQ(pick_of(timer, {"a", "b"}), "a");
  EXPECT_EQ(pick_of(timer, {"b", "a"}), "b");
}

// A wrong one is not even timed; one that stops working is out whatever it took before.
TEST(MeasureTactics, NeverTakesATacticThatFailed) {
  FakeTimer timer;
  timer.wrong = "d";
  timer.broken = "c";
  EXPECT_EQ(pick_of(timer, {"a", "b", "c", "d"}), "a");
  EXPECT_EQ(timer.num_timings.count("d"), 0U);
  EXPECT_EQ(timer.num_timings["c"], 4);
  FakeTimer nothing_works;
  nothing_works.wrong = "a";
  nothing_works.broken = "b";
  EXPECT_EQ(pick_of(nothing_works, {"a", "b"}), "a");
}

TEST(MeasureTactics, MeasuresWhereThereIsAChoiceAndFillsEveryBucket) {
  FakeTimer timer;
  const std::vector<TacticList> lists = {{1, {"a"}}, {2, {"a", "c"}}, {5, {"d", "a"}}};
  EXPECT_EQ(measure_tactics(lists, timer).value(), (TuningTable{{1, "a"}, {2, "c"}, {5, "d"}}));
  EXPECT_EQ(timer.calls.front(), "step 2 a");
  timer.refused_tokens = 5;
  EXPECT_EQ(measure_tactics(lists, timer).status().code(), StatusCode::kDeviceError);
}

TEST_F(TuningFile, ReadsWhatWasWritten) {
  EXPECT_EQ(read_tuning(directory(), kKey).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(write_tuning(directory(), kKey, kTable).ok());
  EXPECT_EQ(read_tuning(directory(), kKey).value(), kTable);
  ASSERT_TRUE(write_tuning(directory(), kKey, {}).ok());  // its own file may be replaced
  EXPECT_EQ(read_tuning(directory(), kKey).value(), TuningTable{});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory()),
                          std::filesystem::directory_iterator()),
            1);
}

TEST_F(TuningFile, AnyDifferenceMeansMeasuringAgain) {
  ASSERT_TRUE(write_tuning(directory(), kKey, kTable).ok());
  for (const auto& [name, value] : kKey) {
    TuningKey other = kKey;
    other[name] = value + "x";
    EXPECT_FALSE(read_tuning(directory(), other).ok()) << name;
    write_text(other, text(kKey));  // found under the name of another key
    EXPECT_FALSE(read_tuning(directory(), other).ok()) << name;
  }
  TuningKey longer = kKey;
  longer["mode"] = "w4a16";
  EXPECT_FALSE(read_tuning(directory(), longer).ok());
}

TEST_F(TuningFile, AFileOfAnotherKeyIsNotOverwritten) {
  write_text(kKey, "halfbyte tuning 2\ndevice = another\n\nend\n");
  EXPECT_EQ(read_tuning(directory(), kKey).status().code(), StatusCode::kInvalidArgument);
  const Status status = write_tuning(directory(), kKey, kTable);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.to_string(), HasSubstr("written for another key"));
  EXPECT_THAT(text(kKey), HasSubstr("device = another"));
}

// Cut at every byte, or with a line that is none: measured again, never half used.
TEST_F(TuningFile, ADamagedFileIsNone) {
  ASSERT_TRUE(write_tuning(directory(), kKey, kTable).ok());
  const std::string whole = text(kKey);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_text(kKey, whole.substr(0, size));
    EXPECT_FALSE(read_tuning(directory(), kKey).ok()) << size;
  }
  const std::string header = whole.substr(0, whole.find("1 decode"));
  for (const char* line :
       {"x y", "-1 a", "0 a", "1", "1 ", " 1 a", "1 a\n1 b", "99999999999999999999 a"}) {
    write_text(kKey, header + line + "\nend\n");
    EXPECT_FALSE(read_tuning(directory(), kKey).ok()) << line;
  }
  write_text(kKey, whole + "more");
  const auto damaged = read_tuning(directory(), kKey);
  EXPECT_EQ(damaged.status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(damaged.status().to_string(), HasSubstr(tuning_file_name(kKey)));
}

TEST_F(TuningFile, SaysWhatCannotBeKept) {
  EXPECT_EQ(write_tuning(directory(), {{"device", "a\nb"}}, {}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(write_tuning(directory(), kKey, {{1, ""}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(write_tuning(directory() + "/missing", kKey, kTable).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace halfbyte
