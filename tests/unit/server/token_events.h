// SPDX-License-Identifier: Apache-2.0
//
// What an engine says that answers with a known text, and what a stream says.
#ifndef HALFBYTE_TESTS_UNIT_SERVER_TOKEN_EVENTS_H_
#define HALFBYTE_TESTS_UNIT_SERVER_TOKEN_EVENTS_H_

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/engine.h"
#include "server/json.h"
#include "unit/server/shipped_text.h"

namespace halfbyte::server {

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

// The events of a stream, without the last, which is [DONE].
inline std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> events;
  std::string_view rest = body;
  while (!rest.empty()) {
    const std::size_t end = rest.find("\n\n");
    const std::string_view event = rest.substr(0, end);
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    rest.remove_prefix(end + 2);
    if (event == "data: [DONE]") {
      EXPECT_TRUE(rest.empty()) << "something after [DONE]";
      return events;
    }
    events.push_back(Json::parse(event.substr(6)));
  }
  ADD_FAILURE() << "no [DONE]: " << body;
  return events;
}

}  // namespace halfbyte::server

#endif  // HALFBYTE_TESTS_UNIT_SERVER_TOKEN_EVENTS_H_
