// SPDX-License-Identifier: Apache-2.0
#include "server/field_notices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halfbyte::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

class FieldNoticesTest : public ::testing::Test {
 protected:
  Names lines_;
  FieldNotices notices_{[this](std::string_view line) { lines_.emplace_back(line); }};
};

TEST_F(FieldNoticesTest, TellOfEachNameOnce) {
  notices_.tell({"a", "b"});
  notices_.tell({"b", "c"});
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("\"a\""), HasSubstr("\"b\""), HasSubstr("\"c\"")));
}

TEST_F(FieldNoticesTest, HoldNamesToALineAndRequestsToEight) {
  notices_.tell(Names(1, std::string(100, 'x') + "\n"));
  EXPECT_EQ(lines_.back(),
            "requests have a field that is not known: \"" + std::string(64, 'x') + "\"");
  notices_.tell({"\n\xFF"});
  EXPECT_THAT(lines_.back(), HasSubstr(R"("\n\ufffd")"));
  notices_.tell({"1", "2", "3", "4", "5", "6", "7", "8", "9"});
  EXPECT_THAT(lines_.back(), HasSubstr("\"8\""));
}

TEST_F(FieldNoticesTest, EndWithTheThousandth) {
  for (std::size_t i = 0; i < 3 * FieldNotices::kMaxNames; ++i)
    notices_.tell({std::to_string(i)});
  EXPECT_EQ(lines_.size(), FieldNotices::kMaxNames + 1);
  EXPECT_THAT(lines_.back(), HasSubstr("1000 fields that are not known: no more are told"));
}

TEST(FieldNotices, WithoutASinkAreNone) {
  FieldNotices(nullptr).tell({"a"});
}

}  // namespace
}  // namespace halfbyte::server
