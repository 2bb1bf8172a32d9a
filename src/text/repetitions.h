// SPDX-License-Identifier: Apache-2.0
//
// How often what a grammar repeats is repeated in one another: compilers and masks take time by it.
#ifndef HALFBYTE_TEXT_REPETITIONS_H_
#define HALFBYTE_TEXT_REPETITIONS_H_

#include <cstddef>
#include <string_view>

namespace halfbyte {

/// Repetitions {m,n} of a regular expression, those inside of others multiplied; the most that
/// there are in one place, at most 1,000,000. {m,} counts as m.
std::size_t count_repetitions(std::string_view regex);

/// The same of a grammar in EBNF, where a rule's name stands for what the rule says; a rule that
/// leads back to itself counts as 1 there.
std::size_t count_rule_repetitions(std::string_view grammar);

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_REPETITIONS_H_
