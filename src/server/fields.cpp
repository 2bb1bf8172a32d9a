// SPDX-License-Identifier: Apache-2.0
//
// Which fields of requests are read, which are refused, and which are unknown.
#include <algorithm>
#include <array>

#include "server/generation_request.h"
#include "server/shared_fields.h"

namespace halfbyte::server {
namespace {

// A field that the engine cannot honour, and the values (a JSON list) that ask for nothing.
struct UnsupportedField {
  std::string_view name;
  std::string_view harmless;
};

constexpr std::array kUnsupported = {
    UnsupportedField{"prompt_logprobs", "[]"}, UnsupportedField{"guided_json", "[]"},
    UnsupportedField{"guided_regex", "[]"},    UnsupportedField{"guided_choice", "[]"},
    UnsupportedField{"guided_grammar", "[]"},  UnsupportedField{"use_beam_search", "[false]"},
    UnsupportedField{"bad_words", "[[]]"},     UnsupportedField{"allowed_token_ids", "[]"},
    UnsupportedField{"length_penalty", "[1]"}, UnsupportedField{"truncate_prompt_tokens", "[]"},
    UnsupportedField{"prompt_embeds", "[]"},   UnsupportedField{"logits_processors", "[[]]"},
    UnsupportedField{"stop_regex", "[]"},      UnsupportedField{"lora_path", "[]"},
};
constexpr std::array kUnsupportedChat = {
    UnsupportedField{"chat_template", "[]"},
    UnsupportedField{"functions", "[[]]"},
    UnsupportedField{"function_call", R"(["none"])"},
    UnsupportedField{"modalities", R"([["text"]])"},
    UnsupportedField{"audio", "[]"},
    UnsupportedField{"web_search_options", "[]"},
};
constexpr std::array kUnsupportedCompletion = {
    UnsupportedField{"suffix", R"([""])"},
};
// Of a completion's prompt. A chat's is what the template makes, with its special tokens.
constexpr std::array kOfRawPrompts = {
    UnsupportedField{"add_special_tokens", "[false]"},
};

constexpr auto kRead = std::to_array<std::string_view>({"model",
                                                        "messages",
                                                        "prompt",
                                                        "max_tokens",
                                                        "max_completion_tokens",
                                                        "temperature",
                                                        "top_p",
                                                        "top_k",
                                                        "min_p",
                                                        "presence_penalty",
                                                        "frequency_penalty",
                                                        "repetition_penalty",
                                                        "logit_bias",
                                                        "seed",
                                                        "n",
                                                        "best_of",
                                                        "stop",
                                                        "stop_token_ids",
                                                        "include_stop_str_in_output",
                                                        "ignore_eos",
                                                        "min_tokens",
                                                        "logprobs",
                                                        "top_logprobs",
                                                        "echo",
                                                        "return_token_ids",
                                                        "split_special_tokens",
                                                        "response_format",
                                                        "regex",
                                                        "ebnf",
                                                        "structured_outputs",
                                                        "structural_tag",
                                                        "skip_special_tokens",
                                                        "stream",
                                                        "stream_options",
                                                        "tools",
                                                        "tool_choice",
                                                        "parallel_tool_calls",
                                                        "reasoning_effort",
                                                        "chat_template_kwargs",
                                                        "add_generation_prompt",
                                                        "continue_final_message",
                                                        "priority",
                                                        "cache_salt",
                                                        "user",
                                                        "rid"});

template <std::size_t Size>
void refuse(const std::array<UnsupportedField, Size>& fields, FieldReader& reader) {
  for (const auto& [name, harmless] : fields) {
    const Json* value = reader.find(name);
    if (value == nullptr) continue;
    const Json allowed = Json::parse(harmless);
    if (std::find(allowed.begin(), allowed.end(), *value) != allowed.end()) continue;
    reader.refuse(name);
  }
}

void refuse_best_of(FieldReader& reader) {
  const Json* best_of = reader.find("best_of");
  const Json* n = reader.find("n");
  if (best_of == nullptr || *best_of == (n == nullptr ? Json(1) : *n)) return;
  reader.fail("best_of", "best_of other than n is not supported: leave it out",
              "unsupported_value");
}

}  // namespace

void refuse_unsupported(const Json& body, bool is_chat, std::optional<ApiError>& error) {
  FieldReader reader(body, "", error);
  refuse(kUnsupported, reader);
  refuse(kUnsupportedChat, reader);
  refuse(kUnsupportedCompletion, reader);
  if (is_chat) {
    refuse(kOfRawPrompts, reader);
  } else {
    refuse_best_of(reader);
  }
}

std::vector<std::string_view> known_fields() {
  std::vector<std::string_view> names(kRead.begin(), kRead.end());
  const auto add = [&names](const auto& fields) {
    for (const UnsupportedField& field : fields) {
      names.push_back(field.name);
    }
  };
  add(kUnsupported);
  add(kUnsupportedChat);
  add(kUnsupportedCompletion);
  add(kOfRawPrompts);
  return names;
}

std::vector<std::string> unknown_fields(const Json& body) {
  return fields_beyond(body, known_fields());
}

}  // namespace halfbyte::server
