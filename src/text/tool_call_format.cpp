// SPDX-License-Identifier: Apache-2.0
#include "text/tool_call_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "text/markers.h"

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 64;
// U+FF5C is EF BD 9C, U+2581 is E2 96 81.
constexpr std::string_view kSeparator =
    "<\xEF\xBD\x9C"
    "tool\xE2\x96\x81sep\xEF\xBD\x9C>";
constexpr std::string_view kFence = "```json";
constexpr std::string_view kFenceEnd = "```";

// The object in `text`; none when it is something else.
std::optional<Json> parse_object(std::string_view text) {
  bool too_deep = false;
  const auto check_depth = [&too_deep](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  Json json = Json::parse(text, check_depth, false);
  if (too_deep || !json.is_object()) return std::nullopt;
  return json;
}

std::optional<ToolCall> parse_qwen3(std::string_view text) {
  const std::optional<Json> call = parse_object(text);
  if (!call) return std::nullopt;
  const auto name = call->find("name");
  if (name == call->end() || !name->is_string()) return std::nullopt;
  const auto arguments = call->find("arguments");
  if (arguments == call->end()) return ToolCall{name->get<std::string>(), "{}"};
  const bool is_text = arguments->is_string();
  return ToolCall{name->get<std::string>(),
                  is_text ? arguments->get<std::string>() : arguments->dump()};
}

std::optional<ToolCall> make_call(std::string_view name, std::string_view arguments) {
  if (name.empty() || !parse_object(arguments)) return std::nullopt;
  return ToolCall{std::string(name), std::string(arguments)};
}

// "NAME\n```json\n{...}\n```"
std::optional<ToolCall> parse_fenced(std::string_view text) {
  const std::size_t line_end = text.find('\n');
  if (line_end == std::string_view::npos) return std::nullopt;
  std::string_view fenced = strip_blanks(text.substr(line_end));
  if (!fenced.starts_with(kFence) || !fenced.ends_with(kFenceEnd)) return std::nullopt;
  fenced.remove_prefix(kFence.size());
  fenced.remove_suffix(std::min(kFenceEnd.size(), fenced.size()));
  return make_call(strip_blanks(text.substr(0, line_end)), strip_blanks(fenced));
}

std::optional<ToolCall> parse_deepseek(std::string_view text) {
  const std::size_t separator = text.find(kSeparator);
  if (separator == std::string_view::npos) return std::nullopt;
  const std::string_view head = strip_blanks(text.substr(0, separator));
  const std::string_view tail = strip_blanks(text.substr(separator + kSeparator.size()));
  if (tail.starts_with('{')) return make_call(head, tail);
  return head == "function" ? parse_fenced(tail) : std::nullopt;
}

constexpr ToolCallParser::Syntax kQwen3Syntax = {.section_open = "",
                                                 .section_close = "",
                                                 .open = "<tool_call>",
                                                 .close = "</tool_call>",
                                                 .parse = parse_qwen3};
constexpr ToolCallParser::Syntax kDeepSeekSyntax = {.section_open =
                                                        "<\xEF\xBD\x9C"
                                                        "tool\xE2\x96\x81"
                                                        "calls\xE2\x96\x81"
                                                        "begin\xEF\xBD\x9C>",
                                                    .section_close =
                                                        "<\xEF\xBD\x9C"
                                                        "tool\xE2\x96\x81"
                                                        "calls\xE2\x96\x81"
                                                        "end\xEF\xBD\x9C>",
                                                    .open =
                                                        "<\xEF\xBD\x9C"
                                                        "tool\xE2\x96\x81"
                                                        "call\xE2\x96\x81"
                                                        "begin\xEF\xBD\x9C>",
                                                    .close =
                                                        "<\xEF\xBD\x9C"
                                                        "tool\xE2\x96\x81"
                                                        "call\xE2\x96\x81"
                                                        "end\xEF\xBD\x9C>",
                                                    .parse = parse_deepseek};

}  // namespace

const ToolCallParser::Syntax& syntax_of(ToolCallFormat format) {
  return format == ToolCallFormat::kQwen3 ? kQwen3Syntax : kDeepSeekSyntax;
}

std::string_view tool_call_marker(ToolCallFormat format) {
  return syntax_of(format).open;
}

}  // namespace halfbyte
