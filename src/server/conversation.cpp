// SPDX-License-Identifier: Apache-2.0
//
// messages, tools and what else reaches the chat template.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

#include "server/constraint_fields.h"
#include "server/generation_request.h"
#include "text/markers.h"

namespace halfbyte::server {
namespace {

constexpr std::size_t kMaxToolName = 64;
constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};

// One text of a list of parts.
std::string join_parts(const Json& parts, const std::string& path, std::optional<ApiError>& error) {
  std::string text;
  for (std::size_t i = 0; i < parts.size() && !error; ++i) {
    const std::string part_path = fmt::format("{}[{}]", path, i);
    if (!check_object(parts[i], part_path, error)) break;
    FieldReader part(parts[i], part_path, error);
    const std::string type = part.string("type").value_or("");
    if (type != "text") {
      part.fail("type",
                fmt::format("{}.type is \"{}\", only \"text\" is supported", part_path, type),
                "unsupported_value");
    }
    const auto piece = part.string("text");
    if (!piece) part.fail("text", part_path + ".text is required");
    text += piece.value_or("");
  }
  return text;
}

// Content as the text that templates take.
Json read_content(FieldReader& message, bool may_be_absent, std::optional<ApiError>& error) {
  const Json* content = message.find("content");
  if (content == nullptr) {
    if (!may_be_absent) message.fail("content", message.path_of("content") + " is required");
    return "";
  }
  if (content->is_string()) return *content;
  if (content->is_array()) return join_parts(*content, message.path_of("content"), error);
  message.fail_type("content", "a string or a list of parts", *content);
  return "";
}

void check_tool_calls(FieldReader& message, const Json& calls, std::optional<ApiError>& error) {
  for (std::size_t i = 0; i < calls.size() && !error; ++i) {
    const std::string path = fmt::format("{}[{}]", message.path_of("tool_calls"), i);
    if (!check_object(calls[i], path, error)) return;
    FieldReader call(calls[i], path, error);
    call.string("id");
    call.string("type");
    const Json* function = call.object("function");
    if (function == nullptr) return call.fail("function", path + ".function is required");
    FieldReader inner(*function, path + ".function", error);
    if (!inner.string("name")) inner.fail("name", path + ".function.name is required");
    if (!inner.string("arguments")) {
      inner.fail("arguments", path + ".function.arguments is required, as a string of JSON");
    }
  }
}

std::string read_role(FieldReader& message) {
  std::string role = message.string("role").value_or("");
  if (role == "developer") role = "system";
  if (std::ranges::count(kRoles, role) == 0) {
    message.fail("role",
                 fmt::format("{} is \"{}\", want system, developer, user, assistant or tool",
                             message.path_of("role"), role));
  }
  return role;
}

// A message with role and content as templates take them, and its other keys as they came. The
// assistant may have said nothing.
Json read_message(const Json& given, const std::string& path, std::optional<ApiError>& error) {
  if (!check_object(given, path, error)) return {};
  FieldReader reader(given, path, error);
  Json message = given;
  message["role"] = read_role(reader);
  const Json* calls = reader.array("tool_calls");
  if (calls != nullptr) check_tool_calls(reader, *calls, error);
  message["content"] = read_content(reader, message["role"] == "assistant", error);
  if (message["role"] == "tool" && !reader.string("tool_call_id")) {
    reader.fail("tool_call_id", path + ".tool_call_id is required in a tool's message");
  }
  return message;
}

Json read_messages(FieldReader& reader, std::optional<ApiError>& error) {
  Json messages = Json::array();
  const Json* given = reader.array("messages");
  if (given == nullptr || given->empty()) {
    reader.fail("messages", "messages is required: a list of at least one message");
    return messages;
  }
  for (std::size_t i = 0; i < given->size() && !error; ++i) {
    messages.push_back(read_message((*given)[i], fmt::format("messages[{}]", i), error));
  }
  return messages;
}

// ---- tools

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxToolName && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  });
}

std::string read_tool_name(const Json& tool,
                           const std::string& path,
                           std::optional<ApiError>& error) {
  if (!check_object(tool, path, error)) return "";
  FieldReader reader(tool, path, error);
  if (reader.string("type").value_or("") != "function") {
    reader.fail("type", path + ".type is required, and must be \"function\"");
  }
  const Json* function = reader.object("function");
  if (function == nullptr) {
    reader.fail("function", path + ".function is required");
    return "";
  }
  FieldReader inner(*function, path + ".function", error);
  inner.string("description");
  inner.object("parameters");
  const std::string name = inner.string("name").value_or("");
  if (!is_tool_name(name)) {
    inner.fail("name", fmt::format("{}.function.name is \"{}\", want 1 to {} of A-Z a-z 0-9 _ -",
                                   path, name, kMaxToolName));
  }
  return name;
}

struct Tools {
  Json listed;  // for the template; null: none
  ToolChoice choice;
};

Tools read_tools(FieldReader& reader, const Json& body, std::optional<ApiError>& error) {
  const Json* tools = reader.array("tools");
  std::set<std::string> names;
  for (std::size_t i = 0; tools != nullptr && i < tools->size() && !error; ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    const std::string name = read_tool_name((*tools)[i], path, error);
    if (!error && !names.insert(name).second) {
      error = ApiError{400, fmt::format("{} is a second tool \"{}\"", path, name),
                       path + ".function.name", ""};
    }
  }
  ToolChoice choice = read_tool_choice(body, names, error);
  const bool is_empty = tools == nullptr || tools->empty() || choice.hides_tools;
  return {is_empty ? Json() : *tools, std::move(choice)};
}

// ---- the template's variables

void add_template_arguments(FieldReader& reader, Json& variables) {
  if (auto effort = reader.string("reasoning_effort")) variables["reasoning_effort"] = *effort;
  const Json* arguments = reader.object("chat_template_kwargs");
  if (arguments == nullptr) return;
  for (const auto& item : arguments->items()) {
    if (item.key() == "messages" || item.key() == "tools") {
      return reader.fail("chat_template_kwargs",
                         fmt::format("chat_template_kwargs may not replace {}", item.key()));
    }
    variables[item.key()] = item.value();
  }
}

// The conversation's prompt; empty after a refusal.
std::string render_conversation(FieldReader& reader,
                                const Json& variables,
                                const ModelText& text,
                                const ChatTemplate::EditText& mark) {
  if (text.chat_template() == nullptr) {
    reader.fail("messages",
                "the model has no chat template: use /v1/completions with the whole prompt");
    return {};
  }
  auto prompt = text.chat_template()->render(to_text(variables), mark);
  if (prompt.ok()) return std::move(prompt).value();
  reader.fail("messages", fmt::format("the chat template refuses the conversation: {}",
                                      prompt.status().message()));
  return {};
}

std::vector<std::int32_t> encode_conversation(FieldReader& reader,
                                              const std::string& prompt,
                                              const Tokenizer& tokenizer,
                                              bool is_marked) {
  auto ids = is_marked ? tokenizer.encode_marked(prompt) : tokenizer.encode(prompt);
  if (!ids.ok()) {
    reader.fail("messages", std::string(ids.status().message()));
    return {};
  }
  if (ids->empty()) reader.fail("messages", "the conversation has no tokens");
  return std::move(ids).value();
}

// ---- what the answer begins with

// Whether the answer goes on in the last message; sets the template's variable for the other case.
bool read_continuation(FieldReader& reader, Json& variables) {
  const bool goes_on = reader.boolean("continue_final_message").value_or(false);
  const bool adds_prompt = reader.boolean("add_generation_prompt").value_or(!goes_on);
  variables["add_generation_prompt"] = adds_prompt;
  if (!goes_on) return false;
  if (adds_prompt) {
    reader.fail("continue_final_message",
                "continue_final_message and add_generation_prompt are both true, want one");
  }
  const Json& messages = variables["messages"];
  if (reader.ok() && messages.back()["role"] != "assistant") {
    reader.fail("continue_final_message",
                fmt::format("continue_final_message goes on in an assistant's message, the last is "
                            "of role {}",
                            messages.back()["role"].dump()));
  }
  return true;
}

// The prompt up to the end of the last message's text, as transformers cuts it: white space at its
// end stays if the template kept it.
std::string cut_after(FieldReader& reader, std::string prompt, const std::string& message) {
  const std::string_view text = strip_blanks(message);
  const std::size_t begin = text.empty() ? std::string::npos : prompt.rfind(text);
  if (begin == std::string::npos) {
    reader.fail("continue_final_message",
                "the last message is empty, or the chat template does not write its text as it is");
    return {};
  }
  const std::string_view rest = skip_blanks(message).substr(text.size());
  const std::size_t end = begin + text.size();
  prompt.resize(std::string_view(prompt).substr(end).starts_with(rest) ? end + rest.size() : end);
  return prompt;
}

Reasoning start_of_reasoning(const ModelText& text,
                             const std::string& prompt,
                             const std::optional<std::string>& message) {
  if (!text.has_reasoning()) return Reasoning::kNone;
  return message ? reasoning_within(*message) : reasoning_after(prompt);
}

}  // namespace

Conversation read_conversation(const Json& body,
                               const RequestScope& scope,
                               std::optional<ApiError>& error) {
  FieldReader reader(body, "", error);
  Json variables = {{"messages", read_messages(reader, error)}};
  Tools tools = read_tools(reader, body, error);
  Conversation conversation;
  conversation.has_tools = !tools.listed.is_null();
  if (conversation.has_tools) variables["tools"] = std::move(tools.listed);
  conversation.forced_tool = std::move(tools.choice.forced_tool);
  conversation.one_tool_call = !reader.boolean("parallel_tool_calls").value_or(true);
  const bool goes_on = read_continuation(reader, variables);
  add_template_arguments(reader, variables);
  const bool splits = reader.boolean("split_special_tokens").value_or(false);
  if (error) return {};
  const Tokenizer& tokenizer = scope.text->tokenizer();
  ChatTemplate::EditText mark;
  if (splits) mark = [&](std::string_view text) { return tokenizer.mark_special_tokens(text); };
  std::string prompt = render_conversation(reader, variables, *scope.text, mark);
  std::optional<std::string> message;
  if (goes_on) message = variables["messages"].back()["content"].get<std::string>();
  if (message && mark) message = mark(*message);
  if (message && !error) prompt = cut_after(reader, std::move(prompt), *message);
  if (error) return {};
  conversation.ids = encode_conversation(reader, prompt, tokenizer, splits);
  conversation.reasoning = start_of_reasoning(*scope.text, prompt, message);
  return conversation;
}

}  // namespace halfbyte::server
