// SPDX-License-Identifier: Apache-2.0
#include "text/reasoning_parser.h"

#include <algorithm>
#include <utility>

#include "text/markers.h"

namespace halfbyte {
namespace {

// `text` without the newlines at its end.
std::string_view without_newlines(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

}  // namespace

Reasoning reasoning_after(std::string_view prompt) {
  const std::string_view tail = strip_blanks(prompt);
  if (tail.ends_with(kReasoningClose)) return Reasoning::kNone;
  return tail.ends_with(kReasoningOpen) ? Reasoning::kBegun : Reasoning::kMayBegin;
}

Reasoning reasoning_within(std::string_view message) {
  const std::size_t open = message.rfind(kReasoningOpen);
  const std::size_t close = message.rfind(kReasoningClose);
  const bool is_open =
      open != std::string_view::npos && (close == std::string_view::npos || close < open);
  return is_open ? Reasoning::kBegun : Reasoning::kNone;
}

ReasoningParser::ReasoningParser(Reasoning start)
    : state_(start == Reasoning::kNone    ? State::kContent
             : start == Reasoning::kBegun ? State::kInside
                                          : State::kBefore),
      after_marker_(start != Reasoning::kNone) {}

ReasoningParser::Parsed ReasoningParser::push(std::string_view piece) {
  Parsed parsed;
  pending_ += piece;
  if (state_ == State::kBefore && !take_opening()) return parsed;
  if (state_ == State::kInside && !take_reasoning(parsed)) return parsed;
  take_content(parsed);
  return parsed;
}

ReasoningParser::Parsed ReasoningParser::finish() {
  std::string rest = std::exchange(pending_, {});
  if (state_ == State::kInside) return {std::move(rest), {}};
  return {{}, std::move(rest)};
}

// False while it is open what the answer begins with.
bool ReasoningParser::take_opening() {
  const std::string_view rest = skip_blanks(pending_);
  const MarkerFit fit = fit_marker(rest, kReasoningOpen);
  if (fit == MarkerFit::kPartial) return false;
  if (fit == MarkerFit::kNone) {
    state_ = State::kContent;
    after_marker_ = false;
    return true;
  }
  pending_.erase(0, pending_.size() - rest.size() + kReasoningOpen.size());
  state_ = State::kInside;
  return true;
}

// False while the reasoning goes on.
bool ReasoningParser::take_reasoning(Parsed& parsed) {
  drop_newlines();
  const std::size_t close = pending_.find(kReasoningClose);
  const std::size_t size = close == std::string::npos
                               ? pending_.size() - num_held_for(pending_, kReasoningClose)
                               : close;
  const std::string_view text = without_newlines(std::string_view(pending_).substr(0, size));
  parsed.reasoning += text;
  if (close == std::string::npos) {
    pending_.erase(0, text.size());
    return false;
  }
  pending_.erase(0, close + kReasoningClose.size());
  state_ = State::kContent;
  after_marker_ = true;
  return true;
}

void ReasoningParser::take_content(Parsed& parsed) {
  drop_newlines();
  parsed.content += std::exchange(pending_, {});
}

void ReasoningParser::drop_newlines() {
  if (!after_marker_) return;
  pending_.erase(0, std::min(pending_.find_first_not_of('\n'), pending_.size()));
  after_marker_ = pending_.empty();
}

}  // namespace halfbyte
