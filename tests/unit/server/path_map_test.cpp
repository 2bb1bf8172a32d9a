// SPDX-License-Identifier: Apache-2.0
#include "server/path_map.h"

#include <gtest/gtest.h>

namespace halfbyte::server {
namespace {

ApiError written(const std::string& param, const std::string& message) {
  PathMap paths;
  paths.add("messages", "input");
  paths.add("messages[1]", "input[0]");
  paths.add("messages[1].content[0]", "input[2].content[5]");
  paths.add("stop", "stop_sequences");
  return paths.as_written({400, message, param, "some_code"});
}

TEST(PathMap, GoesByTheLongestPathThatIsKnown) {
  EXPECT_EQ(written("messages[1].role", "").param, "input[0].role");
  EXPECT_EQ(written("messages[1].content[0].type", "").param, "input[2].content[5].type");
  EXPECT_EQ(written("messages[12].role", "").param, "input[12].role");
  EXPECT_EQ(written("temperature", "").param, "temperature");
  EXPECT_EQ(written("", "").param, "");
  EXPECT_EQ(written("stop", "").code, "some_code");
}

TEST(PathMap, NamesTheSamePathInTheMessage) {
  EXPECT_EQ(written("messages[1].role", "messages[1].role is missing").message,
            "input[0].role is missing");
  EXPECT_EQ(written("stop", "stop is empty, which stops nothing").message,
            "stop_sequences is empty, which stops nothing");
}

}  // namespace
}  // namespace halfbyte::server
