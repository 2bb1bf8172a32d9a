// SPDX-License-Identifier: Apache-2.0
#include "server/shared_fields.h"

#include <algorithm>
#include <array>
#include <utility>

namespace halfbyte::server {
namespace {

constexpr auto kShared = std::to_array<std::string_view>({"model",
                                                          "stream",
                                                          "temperature",
                                                          "top_p",
                                                          "top_k",
                                                          "min_p",
                                                          "presence_penalty",
                                                          "frequency_penalty",
                                                          "logit_bias",
                                                          "seed",
                                                          "stop_token_ids",
                                                          "repetition_penalty",
                                                          "ignore_eos",
                                                          "min_tokens",
                                                          "skip_special_tokens",
                                                          "split_special_tokens",
                                                          "include_stop_str_in_output",
                                                          "cache_salt",
                                                          "priority",
                                                          "chat_template_kwargs",
                                                          "regex",
                                                          "ebnf",
                                                          "structured_outputs",
                                                          "structural_tag"});

}  // namespace

std::span<const std::string_view> shared_field_names() {
  return kShared;
}

void copy_shared_fields(const Json& from, Json& to) {
  for (const std::string_view name : kShared) {
    if (const auto found = from.find(name); found != from.end()) to[std::string(name)] = *found;
  }
}

std::vector<std::string> fields_beyond(const Json& body, std::span<const std::string_view> own) {
  std::vector<std::string> names;
  for (const auto& item : body.items()) {
    const bool is_known =
        std::ranges::count(kShared, item.key()) > 0 || std::ranges::count(own, item.key()) > 0;
    if (!is_known) names.push_back(item.key());
  }
  return names;
}

const Json& member_of(const Json& object, std::string_view name) {
  static const Json none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

std::variant<GenerationRequest, ApiError> as_written(std::variant<GenerationRequest, ApiError> read,
                                                     const PathMap& paths) {
  if (auto* refused = std::get_if<ApiError>(&read)) return paths.as_written(std::move(*refused));
  auto& request = std::get<GenerationRequest>(read);
  request.prompt_field = paths.as_written(request.prompt_field);
  request.constraint_field = paths.as_written(request.constraint_field);
  return read;
}

}  // namespace halfbyte::server
