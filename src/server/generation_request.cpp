// SPDX-License-Identifier: Apache-2.0
#include "server/generation_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "server/constraint_fields.h"

namespace halfbyte::server {
namespace {

constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxChoices = 128;          // n
constexpr std::int64_t kMaxSequences = 256;        // prompts x n
constexpr std::int64_t kCompletionMaxTokens = 16;  // OpenAI's default
constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr std::size_t kMaxIdBytes = 128;
constexpr std::size_t kMaxSaltBytes = 1024;

void check_stop(FieldReader& reader, const std::vector<std::string>& stops) {
  if (stops.size() > kMaxStops) {
    reader.fail("stop",
                fmt::format("stop has {} strings, want at most {}", stops.size(), kMaxStops));
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) reader.fail("stop", "stop holds an empty string, which stops nothing");
    if (stop.size() > kMaxStopBytes) {
      reader.fail("stop", fmt::format("a string of stop has {} bytes, want at most {}", stop.size(),
                                      kMaxStopBytes));
    }
  }
}

void read_stop(FieldReader& reader, GenerationRequest& request) {
  const Json* stop = reader.find("stop");
  if (stop == nullptr) return;
  if (stop->is_string()) {
    request.stop.push_back(stop->get<std::string>());
  } else if (stop->is_array()) {
    for (const Json& entry : *stop) {
      if (!entry.is_string()) return reader.fail_type("stop", "a string or a list of them", entry);
      request.stop.push_back(entry.get<std::string>());
    }
  } else {
    reader.fail_type("stop", "a string or a list of them", *stop);
  }
  check_stop(reader, request.stop);
}

void read_stream(const Json& body, GenerationRequest& request, std::optional<ApiError>& error) {
  FieldReader reader(body, "", error);
  request.stream = reader.boolean("stream").value_or(false);
  const Json* options = reader.object("stream_options");
  if (options == nullptr || !request.stream) return;
  FieldReader inner(*options, "stream_options", error);
  request.include_usage = inner.boolean("include_usage").value_or(false);
  request.continuous_usage =
      inner.boolean("continuous_usage_stats").value_or(false) && request.include_usage;
}

void read_max_tokens(FieldReader& reader, GenerationRequest& request) {
  const std::int64_t least = request.may_be_empty ? 0 : 1;
  request.max_tokens = reader.integer("max_tokens", least, kMaxCount);
  if (auto newer = reader.integer("max_completion_tokens", least, kMaxCount)) {
    request.max_tokens = newer;
  }
  if (!request.is_chat && !request.max_tokens) request.max_tokens = kCompletionMaxTokens;
}

// SGLang's name for an id that the client chooses.
void read_id(FieldReader& reader, GenerationRequest& request) {
  const auto id = reader.string("rid");
  if (!id) return;
  const bool is_legal = !id->empty() && id->size() <= kMaxIdBytes &&
                        std::ranges::all_of(*id, [](char c) { return c > ' ' && c < '\x7F'; });
  if (!is_legal) {
    reader.fail("rid", fmt::format("rid is {}, want 1 to {} visible characters of ASCII",
                                   Json(*id).dump(), kMaxIdBytes));
  }
  request.id = *id;
}

// Each sequence, and each prefix in the cache, holds it.
void read_cache_salt(FieldReader& reader, GenerationRequest& request) {
  request.cache_salt = reader.string("cache_salt").value_or("");
  if (request.cache_salt.size() <= kMaxSaltBytes) return;
  reader.fail("cache_salt", fmt::format("cache_salt has {} bytes, want at most {}",
                                        request.cache_salt.size(), kMaxSaltBytes));
}

// Types of fields that do nothing here.
void check_inert_fields(FieldReader& reader) {
  reader.integer("priority", std::numeric_limits<std::int64_t>::min(),
                 std::numeric_limits<std::int64_t>::max());
  reader.string("user");
}

// ---- prompt

// One text of a completion.
void add_text_prompt(FieldReader& reader,
                     std::string_view name,
                     const std::string& text,
                     const RequestScope& scope,
                     GenerationRequest& request) {
  auto ids = scope.text->encode_prompt(text, request.prompt_encoding);
  if (!ids.ok()) return reader.fail(name, std::string(ids.status().message()));
  if (ids->empty()) {
    return reader.fail(name, fmt::format("{} has no tokens, want at least 1", name));
  }
  request.prompts.push_back(std::move(ids).value());
  if (request.echo) request.prompt_texts.push_back(text);
}

// One list of ids.
void add_id_prompt(FieldReader& reader,
                   std::string_view name,
                   const Json& prompt,
                   const RequestScope& scope,
                   GenerationRequest& request) {
  if (prompt.empty()) {
    return reader.fail(name, fmt::format("{} is empty, want at least 1 id", name));
  }
  request.prompts.push_back(read_token_ids(reader, name, prompt, scope.vocab_size));
  if (request.echo) {
    request.prompt_texts.push_back(
        scope.text->tokenizer().decode(request.prompts.back(), request.skip_special_tokens));
  }
}

void add_listed_prompt(FieldReader& reader,
                       std::size_t index,
                       const Json& prompt,
                       const RequestScope& scope,
                       GenerationRequest& request) {
  const std::string name = fmt::format("prompt[{}]", index);
  if (prompt.is_string()) {
    add_text_prompt(reader, name, prompt.get_ref<const std::string&>(), scope, request);
  } else if (prompt.is_array()) {
    add_id_prompt(reader, name, prompt, scope, request);
  } else {
    reader.fail_type(name, "a string or a list of ids, as the first one", prompt);
  }
}

void read_prompt_list(FieldReader& reader,
                      const Json& prompt,
                      const RequestScope& scope,
                      GenerationRequest& request) {
  if (prompt.empty()) return reader.fail("prompt", "prompt is an empty list");
  if (prompt.front().is_number()) {
    return add_id_prompt(reader, "prompt", prompt, scope, request);
  }
  if (static_cast<std::int64_t>(prompt.size()) > kMaxSequences) {
    return reader.fail("prompt", fmt::format("prompt has {} entries, want at most {}",
                                             prompt.size(), kMaxSequences));
  }
  for (std::size_t i = 0; i < prompt.size() && reader.ok(); ++i) {
    add_listed_prompt(reader, i, prompt[i], scope, request);
  }
}

void read_prompt(FieldReader& reader, const RequestScope& scope, GenerationRequest& request) {
  const Json* prompt = reader.find("prompt");
  if (prompt == nullptr) {
    reader.fail("prompt", "prompt is required: a string, a list of strings, or lists of ids");
  } else if (prompt->is_string()) {
    add_text_prompt(reader, "prompt", prompt->get_ref<const std::string&>(), scope, request);
  } else if (prompt->is_array()) {
    read_prompt_list(reader, *prompt, scope, request);
  } else {
    reader.fail_type("prompt", "a string or a list", *prompt);
  }
}

void check_length(FieldReader& reader,
                  std::int64_t prompt_tokens,
                  std::int64_t context_tokens,
                  const GenerationRequest& request) {
  if (prompt_tokens >= context_tokens) {
    return reader.fail(request.prompt_field,
                       fmt::format("the prompt has {} tokens, want fewer than the context of {}",
                                   prompt_tokens, context_tokens),
                       "context_length_exceeded");
  }
  const std::int64_t room = context_tokens - prompt_tokens;
  const std::int64_t limit = std::min(request.max_tokens.value_or(room), room);
  if (request.sampling.min_new_tokens > limit) {
    reader.fail("min_tokens",
                fmt::format("min_tokens is {}, want at most {}: max_tokens, or what a prompt of {} "
                            "tokens leaves of the context",
                            request.sampling.min_new_tokens, limit, prompt_tokens));
  }
}

void check_sizes(FieldReader& reader, const RequestScope& scope, const GenerationRequest& request) {
  const auto sequences = static_cast<std::int64_t>(request.prompts.size()) * request.n;
  if (sequences > kMaxSequences) {
    reader.fail("n", fmt::format("{} prompts with n {} are {} sequences, want at most {}",
                                 request.prompts.size(), request.n, sequences, kMaxSequences));
  }
  for (const auto& prompt : request.prompts) {
    check_length(reader, static_cast<std::int64_t>(prompt.size()), scope.context_tokens, request);
  }
}

std::variant<GenerationRequest, ApiError> finish(GenerationRequest request,
                                                 const RequestScope& scope,
                                                 const Json& body,
                                                 std::optional<ApiError>& error) {
  FieldReader reader(body, "", error);
  if (!error) check_sizes(reader, scope, request);
  if (error) return std::move(*error);
  return request;
}

}  // namespace

std::string read_model_name(const Json& body,
                            const RequestScope& scope,
                            std::optional<ApiError>& error) {
  FieldReader reader(body, "", error);
  const auto name = reader.string("model");
  if (!name) return scope.model_names.front();
  if (std::ranges::count(scope.model_names, *name) == 0 && !error) {
    error = ApiError{404,
                     fmt::format("the model \"{}\" is not served here, only: {}", *name,
                                 fmt::join(scope.model_names, ", ")),
                     "model", "model_not_found"};
  }
  return *name;
}

PromptEncoding read_prompt_encoding(FieldReader& reader) {
  return {.add_special_tokens = reader.boolean("add_special_tokens").value_or(true),
          .split_special_tokens = reader.boolean("split_special_tokens").value_or(false)};
}

std::vector<std::int32_t> read_token_ids(FieldReader& reader,
                                         std::string_view name,
                                         const Json& array,
                                         std::int64_t vocab_size) {
  std::vector<std::int32_t> ids;
  ids.reserve(array.size());
  for (const Json& entry : array) {
    const bool is_id = entry.is_number_integer() && entry >= 0 && entry < vocab_size;
    if (!is_id) {
      reader.fail(name, fmt::format("{} {} of {} is no token id: want 0 to {}",
                                    entry.is_number() ? entry.dump() : entry.type_name(),
                                    fmt::format("at [{}]", ids.size()), name, vocab_size - 1));
      return ids;
    }
    ids.push_back(entry.get<std::int32_t>());
  }
  return ids;
}

void read_shared_fields(const Json& body,
                        const RequestScope& scope,
                        GenerationRequest& request,
                        std::optional<ApiError>& error) {
  FieldReader reader(body, "", error);
  refuse_unsupported(body, request.is_chat, error);
  read_sampling_fields(body, scope, request, error);
  read_max_tokens(reader, request);
  read_stop(reader, request);
  read_stream(body, request, error);
  check_inert_fields(reader);
  read_id(reader, request);
  request.n = reader.integer("n", 1, kMaxChoices).value_or(1);
  read_cache_salt(reader, request);
  request.include_stop_string = reader.boolean("include_stop_str_in_output").value_or(false);
  request.skip_special_tokens = reader.boolean("skip_special_tokens").value_or(true);
  request.return_token_ids = reader.boolean("return_token_ids").value_or(false);
  if (!error) read_constraint(body, scope, request, error);
}

std::variant<GenerationRequest, ApiError> read_chat_request(const Json& body,
                                                            const RequestScope& scope) {
  GenerationRequest request;
  request.is_chat = true;
  request.prompt_field = "messages";
  std::optional<ApiError> error;
  request.model = read_model_name(body, scope, error);
  read_shared_fields(body, scope, request, error);
  if (!error) {
    Conversation conversation = read_conversation(body, scope, error);
    request.prompts.push_back(std::move(conversation.ids));
    if (conversation.has_tools) request.tool_calls = scope.text->tool_call_format();
    request.one_tool_call = conversation.one_tool_call;
    request.reasoning = conversation.reasoning;
    if (!error && conversation.forced_tool) {
      force_tool_calls(body, *conversation.forced_tool, scope, request, error);
    }
  }
  return finish(std::move(request), scope, body, error);
}

// An echoed prompt may be all that is wanted: its logprobs.
std::variant<GenerationRequest, ApiError> read_completion_request(const Json& body,
                                                                  const RequestScope& scope,
                                                                  bool may_be_empty) {
  GenerationRequest request;
  std::optional<ApiError> error;
  FieldReader reader(body, "", error);
  request.model = read_model_name(body, scope, error);
  request.echo = reader.boolean("echo").value_or(false);
  request.may_be_empty = may_be_empty || request.echo;
  request.prompt_encoding = read_prompt_encoding(reader);
  read_shared_fields(body, scope, request, error);
  if (!error) read_prompt(reader, scope, request);
  return finish(std::move(request), scope, body, error);
}

}  // namespace halfbyte::server
