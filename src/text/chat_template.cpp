// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "text/jinja/evaluator.h"
#include "text/jinja/json.h"
#include "text/jinja/parser.h"
#include "text/message_shape.h"
#include "text/utf8.h"

namespace halfbyte {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;
using nlohmann::json;

Status to_status(const jinja::Failure& failure) {
  return {failure.code(), failure.what()};
}

Result<jinja::Body> parse_source(std::string_view source) {
  if (const std::size_t bad = find_invalid_utf8(source); bad != std::string_view::npos) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the template is not valid UTF-8 at byte {}", bad));
  }
  try {
    return jinja::parse_template(source);
  } catch (const jinja::Failure& failure) {
    return to_status(failure);
  }
}

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

// The object in a file; empty when there is no such file or it is something else.
json read_object(const std::filesystem::path& path) {
  const std::optional<std::string> content = read_file(path);
  json object = content ? json::parse(*content, nullptr, false) : json();
  return object.is_object() ? object : json::object();
}

struct Sources {
  std::optional<std::string> standard;
  std::optional<std::string> tool_use;
};

// "chat_template": a text, or a list of {name, template}.
Sources read_sources(const json& chat_template) {
  Sources sources;
  if (chat_template.is_string()) sources.standard = chat_template.get<std::string>();
  if (!chat_template.is_array()) return sources;
  for (const json& entry : chat_template) {
    if (!entry.is_object() || !entry.contains("template") || !entry["template"].is_string())
      continue;
    const json name = entry.value("name", json());
    if (name == "default") sources.standard = entry["template"].get<std::string>();
    if (name == "tool_use") sources.tool_use = entry["template"].get<std::string>();
  }
  return sources;
}

Sources find_sources(const std::filesystem::path& directory, const json& config) {
  if (auto file = read_file(directory / "chat_template.jinja")) return {std::move(file), {}};
  Sources sources = read_sources(config.value("chat_template", json()));
  if (sources.standard) return sources;
  return read_sources(read_object(directory / "chat_template.json").value("chat_template", json()));
}

Status no_template(const std::string& directory, const std::string& file) {
  if (!file.empty()) {
    return {StatusCode::kNotFound,
            fmt::format("{}: there is no chat template to read: want a file in Jinja", file)};
  }
  return {StatusCode::kNotFound,
          fmt::format("{} has no chat template: neither chat_template.jinja, nor chat_template in "
                      "tokenizer_config.json, nor chat_template.json",
                      directory)};
}

// bos_token, eos_token, ... as templates see them; a token is a text or {"content": text}.
Dict read_special_tokens(const json& config) {
  Dict tokens;
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    json token = config.value(name, json());
    if (token.is_object()) token = token.value("content", json());
    if (token.is_string()) tokens.emplace_back(name, Value(token.get<std::string>()));
  }
  return tokens;
}

Value without_null_keys(const Value& message) {
  if (!message.is_dict()) return message;
  Dict kept;
  for (const auto& item : message.as_dict()) {
    if (!item.second.is_none()) kept.push_back(item);
  }
  return Value::dict(std::move(kept));
}

Value clean_messages(const Value& messages) {
  if (!messages.is_list()) return messages;
  List cleaned;
  for (const Value& message : messages.as_list())
    cleaned.push_back(without_null_keys(message));
  return Value::list(std::move(cleaned));
}

Value edit_texts(const Value& value, const ChatTemplate::EditText& edit) {
  if (value.is_string()) return Value(edit(value.as_string()));
  if (value.is_list()) {
    List items;
    for (const Value& item : value.as_list())
      items.push_back(edit_texts(item, edit));
    return Value::list(std::move(items));
  }
  if (!value.is_dict()) return value;
  Dict items;
  for (const auto& [name, item] : value.as_dict())
    items.emplace_back(edit(name), edit_texts(item, edit));
  return Value::dict(std::move(items));
}

// What a template for tools may want to read.
constexpr std::string_view kProbeTools =
    R"([{"type": "function", "function": {"name": "probe_tool", "description": "a", )"
    R"("parameters": {"type": "object", "properties": {}, "required": []}}}])";

}  // namespace

struct ChatTemplate::Impl {
  // A template, and the shape in which it takes messages; none: as they are.
  struct Program {
    jinja::Body body;
    std::optional<MessageShape> shape = {};
  };

  Program standard;
  std::optional<Program> tool_use;
  Dict special_tokens;

  std::string render(std::string_view variables_json, const EditText& edit) const {
    const Value given = jinja::parse_json(variables_json);
    if (!given.is_dict()) throw jinja::type_error("the variables are not a JSON object");
    const Value* tools = given.find("tools");
    const bool has_tools = tools != nullptr && tools->truthy();
    const Program& program = has_tools && tool_use ? *tool_use : standard;
    Dict variables = special_tokens;
    for (const auto& [name, value] : given.as_dict()) {
      const Value shaped = name == "messages" ? messages_for(program, value) : value;
      variables.emplace_back(name, edit ? edit_texts(shaped, edit) : shaped);
    }
    return jinja::render_template(program.body, variables);
  }

  static Value messages_for(const Program& program, const Value& given) {
    const Value cleaned = clean_messages(given);
    return program.shape ? shape_messages(cleaned, *program.shape) : cleaned;
  }

  void probe(Program& program) const {
    program.shape = probe_message_shape([&](const Value& messages) {
      Dict variables = special_tokens;
      variables.emplace_back("messages", messages);
      variables.emplace_back("tools", jinja::parse_json(kProbeTools));
      variables.emplace_back("add_generation_prompt", Value(false));
      return jinja::render_template(program.body, variables);
    });
  }
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::parse(std::string_view source) {
  HALFBYTE_ASSIGN_OR_RETURN(jinja::Body body, parse_source(source));
  auto impl = std::make_unique<Impl>(Impl{{std::move(body)}, std::nullopt, {}});
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::load(const std::string& directory,
                                                         const std::string& file) {
  const json config = read_object(std::filesystem::path(directory) / "tokenizer_config.json");
  const Sources sources =
      file.empty() ? find_sources(directory, config) : Sources{read_file(file), {}};
  if (!sources.standard) return no_template(directory, file);
  auto loaded = parse(*sources.standard);
  if (!loaded.ok()) {
    return loaded.take_status().with_context("chat template of " +
                                             (file.empty() ? directory : file));
  }
  Impl& impl = *loaded.value()->impl_;
  impl.special_tokens = read_special_tokens(config);
  impl.probe(impl.standard);
  if (sources.tool_use) {
    auto body = parse_source(*sources.tool_use);
    if (!body.ok()) return body.take_status().with_context("tool_use template of " + directory);
    impl.tool_use = Impl::Program{std::move(body).value()};
    impl.probe(*impl.tool_use);
  }
  return loaded;
}

Result<std::string> ChatTemplate::render(std::string_view variables_json,
                                         const EditText& edit) const {
  try {
    return impl_->render(variables_json, edit);
  } catch (const jinja::Failure& failure) {
    return to_status(failure);
  }
}

}  // namespace halfbyte
