// SPDX-License-Identifier: Apache-2.0
//
// Fields that change which token comes next, and what is told about it.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "server/generation_request.h"

namespace halfbyte::server {
namespace {

constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxLogprobs = 20;
constexpr double kMaxPenalty = 2.0;
constexpr double kMaxBias = 100.0;
constexpr float kSmallest = std::numeric_limits<float>::min();

// A double in range may still be beyond a float.
float to_float(double value) {
  return static_cast<float>(
      std::min(value, static_cast<double>(std::numeric_limits<float>::max())));
}

void read_distribution(FieldReader& reader,
                       const SamplingDefaults& defaults,
                       SamplingParams& sampling) {
  const double largest = std::numeric_limits<double>::max();
  sampling.temperature =
      to_float(reader.number("temperature", 0.0, largest, false).value_or(defaults.temperature));
  // A double above 0 may be 0 as a float.
  sampling.top_p = std::max(
      to_float(reader.number("top_p", 0.0, 1.0, true).value_or(defaults.top_p)), kSmallest);
  sampling.top_k =
      static_cast<int>(reader.integer("top_k", -1, kMaxCount).value_or(defaults.top_k));
  sampling.min_p = to_float(reader.number("min_p", 0.0, 1.0, false).value_or(defaults.min_p));
}

void read_penalties(FieldReader& reader,
                    const SamplingDefaults& defaults,
                    SamplingParams& sampling) {
  const auto penalty = [&reader](std::string_view name) {
    return to_float(reader.number(name, -kMaxPenalty, kMaxPenalty, false).value_or(0.0));
  };
  sampling.presence_penalty = penalty("presence_penalty");
  sampling.frequency_penalty = penalty("frequency_penalty");
  sampling.repetition_penalty =
      std::max(to_float(reader.number("repetition_penalty", 0.0, kMaxPenalty, true)
                            .value_or(defaults.repetition_penalty)),
               kSmallest);
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

// An id in decimal digits and nothing else, as a key of logit_bias; none when it is no id.
std::optional<std::int32_t> parse_id(const std::string& text, std::int64_t vocab_size) {
  std::int32_t id = -1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), id);
  const bool is_whole = problem == std::errc() && end == text.data() + text.size();
  return is_whole && id >= 0 && id < vocab_size && std::to_string(id) == text ? std::optional(id)
                                                                              : std::nullopt;
}

void read_logit_bias(FieldReader& reader, std::int64_t vocab_size, SamplingParams& sampling) {
  const Json* biases = reader.object("logit_bias");
  if (biases == nullptr) return;
  for (const auto& [key, value] : biases->items()) {
    const auto id = parse_id(key, vocab_size);
    if (!id) {
      return reader.fail("logit_bias", fmt::format("logit_bias has the key {}, want ids from \"0\" "
                                                   "to \"{}\"",
                                                   Json(key).dump(), vocab_size - 1));
    }
    const bool fits = value.is_number() && value >= -kMaxBias && value <= kMaxBias;
    if (!fits) {
      return reader.fail(
          "logit_bias",
          fmt::format("logit_bias of {} is {}, want a number from {} to {}", key,
                      value.is_number() ? value.dump() : value.type_name(), -kMaxBias, kMaxBias));
    }
    sampling.logit_bias.emplace_back(*id, to_float(value.get<double>()));
  }
}

void read_chat_logprobs(FieldReader& reader, SamplingParams& sampling) {
  const bool wanted = reader.boolean("logprobs").value_or(false);
  const auto top = reader.integer("top_logprobs", 0, kMaxLogprobs).value_or(0);
  if (top > 0 && !wanted) {
    reader.fail("top_logprobs", fmt::format("top_logprobs is {}, which needs logprobs true", top));
  }
  sampling.num_logprobs = wanted ? static_cast<int>(top) : -1;
}

// Of an echoed prompt, too.
void read_completion_logprobs(FieldReader& reader, bool echoes, SamplingParams& sampling) {
  sampling.num_logprobs =
      static_cast<int>(reader.integer("logprobs", 0, kMaxLogprobs).value_or(-1));
  if (echoes) sampling.num_prompt_logprobs = sampling.num_logprobs;
}

}  // namespace

void read_sampling_fields(const Json& body,
                          const RequestScope& scope,
                          GenerationRequest& request,
                          std::optional<ApiError>& error) {
  FieldReader reader(body, "", error);
  SamplingParams& sampling = request.sampling;
  read_distribution(reader, scope.text->defaults(), sampling);
  read_penalties(reader, scope.text->defaults(), sampling);
  read_seed(reader, scope, sampling);
  read_logit_bias(reader, scope.vocab_size, sampling);
  sampling.ignore_eos = reader.boolean("ignore_eos").value_or(false);
  sampling.min_new_tokens = reader.integer("min_tokens", 0, kMaxCount).value_or(0);
  if (request.is_chat) {
    read_chat_logprobs(reader, sampling);
  } else {
    read_completion_logprobs(reader, request.echo, sampling);
  }
  if (const Json* ids = reader.array("stop_token_ids")) {
    std::vector<std::int32_t>& stops = sampling.stop_token_ids;
    stops = read_token_ids(reader, "stop_token_ids", *ids, scope.vocab_size);
    // A body has room for millions, and every token is compared with each.
    std::ranges::sort(stops);
    stops.erase(std::ranges::unique(stops).begin(), stops.end());
  }
}

}  // namespace halfbyte::server
