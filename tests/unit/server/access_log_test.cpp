// SPDX-License-Identifier: Apache-2.0
#include "server/access_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <vector>

#include "server/json.h"

namespace halfbyte::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

AccessRecord record_of(const std::string& path) {
  return {.client = "::1", .method = "GET", .path = path, .status = 200, .seconds = 0.5};
}

// 2001-09-09 01:46:40 UTC is 1,000,000,000 s after 1970.
TEST(AccessRecord, IsALineOfJson) {
  AccessRecord record = record_of("/a\n\"\xFF");
  record.time = std::chrono::system_clock::time_point(std::chrono::milliseconds(1000000000007));
  record.request_bytes = 3;
  const std::string line = to_line(record);
  EXPECT_EQ(line.find('\n'), line.size() - 1) << "a path breaks no line";
  const Json json = Json::parse(line);
  EXPECT_EQ(json["time"], "2001-09-09T01:46:40.007Z");
  EXPECT_EQ(json["client"], "::1");
  EXPECT_EQ(json["status"], 200);
  EXPECT_EQ(json["seconds"], 0.5);
  EXPECT_EQ(json["request_bytes"], 3);
  EXPECT_FALSE(json.contains("id") || json.contains("error"));
}

TEST(AccessRecord, TellsWhatAnAnswerTook) {
  AccessRecord record = record_of("/v1/completions");
  record.id = "cmpl-1";
  record.prompt_tokens = 4;
  record.completion_tokens = 5;
  record.error = "why";
  const Json json = Json::parse(to_line(record));
  EXPECT_EQ(json["id"], "cmpl-1");
  EXPECT_EQ(json["prompt_tokens"], 4);
  EXPECT_EQ(json["completion_tokens"], 5);
  EXPECT_EQ(json["error"], "why");
}

TEST(AccessLog, WritesWhatWaitsBeforeItEnds) {
  std::vector<std::string> lines;
  {
    AccessLog log([&lines](std::string_view line) {
      lines.emplace_back(line);
      return true;
    });
    log.add(record_of("/a"));
    log.add(record_of("/b"));
  }
  EXPECT_THAT(lines, ElementsAre(HasSubstr("\"/a\""), HasSubstr("\"/b\"")));
}

// A full disk: the second line, and what tells of it before the third.
TEST(AccessLog, TellsOfLinesThatItCouldNotWrite) {
  std::vector<std::string> lines;
  int num_calls = 0;
  {
    AccessLog log([&](std::string_view line) {
      ++num_calls;
      if (num_calls == 2 || num_calls == 3) return false;
      lines.emplace_back(line);
      return true;
    });
    for (const char* path : {"/a", "/b", "/c", "/d"})
      log.add(record_of(path));
  }
  EXPECT_THAT(lines, ElementsAre(HasSubstr("\"/a\""), HasSubstr("\"/c\""), "{\"lost_lines\":1}\n",
                                 HasSubstr("\"/d\"")));
}

// A reader that does not keep up: nobody waits for it, and it is told what it missed.
TEST(AccessLog, DropsLinesForWhichThereIsNoRoom) {
  std::latch gate{1};
  std::vector<std::string> lines;
  {
    AccessLog log([&](std::string_view line) {
      gate.wait();
      lines.emplace_back(line);
      return true;
    });
    for (std::size_t i = 0; i < 3 * AccessLog::kMaxWaiting; ++i)
      log.add(record_of("/a"));
    gate.count_down();
  }
  std::size_t num_lost = 0;
  for (const std::string& line : lines)
    num_lost += Json::parse(line).value("lost_lines", std::size_t{0});
  EXPECT_GE(num_lost, AccessLog::kMaxWaiting);
  EXPECT_LE(lines.size(), 2 * AccessLog::kMaxWaiting + 1);
}

}  // namespace
}  // namespace halfbyte::server
