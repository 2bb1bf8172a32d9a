// SPDX-License-Identifier: Apache-2.0
#include "server/messages_request.h"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <utility>

#include "server/shared_fields.h"

namespace halfbyte::server {
namespace {

class MessagesConversion {
 public:
  MessagesConversion(const Json& body, PathMap& paths, std::optional<ApiError>& error)
      : body_(body), paths_(paths), error_(error) {}

  Json run() {
    FieldReader reader(body_, "", error_);
    copy_shared_fields(body_, chat_);
    add_system(reader);
    add_messages(reader);
    add_tools(reader);
    add_tool_choice(reader);
    add_stops(reader);
    add_thinking(reader);
    add_output_config(reader);
    reader.object("metadata");
    if (!messages_.empty() && messages_.back()["role"] == "assistant") continue_last(reader);
    chat_["messages"] = std::move(messages_);
    return std::move(chat_);
  }

 private:
  // The path of the message that is added next.
  std::string next_path() const { return fmt::format("messages[{}]", messages_.size()); }

  void add_message(Json message, const std::string& written) {
    paths_.add(next_path(), written);
    messages_.push_back(std::move(message));
  }

  void add_system(FieldReader& reader) {
    if (const Json* system = reader.find("system")) {
      paths_.add("messages[0].content", "system");
      add_message({{"role", "system"}, {"content", *system}}, "system");
    }
  }

  void add_messages(FieldReader& reader) {
    const Json* given = reader.array("messages");
    if (given == nullptr || given->empty()) {
      return reader.fail("messages", "messages is required: a list of at least one message");
    }
    for (std::size_t i = 0; i < given->size() && !error_; ++i) {
      const std::string path = fmt::format("messages[{}]", i);
      if (check_object((*given)[i], path, error_)) add_turn((*given)[i], path);
    }
  }

  void add_turn(const Json& turn, const std::string& path) {
    FieldReader reader(turn, path, error_);
    const std::string role = reader.string("role").value_or("");
    if (role != "user" && role != "assistant") {
      return reader.fail(
          "role", fmt::format("{}.role is {}, want user or assistant", path, Json(role).dump()));
    }
    const Json* content = reader.find("content");
    if (content == nullptr || !content->is_array() || content->empty()) {
      return add_message({{"role", role}, {"content", content == nullptr ? Json() : *content}},
                         path);
    }
    if (role == "user") {
      add_user_blocks(*content, path);
    } else {
      add_assistant_blocks(*content, path);
    }
  }

  // Results of tools are messages of their own, in the order in which they stand.
  void add_user_blocks(const Json& blocks, const std::string& path) {
    Json parts = Json::array();
    const auto add_parts = [&] {
      if (parts.empty()) return;
      add_message({{"role", "user"}, {"content", std::exchange(parts, Json::array())}}, path);
    };
    for (std::size_t i = 0; i < blocks.size() && !error_; ++i) {
      const std::string block_path = fmt::format("{}.content[{}]", path, i);
      if (is_of_type(blocks[i], "tool_result")) {
        add_parts();
        add_tool_result(blocks[i], block_path);
      } else {
        paths_.add(fmt::format("{}.content[{}]", next_path(), parts.size()), block_path);
        parts.push_back(blocks[i]);
      }
    }
    add_parts();
  }

  static bool is_of_type(const Json& block, std::string_view type) {
    return block.is_object() && member_of(block, "type") == Json(type);
  }

  void add_tool_result(const Json& block, const std::string& path) {
    FieldReader reader(block, path, error_);
    reader.boolean("is_error");
    const Json* content = reader.find("content");
    paths_.add(next_path() + ".tool_call_id", path + ".tool_use_id");
    add_message({{"role", "tool"},
                 {"tool_call_id", member_of(block, "tool_use_id")},
                 {"content", content == nullptr ? Json("") : *content}},
                path);
  }

  void add_assistant_blocks(const Json& blocks, const std::string& path) {
    Json parts = Json::array(), calls = Json::array();
    std::string reasoning;
    for (std::size_t i = 0; i < blocks.size() && !error_; ++i) {
      const std::string block_path = fmt::format("{}.content[{}]", path, i);
      if (is_of_type(blocks[i], "tool_use")) {
        const std::string call = fmt::format("{}.tool_calls[{}]", next_path(), calls.size());
        paths_.add(call, block_path);
        paths_.add(call + ".function", block_path);
        calls.push_back(call_of(blocks[i], block_path));
      } else if (is_of_type(blocks[i], "thinking")) {
        FieldReader reader(blocks[i], block_path, error_);
        reasoning += reader.string("thinking").value_or("");
      } else if (!is_of_type(blocks[i], "redacted_thinking")) {
        paths_.add(fmt::format("{}.content[{}]", next_path(), parts.size()), block_path);
        parts.push_back(blocks[i]);
      }
    }
    Json message = {{"role", "assistant"}, {"content", std::move(parts)}};
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    add_message(std::move(message), path);
  }

  Json call_of(const Json& block, const std::string& path) {
    FieldReader reader(block, path, error_);
    const Json* input = reader.object("input");
    return {{"id", member_of(block, "id")},
            {"type", "function"},
            {"function",
             {{"name", member_of(block, "name")},
              {"arguments", input == nullptr ? "{}" : to_text(*input)}}}};
  }

  // An answer goes on in a last message of the assistant.
  void continue_last(FieldReader& reader) {
    const std::string last = fmt::format("messages[{}]", body_["messages"].size() - 1);
    if (messages_.back().contains("tool_calls")) {
      reader.fail(last,
                  fmt::format("{} is the assistant's and uses tools: want their results behind "
                              "it",
                              last));
    }
    chat_["continue_final_message"] = true;
    paths_.add("continue_final_message", last);
  }

  void add_tools(FieldReader& reader) {
    const Json* tools = reader.array("tools");
    if (tools == nullptr) return;
    Json list = Json::array();
    for (std::size_t i = 0; i < tools->size() && !error_; ++i) {
      const std::string path = fmt::format("tools[{}]", i);
      if (!check_object((*tools)[i], path, error_)) return;
      list.push_back(tool_of((*tools)[i], path));
    }
    chat_["tools"] = std::move(list);
  }

  Json tool_of(const Json& tool, const std::string& path) {
    FieldReader reader(tool, path, error_);
    const std::string type = reader.string("type").value_or("custom");
    if (type != "custom") {
      reader.fail(
          "type",
          fmt::format("{}.type is {}, only \"custom\" is supported", path, Json(type).dump()),
          "unsupported_value");
    }
    const Json* schema = reader.object("input_schema");
    if (schema == nullptr) reader.fail("input_schema", path + ".input_schema is required");
    paths_.add(path + ".function", path);
    paths_.add(path + ".function.parameters", path + ".input_schema");
    Json function = {{"name", member_of(tool, "name")}};
    if (const auto text = reader.string("description")) function["description"] = *text;
    if (schema != nullptr) function["parameters"] = *schema;
    return {{"type", "function"}, {"function", std::move(function)}};
  }

  void add_tool_choice(FieldReader& reader) {
    const Json* choice = reader.object("tool_choice");
    if (choice == nullptr) return;
    FieldReader inner(*choice, "tool_choice", error_);
    if (inner.boolean("disable_parallel_tool_use").value_or(false)) {
      chat_["parallel_tool_calls"] = false;
    }
    const std::string type = inner.string("type").value_or("");
    if (type == "auto" || type == "none") {
      chat_["tool_choice"] = type;
    } else if (type == "any") {
      chat_["tool_choice"] = "required";
    } else if (type == "tool") {
      paths_.add("tool_choice.function", "tool_choice");
      chat_["tool_choice"] = {{"type", "function"},
                              {"function", {{"name", member_of(*choice, "name")}}}};
    } else {
      inner.fail("type", fmt::format("tool_choice.type is {}, want auto, any, tool or none",
                                     Json(type).dump()));
    }
  }

  void add_stops(FieldReader& reader) {
    paths_.add("stop", "stop_sequences");
    if (const Json* stops = reader.array("stop_sequences")) chat_["stop"] = *stops;
  }

  // Templates know one of two names.
  void add_thinking(FieldReader& reader) {
    const Json* thinking = reader.object("thinking");
    if (thinking == nullptr) return;
    FieldReader inner(*thinking, "thinking", error_);
    inner.integer("budget_tokens", 1, std::numeric_limits<std::int32_t>::max());
    const std::string type = inner.string("type").value_or("");
    if (type != "enabled" && type != "adaptive" && type != "disabled") {
      inner.fail("type", fmt::format("thinking.type is {}, want enabled, adaptive or disabled",
                                     Json(type).dump()));
    }
    Json& variables = chat_["chat_template_kwargs"];
    if (!variables.is_null() && !variables.is_object()) return;  // refused where it is read
    variables["enable_thinking"] = type != "disabled";
    variables["thinking"] = type != "disabled";
  }

  void add_output_config(FieldReader& reader) {
    const Json* config = reader.object("output_config");
    if (config == nullptr) return;
    FieldReader inner(*config, "output_config", error_);
    paths_.add("reasoning_effort", "output_config.effort");
    if (const auto effort = inner.string("effort")) chat_["reasoning_effort"] = *effort;
    const Json* format = inner.object("format");
    if (format == nullptr) return;
    paths_.add("response_format", "output_config.format");
    paths_.add("response_format.json_schema", "output_config.format");
    chat_["response_format"] = {
        {"type", member_of(*format, "type")},
        {"json_schema", {{"name", "output"}, {"schema", member_of(*format, "schema")}}}};
  }

  const Json& body_;
  PathMap& paths_;
  std::optional<ApiError>& error_;
  Json chat_ = Json::object();
  Json messages_ = Json::array();
};

}  // namespace

Json chat_of_messages(const Json& body, PathMap& paths, std::optional<ApiError>& error) {
  return MessagesConversion(body, paths, error).run();
}

}  // namespace halfbyte::server
