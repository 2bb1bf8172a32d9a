// SPDX-License-Identifier: Apache-2.0
#include "server/responses_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "server/shared_fields.h"

namespace halfbyte::server {
namespace {

constexpr std::array<std::string_view, 3> kTextParts = {"input_text", "output_text", "text"};

// Parts of texts, all of the type that chats know; others are refused there.
Json content_of(const Json& given) {
  if (!given.is_array()) return given;
  Json parts = given;
  for (Json& part : parts) {
    if (!part.is_object()) continue;
    const Json& type = member_of(part, "type");
    const std::string name = type.is_string() ? type.get<std::string>() : "";
    if (std::ranges::count(kTextParts, name) == 0) continue;
    part = {{"type", "text"}, {"text", member_of(part, "text")}};
  }
  return parts;
}

// The texts of a reasoning item's list.
std::string joined_texts(const Json& list) {
  std::string text;
  for (const Json& part : list) {
    if (!part.is_object()) continue;
    const Json& piece = member_of(part, "text");
    if (piece.is_string()) text += piece.get_ref<const std::string&>();
  }
  return text;
}

class ResponsesConversion {
 public:
  ResponsesConversion(const Json& body,
                      const Json& earlier,
                      PathMap& paths,
                      std::optional<ApiError>& error)
      : body_(body), earlier_(earlier), paths_(paths), error_(error) {}

  Json run() {
    FieldReader reader(body_, "", error_);
    copy_shared_fields(body_, chat_);
    refuse_unsupported(reader);
    paths_.add("messages", "input");
    add_messages(reader);
    add_tools(reader);
    add_tool_choice(reader);
    add_format(reader);
    add_reasoning(reader);
    add_limit(reader);
    add_logprobs(reader);
    if (const auto parallel = reader.boolean("parallel_tool_calls")) {
      chat_["parallel_tool_calls"] = *parallel;
    }
    chat_["messages"] = std::move(messages_);
    return std::move(chat_);
  }

 private:
  void refuse_unsupported(FieldReader& reader) {
    if (reader.boolean("background").value_or(false)) reader.refuse("background");
    if (reader.string("truncation").value_or("disabled") != "disabled") {
      reader.refuse("truncation");
    }
    for (const std::string_view name : {"conversation", "prompt"}) {
      if (reader.find(name) != nullptr) reader.refuse(name);
    }
  }

  // ---- input

  std::string next_path() const { return fmt::format("messages[{}]", messages_.size()); }

  void add_message(Json message, const std::string& written) {
    paths_.add(next_path(), written);
    const bool thinks = message["role"] == "assistant" && !reasoning_.empty();
    if (thinks) message["reasoning_content"] = std::exchange(reasoning_, {});
    messages_.push_back(std::move(message));
  }

  void add_messages(FieldReader& reader) {
    if (const auto text = reader.string("instructions")) {
      add_message({{"role", "system"}, {"content", *text}}, "instructions");
    }
    for (const Json& message : earlier_) {
      messages_.push_back(message);
    }
    num_earlier_ = messages_.size();
    const Json* input = reader.find("input");
    if (input == nullptr) {
      reader.fail("input", "input is required: a text, or a list of items");
    } else if (input->is_string()) {
      add_message({{"role", "user"}, {"content", *input}}, "input");
    } else if (input->is_array()) {
      for (std::size_t i = 0; i < input->size() && !error_; ++i) {
        add_item((*input)[i], fmt::format("input[{}]", i));
      }
    } else {
      reader.fail_type("input", "a text, or a list of items", *input);
    }
  }

  void add_item(const Json& item, const std::string& path) {
    if (!check_object(item, path, error_)) return;
    FieldReader reader(item, path, error_);
    const std::string type = reader.string("type").value_or("message");
    if (type == "message") {
      add_message(
          {{"role", member_of(item, "role")}, {"content", content_of(member_of(item, "content"))}},
          path);
    } else if (type == "function_call") {
      add_call(item, path);
    } else if (type == "function_call_output") {
      add_call_output(item, path);
    } else if (type == "reasoning") {
      const std::string text = joined_texts(member_of(item, "content"));
      reasoning_ += text.empty() ? joined_texts(member_of(item, "summary")) : text;
    } else {
      reader.fail("type",
                  fmt::format("{}.type is {}, want message, function_call, function_call_output or "
                              "reasoning",
                              path, Json(type).dump()),
                  "unsupported_value");
    }
  }

  // Calls are part of the assistant's message before them, if that is what stands there.
  void add_call(const Json& item, const std::string& path) {
    const bool is_behind_own = messages_.size() > num_earlier_ && reasoning_.empty() &&
                               messages_.back()["role"] == "assistant";
    if (!is_behind_own) add_message({{"role", "assistant"}, {"content", nullptr}}, path);
    Json& calls = messages_.back()["tool_calls"];
    if (calls.is_null()) calls = Json::array();
    const std::string call =
        fmt::format("messages[{}].tool_calls[{}]", messages_.size() - 1, calls.size());
    paths_.add(call + ".id", path + ".call_id");
    paths_.add(call + ".function", path);
    calls.push_back(
        {{"id", member_of(item, "call_id")},
         {"type", "function"},
         {"function",
          {{"name", member_of(item, "name")}, {"arguments", member_of(item, "arguments")}}}});
  }

  void add_call_output(const Json& item, const std::string& path) {
    paths_.add(next_path() + ".content", path + ".output");
    paths_.add(next_path() + ".tool_call_id", path + ".call_id");
    add_message({{"role", "tool"},
                 {"tool_call_id", member_of(item, "call_id")},
                 {"content", content_of(member_of(item, "output"))}},
                path);
  }

  // ---- the rest

  void add_tools(FieldReader& reader) {
    const Json* tools = reader.array("tools");
    if (tools == nullptr) return;
    Json list = Json::array();
    for (std::size_t i = 0; i < tools->size() && !error_; ++i) {
      list.push_back(tool_of((*tools)[i], fmt::format("tools[{}]", i)));
    }
    chat_["tools"] = std::move(list);
  }

  // What is no object, or of no type, is refused where chats are read.
  Json tool_of(const Json& tool, const std::string& path) {
    if (!tool.is_object()) return tool;
    FieldReader reader(tool, path, error_);
    const std::string type = reader.string("type").value_or("");
    if (!type.empty() && type != "function") {
      reader.fail(
          "type",
          fmt::format("{}.type is {}, only \"function\" is supported", path, Json(type).dump()),
          "unsupported_value");
    }
    paths_.add(path + ".function", path);
    Json function = tool;
    function.erase("type");
    return {{"type", type}, {"function", std::move(function)}};
  }

  void add_tool_choice(FieldReader& reader) {
    const Json* choice = reader.find("tool_choice");
    if (choice == nullptr) return;
    chat_["tool_choice"] = *choice;
    if (!choice->is_object() || member_of(*choice, "type") != "function") return;
    paths_.add("tool_choice.function", "tool_choice");
    chat_["tool_choice"] = {{"type", "function"},
                            {"function", {{"name", member_of(*choice, "name")}}}};
  }

  void add_format(FieldReader& reader) {
    const Json* text = reader.object("text");
    if (text == nullptr) return;
    FieldReader inner(*text, "text", error_);
    const Json* format = inner.object("format");
    if (format == nullptr) return;
    paths_.add("response_format", "text.format");
    paths_.add("response_format.json_schema", "text.format");
    Json given = {{"type", member_of(*format, "type")}};
    if (given["type"] == "json_schema") {
      given["json_schema"] = *format;
      given["json_schema"].erase("type");
    }
    chat_["response_format"] = std::move(given);
  }

  void add_reasoning(FieldReader& reader) {
    const Json* reasoning = reader.object("reasoning");
    if (reasoning == nullptr) return;
    paths_.add("reasoning_effort", "reasoning.effort");
    if (const Json& effort = member_of(*reasoning, "effort"); !effort.is_null()) {
      chat_["reasoning_effort"] = effort;
    }
  }

  void add_limit(FieldReader& reader) {
    paths_.add("max_completion_tokens", "max_output_tokens");
    if (const Json* limit = reader.find("max_output_tokens")) {
      chat_["max_completion_tokens"] = *limit;
    }
  }

  void add_logprobs(FieldReader& reader) {
    const Json* top = reader.find("top_logprobs");
    if (top != nullptr) chat_["top_logprobs"] = *top;
    bool wanted = top != nullptr && *top != 0;
    const Json* include = reader.array("include");
    for (std::size_t i = 0; include != nullptr && i < include->size(); ++i) {
      const Json& name = (*include)[i];
      wanted = wanted || name == "message.output_text.logprobs";
      if (name == "message.output_text.logprobs" || name == "reasoning.encrypted_content") continue;
      const std::string path = fmt::format("include[{}]", i);
      reader.fail(
          path, fmt::format("{} is {}, which is not supported: leave it out", path, to_text(name)),
          "unsupported_value");
    }
    if (wanted) chat_["logprobs"] = true;
  }

  const Json& body_;
  const Json& earlier_;
  PathMap& paths_;
  std::optional<ApiError>& error_;
  Json chat_ = Json::object();
  Json messages_ = Json::array();
  std::size_t num_earlier_ = 0;
  std::string reasoning_;  // of the assistant's next message
};

}  // namespace

Json chat_of_responses(const Json& body,
                       const Json& earlier,
                       PathMap& paths,
                       std::optional<ApiError>& error) {
  return ResponsesConversion(body, earlier, paths, error).run();
}

}  // namespace halfbyte::server
