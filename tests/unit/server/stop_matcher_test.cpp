// SPDX-License-Identifier: Apache-2.0
#include "server/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace halfbyte::server {
namespace {

struct Outcome {
  std::string text;
  std::string matched;  // "": none
  bool operator==(const Outcome&) const = default;
};

// Pushes `text` in two pieces, cut at `cut`.
Outcome run(const std::vector<std::string>& stops,
            const std::string& text,
            std::size_t cut,
            bool keep = false) {
  StopMatcher matcher(stops, keep);
  Outcome outcome;
  outcome.text = matcher.push(std::string_view(text).substr(0, cut));
  outcome.text += matcher.push(std::string_view(text).substr(cut));
  if (!matcher.matched()) outcome.text += matcher.finish();
  outcome.matched = matcher.matched().value_or("");
  return outcome;
}

// Byte by byte.
Outcome run_bytes(const std::vector<std::string>& stops, const std::string& text) {
  StopMatcher matcher(stops, false);
  Outcome outcome;
  for (const char c : text)
    outcome.text += matcher.push(std::string_view(&c, 1));
  if (!matcher.matched()) outcome.text += matcher.finish();
  outcome.matched = matcher.matched().value_or("");
  return outcome;
}

// None of these overlap in the text.
TEST(StopMatcher, GivesTheSameTextWhereverPiecesAreCut) {
  const std::string text = "one two\n\nthree \xC3\xA4";
  const std::vector<std::vector<std::string>> stop_lists = {
      {"\n\n"}, {"two", "o"}, {"thr"}, {"absent"}, {"\xC3\xA4"}, {"two\n\nx", "\nt"}, {}};
  for (const auto& stops : stop_lists) {
    const Outcome whole = run(stops, text, text.size());
    EXPECT_EQ(run_bytes(stops, text), whole);
    for (std::size_t cut = 0; cut <= text.size(); ++cut)
      EXPECT_EQ(run(stops, text, cut), whole) << "cut at " << cut;
  }
}

TEST(StopMatcher, CutsBeforeTheMatchAndDropsWhatFollows) {
  EXPECT_EQ(run({"\n\n"}, "a\n\nb", 4), (Outcome{"a", "\n\n"}));
}

TEST(StopMatcher, KeepsTheMatchWhenAsked) {
  EXPECT_EQ(run({"bc"}, "abcd", 4, true), (Outcome{"abc", "bc"}));
}

// Both are complete with the same piece: cut before the earliest start, whatever their order.
TEST(StopMatcher, TakesTheStringThatBeginsFirstOfThoseThatEndInAPiece) {
  EXPECT_EQ(run({"bc", "abcd"}, "xabcd", 5), (Outcome{"x", "abcd"}));
  EXPECT_EQ(run({"abcd", "bc"}, "xabcd", 2), (Outcome{"x", "abcd"}));
  EXPECT_EQ(run({"c", "abc"}, "xabc", 4), (Outcome{"x", "abc"}));
  EXPECT_EQ(run({"bc", "abcd"}, "xabcdef", 7, true), (Outcome{"xabcd", "abcd"}));
}

TEST(StopMatcher, TakesTheShortestOfThoseThatBeginTogether) {
  EXPECT_EQ(run({"abc", "ab"}, "xabcd", 5), (Outcome{"x", "ab"}));
  EXPECT_EQ(run({"abc", "ab"}, "xabcd", 5, true), (Outcome{"xab", "ab"}));
}

// No later piece can undo a hit: "abcd" is not complete when "bc" is.
TEST(StopMatcher, TakesTheStringThatIsCompleteWithAnEarlierPiece) {
  EXPECT_EQ(run({"abcd", "bc"}, "xabcd", 4), (Outcome{"xa", "bc"}));
  EXPECT_EQ(run_bytes({"abcd", "bc"}, "xabcd"), (Outcome{"xa", "bc"}));
}

TEST(StopMatcher, HoldsBackOnlyWhatCouldBeginAStop) {
  StopMatcher matcher({"STOP"}, false);
  EXPECT_EQ(matcher.push("go ST"), "go ");
  EXPECT_EQ(matcher.push("A"), "STA");
  EXPECT_EQ(matcher.push("S"), "");
  EXPECT_EQ(matcher.finish(), "S");
}

TEST(StopMatcher, FindsAStopThatBeginsInsideAFailedOne) {
  EXPECT_EQ(run({"aab"}, "aaab", 2), (Outcome{"a", "aab"}));
}

TEST(StopMatcher, SaysNothingAfterAMatch) {
  StopMatcher matcher({"x"}, false);
  EXPECT_EQ(matcher.push("ax"), "a");
  EXPECT_EQ(matcher.push("more"), "");
}

}  // namespace
}  // namespace halfbyte::server
