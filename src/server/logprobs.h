// SPDX-License-Identifier: Apache-2.0
//
// Logprobs of tokens in OpenAI's two forms.
#ifndef HALFBYTE_SERVER_LOGPROBS_H_
#define HALFBYTE_SERVER_LOGPROBS_H_

#include <vector>

#include "server/choice.h"

namespace halfbyte::server {

/// {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}. A token that is part of a
/// character has U+FFFD in its text; minus infinity is -9999.
Json chat_logprobs(const std::vector<TokenRecord>& tokens, const Tokenizer& tokenizer);

/// {tokens, token_logprobs, top_logprobs, text_offset}; top_logprobs is null without `has_top`.
/// Of likely tokens with the same text it has the likeliest.
Json completion_logprobs(const std::vector<TokenRecord>& tokens,
                         const Tokenizer& tokenizer,
                         bool has_top);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_LOGPROBS_H_
