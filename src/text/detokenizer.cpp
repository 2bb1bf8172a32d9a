// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace halfbyte {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string Detokenizer::push(std::int32_t id) {
  if (skip_special_tokens_ && tokenizer_.is_special(id)) return {};
  pending_ += tokenizer_.token_bytes(id);
  std::string text;
  pending_.erase(0, append_lossy_utf8(pending_, false, text));
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  append_lossy_utf8(pending_, true, text);
  pending_.clear();
  return text;
}

}  // namespace halfbyte
