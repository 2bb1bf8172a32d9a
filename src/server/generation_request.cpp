// SPDX-License-Identifier: Apache-2.0
#include "server/generation_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace halfbyte::server {
namespace {

constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxChoices = 128;          // n
constexpr std::int64_t kMaxSequences = 256;        // prompts x n
constexpr std::int64_t kCompletionMaxTokens = 16;  // OpenAI's default
constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxStopBytes = 1024;

// A double in range may still be beyond a float, or below its smallest.
float to_float(double value) {
  return static_cast<float>(
      std::min(value, static_cast<double>(std::numeric_limits<float>::max())));
}

void read_sampling(FieldReader& reader,
                   const SamplingDefaults& defaults,
                   SamplingParams& sampling) {
  const double largest = std::numeric_limits<double>::max();
  sampling.temperature =
      to_float(reader.number("temperature", 0.0, largest, false).value_or(defaults.temperature));
  sampling.top_p =
      std::max(to_float(reader.number("top_p", 0.0, 1.0, true).value_or(defaults.top_p)),
               std::numeric_limits<float>::min());
  sampling.top_k =
      static_cast<int>(reader.integer("top_k", -1, kMaxCount).value_or(defaults.top_k));
  sampling.ignore_eos = reader.boolean("ignore_eos").value_or(false);
}

// Any 64-bit integer, signed or not.
void read_seed(FieldReader& reader, const RequestScope& scope, SamplingParams& sampling) {
  const Json* seed = reader.find("seed");
  if (seed == nullptr) {
    sampling.seed = scope.random_seed();
  } else if (!seed->is_number_integer()) {
    reader.fail_type("seed", "a 64-bit integer", *seed);
  } else {
    sampling.seed = seed->get<std::uint64_t>();
  }
}

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
  request.max_tokens = reader.integer("max_tokens", 1, kMaxCount);
  if (auto newer = reader.integer("max_completion_tokens", 1, kMaxCount)) {
    request.max_tokens = newer;
  }
  if (!request.is_chat && !request.max_tokens) request.max_tokens = kCompletionMaxTokens;
}

// Types of fields that do nothing here.
void check_inert_fields(FieldReader& reader) {
  reader.integer("priority", std::numeric_limits<std::int64_t>::min(),
                 std::numeric_limits<std::int64_t>::max());
  reader.string("cache_salt");
  reader.string("user");
}

// ---- prompt

// One text of a completion, in ids.
std::vector<std::int32_t> encode_prompt(FieldReader& reader,
                                        std::string_view name,
                                        const std::string& text,
                                        const RequestScope& scope) {
  auto ids = scope.text->encode_prompt(text);
  if (!ids.ok()) {
    reader.fail(name, std::string(ids.status().message()));
    return {};
  }
  if (ids->empty()) reader.fail(name, fmt::format("{} has no tokens, want at least 1", name));
  return std::move(ids).value();
}

std::vector<std::int32_t> read_listed_prompt(FieldReader& reader,
                                             std::size_t index,
                                             const Json& prompt,
                                             const RequestScope& scope) {
  const std::string name = fmt::format("prompt[{}]", index);
  if (prompt.is_string()) {
    return encode_prompt(reader, name, prompt.get_ref<const std::string&>(), scope);
  }
  if (!prompt.is_array()) {
    reader.fail_type(name, "a string or a list of ids, as the first one", prompt);
    return {};
  }
  if (prompt.empty()) reader.fail(name, fmt::format("{} is empty, want at least 1 id", name));
  return read_token_ids(reader, name, prompt, scope.vocab_size);
}

void read_prompt_list(FieldReader& reader,
                      const Json& prompt,
                      const RequestScope& scope,
                      GenerationRequest& request) {
  if (prompt.empty()) return reader.fail("prompt", "prompt is an empty list");
  if (prompt.front().is_number()) {
    request.prompts.push_back(read_token_ids(reader, "prompt", prompt, scope.vocab_size));
    return;
  }
  if (static_cast<std::int64_t>(prompt.size()) > kMaxSequences) {
    return reader.fail("prompt", fmt::format("prompt has {} entries, want at most {}",
                                             prompt.size(), kMaxSequences));
  }
  for (std::size_t i = 0; i < prompt.size() && reader.ok(); ++i) {
    request.prompts.push_back(read_listed_prompt(reader, i, prompt[i], scope));
  }
}

void read_prompt(FieldReader& reader, const RequestScope& scope, GenerationRequest& request) {
  const Json* prompt = reader.find("prompt");
  if (prompt == nullptr) {
    reader.fail("prompt", "prompt is required: a string, a list of strings, or lists of ids");
  } else if (prompt->is_string()) {
    request.prompts.push_back(
        encode_prompt(reader, "prompt", prompt->get_ref<const std::string&>(), scope));
  } else if (prompt->is_array()) {
    read_prompt_list(reader, *prompt, scope, request);
  } else {
    reader.fail_type("prompt", "a string or a list", *prompt);
  }
}

void check_sizes(FieldReader& reader, const RequestScope& scope, const GenerationRequest& request) {
  const auto sequences = static_cast<std::int64_t>(request.prompts.size()) * request.n;
  if (sequences > kMaxSequences) {
    reader.fail("n", fmt::format("{} prompts with n {} are {} sequences, want at most {}",
                                 request.prompts.size(), request.n, sequences, kMaxSequences));
  }
  for (const auto& prompt : request.prompts) {
    const auto tokens = static_cast<std::int64_t>(prompt.size());
    if (tokens < scope.context_tokens) continue;
    reader.fail(request.is_chat ? "messages" : "prompt",
                fmt::format("the prompt has {} tokens, want fewer than the context of {}", tokens,
                            scope.context_tokens),
                "context_length_exceeded");
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
  read_sampling(reader, scope.text->defaults(), request.sampling);
  read_seed(reader, scope, request.sampling);
  read_max_tokens(reader, request);
  read_stop(reader, request);
  read_stream(body, request, error);
  check_inert_fields(reader);
  request.n = reader.integer("n", 1, kMaxChoices).value_or(1);
  request.include_stop_string = reader.boolean("include_stop_str_in_output").value_or(false);
  request.skip_special_tokens = reader.boolean("skip_special_tokens").value_or(true);
  if (const Json* ids = reader.array("stop_token_ids")) {
    request.sampling.stop_token_ids =
        read_token_ids(reader, "stop_token_ids", *ids, scope.vocab_size);
  }
}

std::variant<GenerationRequest, ApiError> read_chat_request(const Json& body,
                                                            const RequestScope& scope) {
  GenerationRequest request;
  request.is_chat = true;
  std::optional<ApiError> error;
  request.model = read_model_name(body, scope, error);
  read_shared_fields(body, scope, request, error);
  if (!error) {
    Conversation conversation = read_conversation(body, scope, error);
    request.prompts.push_back(std::move(conversation.ids));
    request.finds_tool_calls = conversation.has_tools && scope.text->writes_tool_calls();
  }
  return finish(std::move(request), scope, body, error);
}

std::variant<GenerationRequest, ApiError> read_completion_request(const Json& body,
                                                                  const RequestScope& scope) {
  GenerationRequest request;
  std::optional<ApiError> error;
  request.model = read_model_name(body, scope, error);
  read_shared_fields(body, scope, request, error);
  FieldReader reader(body, "", error);
  if (!error) read_prompt(reader, scope, request);
  return finish(std::move(request), scope, body, error);
}

}  // namespace halfbyte::server
