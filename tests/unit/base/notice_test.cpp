// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/log.h"

namespace halfbyte {
namespace {

using ::testing::ElementsAre;

TEST(NoticeSink, PassesOnOneLineForEachKey) {
  std::vector<std::string> lines;
  NoticeSink notices([&lines](std::string_view line) { lines.emplace_back(line); });
  notices.notice("scale", "first");
  notices.notice("scale", "again");
  notices.notice("alias", "second");
  EXPECT_THAT(lines, ElementsAre("first", "second"));
}

}  // namespace
}  // namespace halfbyte
