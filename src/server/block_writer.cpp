// SPDX-License-Identifier: Apache-2.0
#include "server/block_writer.h"

#include <utility>

namespace halfbyte::server {
namespace {

void append_entries(const Json& more, Json& list) {
  list.insert(list.end(), more.begin(), more.end());
}

}  // namespace

std::string BlockWriter::open(Block block) {
  std::string events = close_last();
  blocks_.push_back(std::move(block));
  return events + open_event(blocks_.back());
}

std::string BlockWriter::close_last() {
  return blocks_.empty() ? std::string() : close_event(blocks_.back());
}

std::string BlockWriter::extend(BlockKind kind, const std::string& text, const Tokens& tokens) {
  std::string events;
  if (blocks_.empty() || blocks_.back().kind != kind) events = open({.kind = kind});
  Block& block = blocks_.back();
  const Json logprobs = logprobs_of(tokens);
  block.text += text;
  append_entries(logprobs, block.logprobs);
  return events + more_event(block, text, logprobs);
}

// Tokens wait for the text: only that has logprobs.
std::string BlockWriter::reasoning_event(const Place&, const std::string& text, Tokens&) {
  return extend(BlockKind::kReasoning, text, {});
}

std::string BlockWriter::text_event(const Place&, const std::string& text, Tokens& tokens) {
  return extend(BlockKind::kText, text, std::exchange(tokens, {}));
}

std::string BlockWriter::call_event(const Place&, const CallDelta& call, Tokens&) {
  std::string events;
  if (begins(call)) {
    events = open({.kind = BlockKind::kCall, .call_id = call.id, .name = call.name});
  }
  if (!call.arguments.empty()) events += extend(BlockKind::kCall, call.arguments, {});
  return events;
}

std::string BlockWriter::finish_event(const Place& place, const Tokens& tokens) {
  if (!blocks_.empty()) {
    Block& last = blocks_.back();
    const std::string& reason = place.choice.finish_reason();
    last.is_cut = reason == "length" || reason == "abort";
    if (last.kind == BlockKind::kText) append_entries(logprobs_of(tokens), last.logprobs);
  }
  std::string events = close_last();
  return events + final_events(place);
}

std::string BlockWriter::response(const std::vector<Choice>& choices,
                                  const std::vector<AnswerParts>& answers,
                                  const Usage& usage) {
  const Place place{0, choices.front(), usage};
  Tokens unsent;
  for (const AnswerPart& part : answers.front()) {
    part_events(place, part, unsent);
  }
  finish_event(place, unsent);
  return to_text(whole(place));
}

}  // namespace halfbyte::server
