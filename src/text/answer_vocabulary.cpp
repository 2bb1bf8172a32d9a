// SPDX-License-Identifier: Apache-2.0
#include "text/answer_vocabulary.h"

#include <utility>

namespace halfbyte {

AnswerVocabulary answer_vocabulary(const Tokenizer& tokenizer,
                                   std::int64_t vocab_size,
                                   std::vector<std::int32_t> end_token_ids) {
  AnswerVocabulary vocabulary;
  vocabulary.tokens.resize(static_cast<std::size_t>(vocab_size));
  for (std::int64_t i = 0; i < vocab_size; ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (tokenizer.is_special(id)) continue;
    vocabulary.tokens[static_cast<std::size_t>(i)] = tokenizer.token_bytes(id);
  }
  std::erase_if(end_token_ids,
                [vocab_size](std::int32_t id) { return id < 0 || id >= vocab_size; });
  for (const std::int32_t id : end_token_ids) {
    vocabulary.tokens[static_cast<std::size_t>(id)].clear();
  }
  vocabulary.end_token_ids = std::move(end_token_ids);
  return vocabulary;
}

}  // namespace halfbyte
