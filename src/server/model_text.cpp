// SPDX-License-Identifier: Apache-2.0
#include "server/model_text.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "server/json.h"

namespace halfbyte::server {
namespace {

// An absent file is an empty object.
Result<Json> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Json::object();
  const std::string text(std::istreambuf_iterator<char>(file), {});
  Json json = Json::parse(text, nullptr, false);
  if (json.is_object()) return json;
  return Status(StatusCode::kCorruptData, fmt::format("{} is not a JSON object", path));
}

double number_or(const Json& object, const char* name, double otherwise) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

}  // namespace

const std::vector<std::string>& tool_call_parsers() {
  static const std::vector<std::string> names = {
      "auto",     "none",       "qwen3",       "qwen25",      "hermes",
      "deepseek", "deepseekv3", "deepseekv31", "deepseek_v3", "deepseek_v31"};
  return names;
}

const std::vector<std::string>& reasoning_parsers() {
  static const std::vector<std::string> names = {
      "auto", "none", "qwen3", "deepseek-r1", "deepseek-v3", "deepseek_r1", "deepseek_v3"};
  return names;
}

Result<std::unique_ptr<ModelText>> ModelText::load(const std::string& directory,
                                                   const TextOptions& options) {
  auto text = std::make_unique<ModelText>();
  const std::string& folder = options.tokenizer_path.empty() ? directory : options.tokenizer_path;
  HALFBYTE_ASSIGN_OR_RETURN(text->tokenizer_, Tokenizer::load(folder));
  auto chat_template = ChatTemplate::load(folder, options.chat_template);
  if (chat_template.ok()) {
    text->chat_template_ = std::move(chat_template).value();
  } else if (chat_template.status().code() != StatusCode::kNotFound ||
             !options.chat_template.empty()) {
    return chat_template.take_status();
  }
  text->choose_parsers(options);
  HALFBYTE_RETURN_IF_ERROR(text->read_bos(folder));
  if (!options.openai_defaults) HALFBYTE_RETURN_IF_ERROR(text->read_defaults(directory));
  return text;
}

bool ModelText::has_token(std::string_view text) const {
  const auto ids = tokenizer_->encode(text);
  return ids.ok() && ids->size() == 1;
}

// Every name of reasoning_parsers() is the same parser: where it begins is the prompt's affair.
void ModelText::choose_parsers(const TextOptions& options) {
  const bool is_auto = options.tool_call_parser == "auto";
  const auto has_marker = [this](ToolCallFormat format) {
    return has_token(tool_call_marker(format));
  };
  if (options.tool_call_parser.starts_with("deepseek") ||
      (is_auto && has_marker(ToolCallFormat::kDeepSeek))) {
    tool_call_format_ = ToolCallFormat::kDeepSeek;
  } else if (!is_auto || has_marker(ToolCallFormat::kQwen3)) {
    tool_call_format_ = ToolCallFormat::kQwen3;
  }
  if (options.tool_call_parser == "none") tool_call_format_.reset();
  has_reasoning_ = options.reasoning_parser == "auto" ? has_token(kReasoningOpen)
                                                      : options.reasoning_parser != "none";
}

Status ModelText::read_bos(const std::string& directory) {
  HALFBYTE_ASSIGN_OR_RETURN(const Json config, read_file(directory + "/tokenizer_config.json"));
  const Json add = config.value("add_bos_token", Json());
  Json token = config.value("bos_token", Json());
  if (token.is_object()) token = token.value("content", Json());
  if (add != true || !token.is_string()) return {};
  HALFBYTE_ASSIGN_OR_RETURN(const auto ids, tokenizer_->encode(token.get<std::string>()));
  if (ids.size() == 1) bos_id_ = ids.front();
  return {};
}

Status ModelText::read_defaults(const std::string& directory) {
  HALFBYTE_ASSIGN_OR_RETURN(const Json config, read_file(directory + "/generation_config.json"));
  const double temperature = number_or(config, "temperature", 1.0);
  const double top_p = number_or(config, "top_p", 1.0);
  const double top_k = number_or(config, "top_k", 0.0);
  const double min_p = number_or(config, "min_p", 0.0);
  const double repetition_penalty = number_or(config, "repetition_penalty", 1.0);
  const bool is_legal = temperature >= 0.0 && top_p > 0.0 && top_p <= 1.0 && top_k >= -1.0 &&
                        top_k <= 1e9 && min_p >= 0.0 && min_p <= 1.0 && repetition_penalty > 0.0 &&
                        repetition_penalty <= 2.0;
  if (!is_legal) {
    return {StatusCode::kCorruptData,
            fmt::format("{}/generation_config.json: temperature {}, top_p {}, top_k {}, min_p {}, "
                        "repetition_penalty {} are out of range; --sampling-defaults openai "
                        "ignores them",
                        directory, temperature, top_p, top_k, min_p, repetition_penalty)};
  }
  defaults_ = {temperature, top_p, static_cast<std::int64_t>(top_k), min_p, repetition_penalty};
  return {};
}

Result<std::vector<std::int32_t>> ModelText::encode_prompt(const std::string& text,
                                                           const PromptEncoding& encoding) const {
  HALFBYTE_ASSIGN_OR_RETURN(auto ids, tokenizer_->encode(text, encoding.split_special_tokens));
  if (!encoding.add_special_tokens || ids.empty()) return ids;
  ids = tokenizer_->add_special_tokens(std::move(ids));
  if (bos_id_ && ids.front() != *bos_id_) ids.insert(ids.begin(), *bos_id_);
  return ids;
}

}  // namespace halfbyte::server
