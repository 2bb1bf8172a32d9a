// SPDX-License-Identifier: Apache-2.0
#include "text/tool_call_parser.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";
constexpr int kMaxDepth = 64;

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Bytes at the end that could be the beginning of kOpen.
std::size_t num_held(std::string_view text) {
  for (std::size_t size = std::min(kOpen.size() - 1, text.size()); size > 0; --size) {
    if (kOpen.starts_with(text.substr(text.size() - size))) return size;
  }
  return 0;
}

std::optional<ToolCall> parse_call(std::string_view text) {
  bool too_deep = false;
  const auto check_depth = [&too_deep](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  const Json call = Json::parse(text, check_depth, false);
  if (too_deep || !call.is_object()) return std::nullopt;
  const auto name = call.find("name");
  if (name == call.end() || !name->is_string()) return std::nullopt;
  const auto arguments = call.find("arguments");
  if (arguments == call.end()) return ToolCall{name->get<std::string>(), "{}"};
  const bool is_text = arguments->is_string();
  return ToolCall{name->get<std::string>(),
                  is_text ? arguments->get<std::string>() : arguments->dump()};
}

}  // namespace

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
    parsed.content = std::string(kOpen) + rest;
  } else if (!after_call_ || !is_blank(rest)) {
    add_content(rest, parsed);
  }
  return parsed;
}

// Text up to a call, or as much as is known to be text. True when a call begins.
bool ToolCallParser::take_content(Parsed& parsed) {
  const std::size_t open = pending_.find(kOpen);
  if (open != std::string::npos) {
    const std::string text = pending_.substr(0, open);
    if (!before_text_ || !is_blank(text)) add_content(text, parsed);
    pending_.erase(0, open + kOpen.size());
    in_call_ = true;
    return true;
  }
  const std::size_t size = pending_.size() - num_held(pending_);
  if (before_text_ && is_blank(std::string_view(pending_).substr(0, size))) return false;
  add_content(pending_.substr(0, size), parsed);
  pending_.erase(0, size);
  return false;
}

// False while the call has no end.
bool ToolCallParser::take_call(Parsed& parsed) {
  const std::size_t close = pending_.find(kClose);
  if (close == std::string::npos) return false;
  const std::string text = pending_.substr(0, close);
  pending_.erase(0, close + kClose.size());
  in_call_ = false;
  if (auto call = parse_call(text)) {
    parsed.calls.push_back(std::move(*call));
    after_call_ = before_text_ = true;
  } else {
    add_content(std::string(kOpen) + text + std::string(kClose), parsed);
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
