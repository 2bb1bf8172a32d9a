// SPDX-License-Identifier: Apache-2.0
#include "text/message_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "text/jinja/json.h"

namespace halfbyte {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;

// ---- probing

// An object, and its text, as they stand in JSON.
constexpr std::string_view kObject = R"({"probe_key": "probe value"})";
constexpr std::string_view kText = R"("{\"probe_key\": \"probe value\"}")";

// Some templates want ids of nine characters.
Value conversation(std::string_view content, std::string_view arguments) {
  return jinja::parse_json(fmt::format(
      R"([{{"role": "user", "content": "a"}}, {{"role": "assistant", "content": {}, "tool_calls": )"
      R"([{{"id": "probe0001", "type": "function", "function": {{"name": "probe_tool", )"
      R"("arguments": {}}}}}]}}])",
      content, arguments));
}

// Neither left out, nor as Python prints a dict, nor as a text inside a text.
bool shows_call(const RenderMessages& render,
                std::string_view content,
                std::string_view arguments) {
  try {
    const std::string prompt = render(conversation(content, arguments));
    const auto has = [&prompt](std::string_view text) {
      return prompt.find(text) != std::string::npos;
    };
    return has("probe_key") && has("probe value") && !has("'probe_key'") && !has("\\\"probe_key");
  } catch (const jinja::Failure&) {
    return false;
  }
}

// ---- shaping

Value with_key(const Value& dict, std::string_view name, Value value) {
  Dict changed = dict.as_dict();
  const auto found = std::find_if(changed.begin(), changed.end(),
                                  [name](const auto& item) { return item.first == name; });
  if (found != changed.end()) {
    found->second = std::move(value);
  } else {
    changed.emplace_back(std::string(name), std::move(value));
  }
  return Value::dict(std::move(changed));
}

Value without_key(const Value& dict, std::string_view name) {
  Dict changed = dict.as_dict();
  std::erase_if(changed, [name](const auto& item) { return item.first == name; });
  return Value::dict(std::move(changed));
}

// The calls that a message makes; null: none.
const Value* calls_of(const Value& message) {
  const Value* calls = message.find("tool_calls");
  return calls != nullptr && calls->is_list() && !calls->as_list().empty() ? calls : nullptr;
}

Value to_object(const Value& arguments) {
  if (!arguments.is_string()) return arguments;
  try {
    Value object = jinja::parse_json(arguments.as_string());
    return object.is_dict() ? object : arguments;
  } catch (const jinja::Failure&) {
    return arguments;
  }
}

Value with_object_arguments(const Value& calls) {
  List changed;
  for (const Value& call : calls.as_list()) {
    const Value* function = call.find("function");
    const Value* arguments = function == nullptr ? nullptr : function->find("arguments");
    if (arguments == nullptr) {
      changed.push_back(call);
    } else {
      Value object = with_key(*function, "arguments", to_object(*arguments));
      changed.push_back(with_key(call, "function", std::move(object)));
    }
  }
  return Value::list(std::move(changed));
}

void add_shaped(const Value& message, const MessageShape& shape, List& shaped) {
  const Value* calls = calls_of(message);
  if (calls == nullptr) return shaped.push_back(message);
  const Value* content = message.find("content");
  const bool has_text = content != nullptr && content->truthy();
  Value calling = message;
  if (shape.object_arguments) {
    calling = with_key(message, "tool_calls", with_object_arguments(*calls));
  }
  if (has_text && !shape.calls_apart) return shaped.push_back(std::move(calling));
  if (has_text) {
    shaped.push_back(without_key(message, "tool_calls"));
    calling = without_key(calling, "reasoning_content");
  }
  shaped.push_back(
      with_key(calling, "content", shape.null_content ? Value() : Value(std::string())));
}

}  // namespace

MessageShape probe_message_shape(const RenderMessages& render) {
  for (const bool null_content : {false, true}) {
    for (const bool object_arguments : {true, false}) {
      const std::string_view arguments = object_arguments ? kObject : kText;
      if (!shows_call(render, null_content ? "null" : "\"\"", arguments)) continue;
      const bool calls_apart = !shows_call(render, "\"probe text\"", arguments);
      return {null_content, object_arguments, calls_apart};
    }
  }
  return {};
}

Value shape_messages(const Value& messages, const MessageShape& shape) {
  if (!messages.is_list()) return messages;
  List shaped;
  for (const Value& message : messages.as_list())
    add_shaped(message, shape, shaped);
  return Value::list(std::move(shaped));
}

}  // namespace halfbyte
