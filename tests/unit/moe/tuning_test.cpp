// SPDX-License-Identifier: Apache-2.0
//
// nvfp4-moe 12.4 to 12.7: buckets, the choice of a tactic, the file that remembers it.
#include "moe/tuning.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
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

TEST_F(TuningFile, ReadsWhatWasWritten) {
  EXPECT_FALSE(read_tuning(directory(), kKey).has_value());
  ASSERT_TRUE(write_tuning(directory(), kKey, kTable).ok());
  EXPECT_EQ(read_tuning(directory(), kKey), kTable);
  ASSERT_TRUE(write_tuning(directory(), kKey, {}).ok());  // its own file may be replaced
  EXPECT_EQ(read_tuning(directory(), kKey), TuningTable{});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory()),
                          std::filesystem::directory_iterator()),
            1);
}

TEST_F(TuningFile, AnyDifferenceMeansMeasuringAgain) {
  ASSERT_TRUE(write_tuning(directory(), kKey, kTable).ok());
  for (const auto& [name, value] : kKey) {
    TuningKey other = kKey;
    other[name] = value + "x";
    EXPECT_FALSE(read_tuning(directory(), other).has_value()) << name;
    write_text(other, text(kKey));  // found under the name of another key
    EXPECT_FALSE(read_tuning(directory(), other).has_value()) << name;
  }
  TuningKey longer = kKey;
  longer["mode"] = "w4a16";
  EXPECT_FALSE(read_tuning(directory(), longer).has_value());
}

TEST_F(TuningFile, AFileOfAnotherKeyIsNotOverwritten) {
  write_text(kKey, "halfbyte tuning 1\ndevice = another\n\nend\n");
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
    EXPECT_FALSE(read_tuning(directory(), kKey).has_value()) << size;
  }
  const std::string header = whole.substr(0, whole.find("1 decode"));
  for (const char* line :
       {"x y", "-1 a", "0 a", "1", "1 ", " 1 a", "1 a\n1 b", "99999999999999999999 a"}) {
    write_text(kKey, header + line + "\nend\n");
    EXPECT_FALSE(read_tuning(directory(), kKey).has_value()) << line;
  }
  write_text(kKey, whole + "more");
  EXPECT_FALSE(read_tuning(directory(), kKey).has_value());
}

TEST_F(TuningFile, SaysWhatCannotBeKept) {
  EXPECT_EQ(write_tuning(directory(), {{"device", "a\nb"}}, {}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(write_tuning(directory(), kKey, {{1, ""}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(write_tuning(directory() + "/missing", kKey, kTable).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace halfbyte
