// SPDX-License-Identifier: Apache-2.0
#include "text/utf8.h"

#include <gtest/gtest.h>

namespace halfbyte {
namespace {

std::string lossy(std::string_view bytes) {
  std::string out;
  EXPECT_EQ(append_lossy_utf8(bytes, true, out), bytes.size());
  return out;
}

// Unicode 15, section 3.9, tables 3-8 to 3-11: one U+FFFD for each maximal subpart.
TEST(Utf8, ReplacesMaximalSubparts) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Utf8, KeepsAnIncompleteCharacterForLater) {
  std::string out;
  EXPECT_EQ(append_lossy_utf8("a\xF0\x9F\x91", false, out), 1U);
  EXPECT_EQ(out, "a");
}

// The encodings of the first and last character of each length.
TEST(Utf8, CodePointsSurviveBeingWrittenAndRead) {
  for (const char32_t c : {0x0U, 0x7FU, 0x80U, 0x7FFU, 0x800U, 0xFFFFU, 0x10000U, 0x10FFFFU}) {
    std::string text;
    append_code_point(c, text);
    EXPECT_EQ(find_invalid_utf8(text), std::string_view::npos);
    EXPECT_EQ(count_code_points(text), 1U);
    std::string_view rest = text;
    EXPECT_EQ(take_code_point(rest), c);
    EXPECT_TRUE(rest.empty());
  }
}

TEST(Utf8, NamesTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8("ab\xC3\xA9\xFFz"), 4U);
}

}  // namespace
}  // namespace halfbyte
