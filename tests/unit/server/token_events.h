// SPDX-License-Identifier: Apache-2.0
//
// The shipped model's tokenizer, and what an engine says that answers with a known text.
#ifndef HALFBYTE_TESTS_UNIT_SERVER_TOKEN_EVENTS_H_
#define HALFBYTE_TESTS_UNIT_SERVER_TOKEN_EVENTS_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "halfbyte/engine.h"
#include "text/tokenizer.h"

namespace halfbyte::server {

inline const Tokenizer& tokenizer() {
  static const std::unique_ptr<Tokenizer> loaded = [] {
    auto result =
        Tokenizer::load(std::string(HALFBYTE_SOURCE_DIR) + "/models/gsm-mini-qwen3moe-nvfp4");
    EXPECT_TRUE(result.ok());
    return std::move(result).value();
  }();
  return *loaded;
}

inline constexpr std::int32_t kEndOfText = 2;

// The tokens of `text`, and an end of text, or the limit, behind them.
inline std::vector<TokenEvent> events_of(const std::string& text, FinishReason reason) {
  auto ids = tokenizer().encode(text);
  EXPECT_TRUE(ids.ok());
  if (reason == FinishReason::kStop) ids->push_back(kEndOfText);
  std::vector<TokenEvent> events(ids->size());
  for (std::size_t i = 0; i < events.size(); ++i)
    events[i].token_id = (*ids)[i];
  events.back().finish_reason = reason;
  return events;
}

}  // namespace halfbyte::server

#endif  // HALFBYTE_TESTS_UNIT_SERVER_TOKEN_EVENTS_H_
