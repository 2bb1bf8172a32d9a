// SPDX-License-Identifier: Apache-2.0
#include "bench_serve/answer_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace halfbyte::tool {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxQuoted = 200;  // of what a server said, in an error

// The member of that name, or null; `object` may be anything.
const json& member(const json& object, const char* name) {
  static const json null;
  if (!object.is_object()) return null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::int64_t count_of(const json& value, std::int64_t otherwise) {
  return value.is_number_integer() ? value.get<std::int64_t>() : otherwise;
}

std::string tool_call_text(const json& calls) {
  std::string text;
  if (!calls.is_array()) return text;
  for (const json& call : calls) {
    const json& function = member(call, "function");
    text += text_of(member(function, "name")) + text_of(member(function, "arguments"));
  }
  return text;
}

// What a choice adds to the answer, in any of the forms.
std::string choice_text(const json& choice) {
  const json& delta = member(choice, "delta");
  const json& message = delta.is_object() ? delta : member(choice, "message");
  return text_of(member(choice, "text")) + text_of(member(message, "reasoning_content")) +
         text_of(member(message, "content")) + tool_call_text(member(message, "tool_calls"));
}

std::string error_text(const json& body) {
  const json& error = member(body, "error");
  const std::string message = text_of(member(error.is_object() ? error : body, "message"));
  return message.empty() ? body.dump().substr(0, kMaxQuoted) : message;
}

void take_usage(const json& usage, Outcome& outcome) {
  if (!usage.is_object()) return;
  outcome.prompt_tokens = count_of(member(usage, "prompt_tokens"), outcome.prompt_tokens);
  outcome.completion_tokens =
      count_of(member(usage, "completion_tokens"), outcome.completion_tokens);
  outcome.cached_tokens =
      count_of(member(member(usage, "prompt_tokens_details"), "cached_tokens"), 0);
}

}  // namespace

std::vector<std::string> SseReader::feed(std::string_view bytes) {
  std::vector<std::string> events;
  for (const char c : bytes) {
    const bool ends_pair = c == '\n' && after_return_;
    after_return_ = c == '\r';
    if (ends_pair) continue;
    if (c == '\n' || c == '\r') {
      end_line(events);
    } else {
      line_ += c;
    }
  }
  return events;
}

void SseReader::end_line(std::vector<std::string>& events) {
  constexpr std::string_view kData = "data:";
  if (line_.empty()) {
    if (has_data_) events.push_back(std::move(data_));
    data_.clear();
    has_data_ = false;
  } else if (line_.starts_with(kData)) {
    const std::size_t begin = kData.size() + (line_.starts_with("data: ") ? 1 : 0);
    if (has_data_) data_ += '\n';
    data_ += line_.substr(begin);
    has_data_ = true;
  }
  line_.clear();
}

void AnswerReader::feed(std::string_view bytes, double now) {
  if (!streams_) {
    body_ += bytes;
    return;
  }
  for (const std::string& data : events_.feed(bytes))
    take_event(data, now);
}

void AnswerReader::take_event(const std::string& data, double now) {
  if (data == "[DONE]") {
    is_done_ = true;
  } else {
    take_object(data, now);
  }
}

void AnswerReader::take_object(std::string_view text, double now) {
  const json body = json::parse(text, nullptr, false);
  if (!body.is_object()) {
    outcome_.error = fmt::format("not a JSON object: {}", text.substr(0, kMaxQuoted));
    return;
  }
  if (body.contains("error") && !body["error"].is_null()) {
    outcome_.error = error_text(body);
    return;
  }
  take_usage(member(body, "usage"), outcome_);
  const json& choices = member(body, "choices");
  if (!choices.is_array()) return;
  std::string added;
  for (const json& choice : choices) {
    added += choice_text(choice);
    const std::string reason = text_of(member(choice, "finish_reason"));
    if (!reason.empty()) outcome_.finish_reason = reason;
  }
  if (!added.empty()) outcome_.chunks.push_back(now);
  outcome_.text += added;
}

void AnswerReader::finish(double now) {
  outcome_.done = now;
  if (!streams_) {
    take_object(body_, now);
  } else if (!is_done_ && outcome_.error.empty()) {
    outcome_.error = "the stream ended without [DONE]";
  }
  if (!outcome_.error.empty() || !outcome_.finish_reason.empty()) return;
  outcome_.error = "no choice has a finish_reason";
}

void AnswerReader::refuse(int status, std::string_view body) {
  const json parsed = json::parse(body, nullptr, false);
  outcome_.error =
      fmt::format("HTTP status {}: {}", status,
                  parsed.is_object() ? error_text(parsed) : body.substr(0, kMaxQuoted));
}

}  // namespace halfbyte::tool
