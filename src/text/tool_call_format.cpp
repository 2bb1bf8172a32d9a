// SPDX-License-Identifier: Apache-2.0
#include "text/tool_call_format.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "text/json_nesting.h"

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 64;

// ---------------------------------------------------------------- JSON as text

// Not deeper than kMaxDepth either.
bool is_object(std::string_view text) {
  bool too_deep = false;
  const auto check_depth = [&too_deep](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  if (!skip_blanks(text).starts_with('{')) return false;  // the parser would skip a BOM
  const Json json = Json::parse(text, check_depth, false);
  return !too_deep && json.is_object();
}

// The characters of a JSON string that stands in its quotes; empty when it is none.
std::string string_in(std::string_view quoted) {
  const Json json = Json::parse(quoted, nullptr, false);
  return json.is_string() ? json.get<std::string>() : std::string();
}

// Bytes of the value at the start of `text`, which is valid JSON and goes on behind it.
std::size_t value_size(std::string_view text) {
  constexpr std::string_view kScalarEnds = ",]} \t\r\n";
  JsonNesting nesting;
  nesting.push(text.front());
  if (nesting.is_closed()) return text.find_first_of(kScalarEnds);
  std::size_t size = 1;
  while (!nesting.is_closed()) {
    nesting.push(text[size++]);
  }
  return size;
}

// The value of a member of `object`, which is valid, as it is written there; empty without it. Of
// several the last, as parsers take it.
std::string_view member_in(std::string_view object, std::string_view name) {
  std::string_view found;
  std::string_view rest = skip_blanks(skip_blanks(object).substr(1));
  while (rest.front() != '}') {
    const std::size_t key_size = value_size(rest);
    const std::string key = string_in(rest.substr(0, key_size));
    rest = skip_blanks(skip_blanks(rest.substr(key_size)).substr(1));  // the colon
    const std::size_t size = value_size(rest);
    if (key == name) found = rest.substr(0, size);
    rest = skip_blanks(rest.substr(size));
    if (rest.front() == ',') rest = skip_blanks(rest.substr(1));
  }
  return found;
}

// ---------------------------------------------------------------- heads

// Takes one thing after the other off a text, white space between them. Once something is not
// there, or not yet, nothing is taken any more.
class HeadReader {
 public:
  explicit HeadReader(std::string_view text) : text_(text), rest_(text) {}

  void expect(std::string_view token) {
    if (!looks_at(token)) return;
    rest_.remove_prefix(token.size());
  }
  bool looks_at(std::string_view token) {
    if (fit_ != MarkerFit::kWhole) return false;
    rest_ = skip_blanks(rest_);
    fit_ = fit_marker(rest_, token);
    return fit_ == MarkerFit::kWhole;
  }
  // A JSON string in its quotes.
  std::string_view take_string() {
    if (!looks_at("\"")) return {};
    JsonNesting nesting;
    std::size_t size = 0;
    do {
      if (size == rest_.size()) return stop(MarkerFit::kPartial);
      nesting.push(rest_[size++]);
    } while (!nesting.is_closed());
    return take(size);
  }
  // Up to a character that is taken too.
  std::string_view take_until(char end) {
    if (fit_ != MarkerFit::kWhole) return {};
    rest_ = skip_blanks(rest_);
    const std::size_t size = rest_.find(end);
    if (size == std::string_view::npos) return stop(MarkerFit::kPartial);
    return take(size + 1);
  }
  // Of a call of this name, up to here.
  ToolCallHead head(std::string name) const {
    if (fit_ != MarkerFit::kWhole) return {fit_};
    if (name.empty()) return {MarkerFit::kNone};
    return {MarkerFit::kWhole, std::move(name), text_.size() - rest_.size()};
  }

 private:
  std::string_view stop(MarkerFit fit) {
    fit_ = fit;
    return {};
  }
  std::string_view take(std::size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view text_;
  std::string_view rest_;
  MarkerFit fit_ = MarkerFit::kWhole;
};

// {"name": NAME, "arguments": {
ToolCallHead read_qwen3_head(std::string_view text) {
  HeadReader reader(text);
  reader.expect("{");
  reader.expect("\"name\"");
  reader.expect(":");
  const std::string_view name = reader.take_string();
  reader.expect(",");
  reader.expect("\"arguments\"");
  reader.expect(":");
  reader.looks_at("{");
  return reader.head(string_in(name));
}

// NAME SEPARATOR {, or function SEPARATOR NAME\n```json {
ToolCallHead read_deepseek_head(std::string_view text) {
  const std::size_t separator = text.find(kDeepSeekSeparator);
  if (separator == std::string_view::npos) return {MarkerFit::kPartial};
  const std::string_view before = strip_blanks(text.substr(0, separator));
  const std::size_t behind = separator + kDeepSeekSeparator.size();
  const auto from_text = [behind](ToolCallHead head) {
    head.size += behind;
    return head;
  };
  HeadReader plain(text.substr(behind));
  if (plain.looks_at("{") || before != "function") {
    return from_text(plain.head(std::string(before)));
  }
  HeadReader fenced(text.substr(behind));
  const std::string_view name = strip_blanks(fenced.take_until('\n'));
  fenced.expect(kFence);
  fenced.looks_at("{");
  return from_text(fenced.head(std::string(name)));
}

// ---------------------------------------------------------------- whole calls

std::optional<ToolCall> parse_qwen3(std::string_view text) {
  if (!is_object(text)) return std::nullopt;
  const std::string name = string_in(member_in(text, "name"));
  if (name.empty()) return std::nullopt;
  const std::string_view arguments = member_in(text, "arguments");
  if (arguments.empty() || arguments == "null") return ToolCall{name, "{}"};
  if (arguments.starts_with('{')) return ToolCall{name, std::string(arguments)};
  std::string held = string_in(arguments);
  if (!is_object(held)) return std::nullopt;
  return ToolCall{name, std::move(held)};
}

// What has no head is no call.
std::optional<ToolCall> parse_deepseek(std::string_view) {
  return std::nullopt;
}

constexpr ToolCallParser::Syntax kQwen3Syntax = {.section_open = "",
                                                 .section_close = "",
                                                 .open = "<tool_call>",
                                                 .close = "</tool_call>",
                                                 .tail = "}",
                                                 .read_head = read_qwen3_head,
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
                                                    .tail = kFenceEnd,
                                                    .read_head = read_deepseek_head,
                                                    .parse = parse_deepseek};

}  // namespace

const ToolCallParser::Syntax& syntax_of(ToolCallFormat format) {
  return format == ToolCallFormat::kQwen3 ? kQwen3Syntax : kDeepSeekSyntax;
}

std::string_view tool_call_marker(ToolCallFormat format) {
  return syntax_of(format).open;
}

}  // namespace halfbyte
