// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_ANSWER_VOCABULARY_H_
#define HALFBYTE_TEXT_ANSWER_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace halfbyte {

/// The tokens of a model as far as they can be text of an answer. Immutable; any thread.
struct AnswerVocabulary {
  /// Bytes of each id of the model; empty for what is no text: special tokens (a string of JSON may
  /// not hold one), ends of text, and ids that the tokenizer does not have.
  std::vector<std::string> tokens;
  std::vector<std::int32_t> end_token_ids;  // the model's ends of text
};

/// `vocab_size` is the model's; the tokenizer's may be smaller. Ends outside of it never come.
AnswerVocabulary answer_vocabulary(const Tokenizer& tokenizer,
                                   std::int64_t vocab_size,
                                   std::vector<std::int32_t> end_token_ids);

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_ANSWER_VOCABULARY_H_
