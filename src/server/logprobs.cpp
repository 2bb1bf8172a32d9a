// SPDX-License-Identifier: Apache-2.0
#include "server/logprobs.h"

#include <algorithm>
#include <array>
#include <string>

#include "text/utf8.h"

namespace halfbyte::server {
namespace {

std::string text_of(std::int32_t id, const Tokenizer& tokenizer) {
  return tokenizer.decode(std::array{id}, false);
}

Json describe(const TokenLogprob& token, const Tokenizer& tokenizer) {
  Json bytes = Json::array();
  for (const char byte : tokenizer.token_bytes(token.token_id)) {
    bytes.push_back(static_cast<unsigned char>(byte));
  }
  return {{"token", text_of(token.token_id, tokenizer)},
          {"logprob", finite_logprob(token.logprob)},
          {"bytes", std::move(bytes)}};
}

// Null where nothing is known.
Json own_logprob(const std::vector<TokenLogprob>& logprobs) {
  return logprobs.empty() ? Json() : Json(finite_logprob(logprobs.front().logprob));
}

// Text -> logprob of the likeliest, and of the token itself; null where nothing is known.
Json top_by_text(const std::vector<TokenLogprob>& logprobs, const Tokenizer& tokenizer) {
  if (logprobs.empty()) return nullptr;
  Json top = Json::object();
  const auto add = [&](const TokenLogprob& token) {
    top.emplace(text_of(token.token_id, tokenizer), finite_logprob(token.logprob));
  };
  std::ranges::for_each(std::span(logprobs).subspan(1), add);
  add(logprobs.front());
  return top;
}

}  // namespace

double finite_logprob(float logprob) {
  constexpr double kFloor = -9999.0;
  return std::max(static_cast<double>(logprob), kFloor);
}

Json chat_logprobs(const std::vector<TokenRecord>& tokens, const Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const TokenRecord& token : tokens) {
    Json entry = describe(token.logprobs.front(), tokenizer);
    Json top = Json::array();
    for (const TokenLogprob& likely : std::span(token.logprobs).subspan(1)) {
      top.push_back(describe(likely, tokenizer));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const std::vector<TokenRecord>& tokens,
                         const Tokenizer& tokenizer,
                         bool has_top) {
  Json texts = Json::array(), logprobs = Json::array(), offsets = Json::array();
  Json top = has_top ? Json::array() : Json();
  for (const TokenRecord& token : tokens) {
    texts.push_back(text_of(token.id, tokenizer));
    logprobs.push_back(own_logprob(token.logprobs));
    offsets.push_back(token.text_offset);
    if (has_top) top.push_back(top_by_text(token.logprobs, tokenizer));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)}};
}

// A special token is part of the text only where the text has it.
std::vector<TokenRecord> prompt_records(std::span<const std::int32_t> prompt,
                                        std::int64_t start,
                                        std::span<const std::vector<TokenLogprob>> logprobs,
                                        std::string_view text,
                                        const Tokenizer& tokenizer) {
  std::vector<TokenRecord> records;
  Detokenizer detokenizer(tokenizer, false);
  std::int64_t num_characters = 0;
  const auto first = static_cast<std::size_t>(start);
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const std::int32_t id = prompt[i];
    if (i >= first) records.push_back({id, logprobs[i - first], num_characters, true});
    if (tokenizer.is_special(id) && !text.starts_with(tokenizer.token_bytes(id))) continue;
    const std::string piece = detokenizer.push(id);
    text.remove_prefix(std::min(piece.size(), text.size()));
    num_characters += static_cast<std::int64_t>(count_code_points(piece));
  }
  return records;
}

}  // namespace halfbyte::server
