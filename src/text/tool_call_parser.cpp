// SPDX-License-Identifier: Apache-2.0
#include "text/tool_call_parser.h"

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
  while (in_call_ ? take_call(parsed) : take_content(parsed)) {
  }
  return parsed;
}

ToolCallParser::Parsed ToolCallParser::finish() {
  Parsed parsed;
  const std::string rest = std::exchange(pending_, {});
  if (in_call_) {
    add_content(opening_ + rest, parsed);
  } else if (!after_call_ || !skip_blanks(rest).empty()) {
    add_content(rest, parsed);
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
  in_call_ = true;
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

// False while the call has no end.
bool ToolCallParser::take_call(Parsed& parsed) {
  const std::size_t close = pending_.find(syntax_.close);
  if (close == std::string::npos) return false;
  const std::string text = pending_.substr(0, close);
  pending_.erase(0, close + syntax_.close.size());
  in_call_ = false;
  if (auto call = syntax_.parse(text)) {
    parsed.calls.push_back(std::move(*call));
    after_call_ = before_text_ = true;
  } else {
    add_content(opening_ + text + std::string(syntax_.close), parsed);
  }
  return true;
}

void ToolCallParser::add_content(std::string_view text, Parsed& parsed) {
  if (text.empty()) return;
  if (after_call_ && text.starts_with('\n')) text.remove_prefix(1);
  parsed.content += text;
  after_call_ = before_text_ = false;
}

}  // namespace halfbyte
