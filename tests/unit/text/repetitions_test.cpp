// SPDX-License-Identifier: Apache-2.0
#include "text/repetitions.h"

#include <gtest/gtest.h>

#include <string>

namespace halfbyte {
namespace {

TEST(Repetitions, OfARegexAreMultipliedInOneAnother) {
  EXPECT_EQ(count_repetitions("abc"), 1U);
  EXPECT_EQ(count_repetitions("(a{2}b{1,3}){4,5}c{7}"), 15U);
  EXPECT_EQ(count_repetitions("[{]a{x}(b{3,})*"), 3U);
  EXPECT_EQ(count_repetitions("))a{99999999999999999999999}"), 1000000U);
  // An escaped parenthesis and one in a class close nothing.
  EXPECT_EQ(count_repetitions("(a{100}\\)b){100}"), 10000U);
  EXPECT_EQ(count_repetitions("(a{100}[)]b){100}"), 10000U);
}

TEST(Repetitions, OfAGrammarGoThroughItsRules) {
  EXPECT_EQ(count_rule_repetitions("root ::= \"a\""), 1U);
  EXPECT_EQ(count_rule_repetitions("root ::= a{2,3}\na ::= b {4} | c{5,}\nb ::= [x-z]{6}\n"
                                   "c ::= (\"x\" \"y\"){ 2, 7 }"),
            105U);
  EXPECT_EQ(count_rule_repetitions("root ::= a{100}\na ::= b{100}\nb ::= c{100}\nc ::= d{100}\n"),
            1000000U);
}

// In literals, classes and comments a brace is a character, and a name is none.
TEST(Repetitions, OfAGrammarAreNotThoseOfItsTexts) {
  EXPECT_EQ(count_rule_repetitions("root ::= \"b{9}\\\"{9}\" [{9}\\]] # a{9}\nb ::= \"x\"{5}"), 5U);
  EXPECT_EQ(count_rule_repetitions("root ::= (\"a\"{3}\n# ){9}\n){2}"), 6U);
  // Blanks and comments may stand anywhere, and a comment ends at either end of a line.
  EXPECT_EQ(count_rule_repetitions("root ::= a{\t99}\na ::= \"x\"{# 7}\n5\n}"), 495U);
  EXPECT_EQ(count_rule_repetitions("#\rroot ::= a{9}\n#\ra ::= \"x\"{9}"), 81U);
}

TEST(Repetitions, OfARuleThatLeadsBackToItselfEnd) {
  EXPECT_EQ(count_rule_repetitions("root ::= \"(\" root{2} \")\" | \"x\"{3}"), 3U);
  EXPECT_EQ(count_rule_repetitions("a ::= b{2}\nb ::= a{3} | \"x\"{4}"), 8U);
}

// Rules that are defined behind their use, not at all, or with attributes.
TEST(Repetitions, OfAnyTextAreCounted) {
  for (const char* text :
       {"", "::=", "root", "::= a{", "\"", "[", "root ::= \"\\", "a ::= (((", "#"})
    EXPECT_EQ(count_rule_repetitions(text), 1U) << text;
  EXPECT_EQ(count_rule_repetitions("root ::= a{3}\na[max_tokens=5] ::= \"x\"{4}"), 12U);
}

}  // namespace
}  // namespace halfbyte
