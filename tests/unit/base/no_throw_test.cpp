// SPDX-License-Identifier: Apache-2.0
#include "base/no_throw.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "halfbyte/result.h"

namespace halfbyte {
namespace {

TEST(NoThrow, HandsOnWhatTheFunctionReturns) {
  const Result<int> seven = no_throw([]() -> Result<int> { return 7; });
  ASSERT_TRUE(seven.ok());
  EXPECT_EQ(*seven, 7);
}

TEST(NoThrow, TurnsAContainerThatCannotGrowIntoOutOfMemory) {
  const Status status = no_throw([]() -> Status {
    std::vector<char> bytes;
    bytes.reserve(std::numeric_limits<std::size_t>::max());
    return {};
  });
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
}

}  // namespace
}  // namespace halfbyte
