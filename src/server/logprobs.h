// SPDX-License-Identifier: Apache-2.0
//
// Logprobs of tokens in OpenAI's two forms, and those of prompts.
#ifndef HALFBYTE_SERVER_LOGPROBS_H_
#define HALFBYTE_SERVER_LOGPROBS_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "server/choice.h"

namespace halfbyte::server {

/// JSON has no infinity: at least -9999.
double finite_logprob(float logprob);

/// {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}. A token that is part of a
/// character has U+FFFD in its text; minus infinity is -9999.
Json chat_logprobs(const std::vector<TokenRecord>& tokens, const Tokenizer& tokenizer);

/// {tokens, token_logprobs, top_logprobs, text_offset}; top_logprobs is null without `has_top`.
/// Of likely tokens with the same text it has the likeliest. A prompt's first token, which nothing
/// precedes, has null in both.
Json completion_logprobs(const std::vector<TokenRecord>& tokens,
                         const Tokenizer& tokenizer,
                         bool has_top);

/// The prompt's tokens from `start` on, with their TokenEvent::prompt_logprobs. `text` is the
/// prompt's as it is shown, which may lack special tokens that were put around it.
std::vector<TokenRecord> prompt_records(std::span<const std::int32_t> prompt,
                                        std::int64_t start,
                                        std::span<const std::vector<TokenLogprob>> logprobs,
                                        std::string_view text,
                                        const Tokenizer& tokenizer);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_LOGPROBS_H_
