// SPDX-License-Identifier: Apache-2.0
#include "server/model_text.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

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

Result<std::unique_ptr<ModelText>> ModelText::load(const std::string& directory,
                                                   bool openai_defaults) {
  auto text = std::make_unique<ModelText>();
  HALFBYTE_ASSIGN_OR_RETURN(text->tokenizer_, Tokenizer::load(directory));
  auto chat_template = ChatTemplate::load(directory);
  if (chat_template.ok()) {
    text->chat_template_ = std::move(chat_template).value();
  } else if (chat_template.status().code() != StatusCode::kNotFound) {
    return chat_template.take_status();
  }
  const auto marker = text->tokenizer_->encode("<tool_call>");
  text->writes_tool_calls_ = marker.ok() && marker->size() == 1;
  HALFBYTE_RETURN_IF_ERROR(text->read_bos(directory));
  if (!openai_defaults) HALFBYTE_RETURN_IF_ERROR(text->read_defaults(directory));
  return text;
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
  if (temperature < 0.0 || top_p <= 0.0 || top_p > 1.0 || top_k < -1.0 || top_k > 1e9) {
    return {StatusCode::kCorruptData,
            fmt::format("{}/generation_config.json: temperature {}, top_p {}, top_k {} are out of "
                        "range; --sampling-defaults openai ignores them",
                        directory, temperature, top_p, top_k)};
  }
  defaults_ = {temperature, top_p, static_cast<std::int64_t>(top_k)};
  for (const auto& [name, harmless] : {std::pair("repetition_penalty", 1.0), {"min_p", 0.0}}) {
    const double value = number_or(config, name, harmless);
    if (value == harmless) continue;
    notices_.push_back(fmt::format(
        "generation_config.json asks for {} {}, which is not supported and has no effect", name,
        value));
  }
  return {};
}

Result<std::vector<std::int32_t>> ModelText::encode_prompt(const std::string& text) const {
  HALFBYTE_ASSIGN_OR_RETURN(auto ids, tokenizer_->encode(text));
  if (bos_id_ && !ids.empty() && ids.front() != *bos_id_) ids.insert(ids.begin(), *bos_id_);
  return ids;
}

}  // namespace halfbyte::server
