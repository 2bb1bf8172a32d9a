// SPDX-License-Identifier: Apache-2.0
#include "server/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace halfbyte::server {
namespace {

// A bit each for reasoning, content and calls.
unsigned kinds_of(const AnswerPart& part) {
  return (part.reasoning.empty() ? 0U : 1U) | (part.content.empty() ? 0U : 2U) |
         (part.calls.empty() ? 0U : 4U);
}

bool goes_on(const AnswerPart& last, const AnswerPart& more) {
  const unsigned kinds = kinds_of(last);
  return kinds == 0 || (kinds == kinds_of(more) && std::has_single_bit(kinds));
}

}  // namespace

std::string to_event(const Json& json) {
  return "data: " + to_text(json) + "\n\n";
}

std::string to_typed_event(const Json& json) {
  return fmt::format("event: {}\n{}", json["type"].get_ref<const std::string&>(), to_event(json));
}

Json ids_of(const std::vector<TokenRecord>& tokens) {
  Json ids = Json::array();
  for (const TokenRecord& token : tokens) {
    if (!token.of_prompt) ids.push_back(token.id);
  }
  return ids;
}

void append(AnswerPart more, AnswerParts& answer) {
  if (kinds_of(more) == 0 && more.tokens.empty()) return;
  if (!answer.empty() && goes_on(answer.back(), more)) {
    answer.back().append(std::move(more));
  } else {
    answer.push_back(std::move(more));
  }
}

AnswerPart merge(const AnswerParts& answer) {
  AnswerPart whole;
  for (const AnswerPart& part : answer) {
    whole.append(part);
  }
  return whole;
}

std::string AnswerWriter::part_events(const Place& place, AnswerPart part, Tokens& unsent) {
  if (unsent.empty()) {
    unsent = std::move(part.tokens);
  } else {
    std::ranges::move(part.tokens, std::back_inserter(unsent));
  }
  std::string events;
  if (!part.reasoning.empty()) events += reasoning_event(place, part.reasoning, unsent);
  auto call = part.calls.begin();
  for (; call != part.calls.end() && !begins(*call); ++call) {
    events += call_event(place, *call, unsent);
  }
  if (!part.content.empty()) events += text_event(place, part.content, unsent);
  for (; call != part.calls.end(); ++call) {
    events += call_event(place, *call, unsent);
  }
  return events;
}

std::string AnswerWriter::error_events(const ApiError& error) {
  return "data: " + error_body(error) + "\n\n" + std::string(kDoneEvent);
}

HttpResponse AnswerWriter::error_response(const ApiError& error) {
  return server::error_response(error);
}

std::string AnswerWriter::reasoning_event(const Place&, const std::string&, Tokens&) {
  return {};
}

std::string AnswerWriter::call_event(const Place&, const CallDelta&, Tokens&) {
  return {};
}

}  // namespace halfbyte::server
