// SPDX-License-Identifier: Apache-2.0
#include "text/tool_call_parser.h"

#include <algorithm>
#include <utility>

#include "text/markers.h"
#include "text/tool_call_format.h"

namespace halfbyte {
namespace {

// Where a call opens in a text; kPartial: what is there could become it; kNone: `begin` is the end.
struct Opening {
  MarkerFit fit = MarkerFit::kNone;
  std::size_t begin = 0;
  std::size_t size = 0;  // with the marker of a section before it
};

Opening opening_at(std::string_view text, std::size_t begin, const ToolCallParser::Syntax& syntax) {
  std::string_view rest = text.substr(begin);
  if (!syntax.section_open.empty()) {
    const MarkerFit section = fit_marker(rest, syntax.section_open);
    if (section == MarkerFit::kPartial) return {section, begin, 0};
    if (section == MarkerFit::kWhole) rest = skip_blanks(rest.substr(syntax.section_open.size()));
  }
  const std::size_t skipped = text.size() - begin - rest.size();
  return {fit_marker(rest, syntax.open), begin, skipped + syntax.open.size()};
}

// Every marker begins with '<'.
Opening find_opening(std::string_view text, const ToolCallParser::Syntax& syntax) {
  for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
    const Opening opening = opening_at(text, at, syntax);
    if (opening.fit != MarkerFit::kNone) return opening;
  }
  return {MarkerFit::kNone, text.size(), 0};
}

}  // namespace

ToolCallParser::ToolCallParser(ToolCallFormat format) : syntax_(syntax_of(format)) {}

ToolCallParser::Parsed ToolCallParser::push(std::string_view piece) {
  Parsed parsed;
  pending_ += piece;
  while (step(parsed)) {
  }
  return parsed;
}

// False when more text is needed.
bool ToolCallParser::step(Parsed& parsed) {
  switch (state_) {
    case State::kContent:
      return take_content(parsed);
    case State::kHead:
      return take_head(parsed);
    case State::kWhole:
      return take_whole(parsed);
    case State::kArguments:
      return take_arguments(parsed);
    case State::kTail:
      return take_tail();
  }
  return false;
}

ToolCallParser::Parsed ToolCallParser::finish() {
  Parsed parsed;
  const std::string rest = std::exchange(pending_, {});
  switch (std::exchange(state_, State::kContent)) {
    case State::kContent:
      if (!after_call_ || !skip_blanks(rest).empty()) add_content(rest, parsed);
      break;
    case State::kHead:
    case State::kWhole:
      add_content(opening_ + rest, parsed);
      break;
    case State::kArguments:
      add_arguments(rest, parsed);
      break;
    case State::kTail:
      finish_tail(rest, parsed);
      break;
  }
  return parsed;
}

// Text up to a call, or as much as is known to be text. True when a call begins.
bool ToolCallParser::take_content(Parsed& parsed) {
  if (!skip_section_end()) return false;
  const Opening opening = find_opening(pending_, syntax_);
  const std::string text = pending_.substr(0, opening.begin);
  const bool is_blank = before_text_ && skip_blanks(text).empty();
  if (!is_blank) {
    add_content(text, parsed);
    pending_.erase(0, opening.begin);
  }
  if (opening.fit != MarkerFit::kWhole) return false;
  opening_ = pending_.substr(0, opening.size + (is_blank ? opening.begin : 0));
  pending_.erase(0, opening_.size());
  state_ = State::kHead;
  return true;
}

// Drops the marker behind the last call. False while it is open whether it comes.
bool ToolCallParser::skip_section_end() {
  if (!after_call_ || syntax_.section_close.empty()) return true;
  const std::string_view rest = skip_blanks(pending_);
  const MarkerFit fit = fit_marker(rest, syntax_.section_close);
  if (fit == MarkerFit::kWhole) {
    pending_.erase(0, pending_.size() - rest.size() + syntax_.section_close.size());
  }
  return fit != MarkerFit::kPartial;
}

bool ToolCallParser::take_head(Parsed& parsed) {
  const std::size_t close = pending_.find(syntax_.close);
  ToolCallHead head = syntax_.read_head(std::string_view(pending_).substr(0, close));
  if (head.fit == MarkerFit::kPartial && close == std::string::npos) return false;
  if (head.fit != MarkerFit::kWhole) {
    state_ = State::kWhole;
    return true;
  }
  pending_.erase(0, head.size);
  begin_call(std::move(head.name), {}, parsed);
  nesting_ = {};
  state_ = State::kArguments;
  return true;
}

bool ToolCallParser::take_whole(Parsed& parsed) {
  const std::size_t close = pending_.find(syntax_.close);
  if (close == std::string::npos) return false;
  const std::string text = pending_.substr(0, close);
  pending_.erase(0, close + syntax_.close.size());
  if (auto call = syntax_.parse(text)) {
    begin_call(std::move(call->name), std::move(call->arguments), parsed);
    end_arguments(true);
    leave_call();
  } else {
    state_ = State::kContent;
    add_content(opening_ + text + std::string(syntax_.close), parsed);
  }
  return true;
}

// Text of the arguments, as much as is known to be that.
bool ToolCallParser::take_arguments(Parsed& parsed) {
  const std::size_t size = num_argument_bytes();
  add_arguments(std::string_view(pending_).substr(0, size), parsed);
  pending_.erase(0, size);
  if (nesting_.is_closed()) {
    end_arguments(true);
    state_ = State::kTail;
    return true;
  }
  if (fit_marker(pending_, syntax_.close) != MarkerFit::kWhole) return false;
  pending_.erase(0, syntax_.close.size());
  end_arguments(false);
  leave_call();
  return true;
}

// Up to the end of the object, or to what is, or could become, the closing marker.
std::size_t ToolCallParser::num_argument_bytes() {
  const std::string_view text = pending_;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool may_close = text[i] == '<' && !nesting_.in_string();
    if (may_close && fit_marker(text.substr(i), syntax_.close) != MarkerFit::kNone) return i;
    nesting_.push(text[i]);
    if (nesting_.is_closed()) return i + 1;
  }
  return text.size();
}

// A model that leaves the closing marker out goes on with the next call, or ends them.
bool ToolCallParser::take_tail() {
  const std::size_t close = pending_.find(syntax_.close);
  std::size_t end = std::min(close, pending_.find(syntax_.open));
  if (!syntax_.section_close.empty()) end = std::min(end, pending_.find(syntax_.section_close));
  if (end == std::string::npos) return false;
  pending_.erase(0, end == close ? end + syntax_.close.size() : end);
  leave_call();
  return true;
}

void ToolCallParser::begin_call(std::string name, std::string arguments, Parsed& parsed) {
  parsed.calls.push_back({num_calls_++, std::move(name), std::move(arguments)});
}

void ToolCallParser::end_arguments(bool are_whole) {
  ++num_ended_calls_;
  if (are_whole) ++num_whole_calls_;
}

void ToolCallParser::leave_call() {
  state_ = State::kContent;
  after_call_ = before_text_ = true;
}

void ToolCallParser::finish_tail(std::string_view rest, Parsed& parsed) {
  after_call_ = true;
  std::string_view left = skip_blanks(rest);
  const MarkerFit tail = fit_marker(left, syntax_.tail);
  if (tail == MarkerFit::kPartial) return;
  if (tail == MarkerFit::kWhole) left.remove_prefix(syntax_.tail.size());
  if (fit_marker(skip_blanks(left), syntax_.close) != MarkerFit::kPartial) {
    add_content(left, parsed);
  }
}

// Of the call that has begun last.
void ToolCallParser::add_arguments(std::string_view piece, Parsed& parsed) const {
  if (piece.empty()) return;
  const std::size_t index = num_calls_ - 1;
  if (parsed.calls.empty() || parsed.calls.back().index != index) {
    parsed.calls.push_back({index});
  }
  parsed.calls.back().arguments += piece;
}

void ToolCallParser::add_content(std::string_view text, Parsed& parsed) {
  if (text.empty()) return;
  if (after_call_ && text.starts_with('\n')) text.remove_prefix(1);
  parsed.content += text;
  after_call_ = before_text_ = false;
}

}  // namespace halfbyte
