// SPDX-License-Identifier: Apache-2.0
#include "engine/request_validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "engine/block_manager.h"
#include "model/model.h"

namespace halfbyte {
namespace {

template <typename Number>
Status out_of_range(std::string_view name, Number value, std::string_view range) {
  return {StatusCode::kInvalidArgument, fmt::format("{} is {}, want {}", name, value, range)};
}

// NaN is in no range.
Status validate_range(std::string_view name, float value, float lowest, float highest) {
  if (value >= lowest && value <= highest) return {};
  return out_of_range(name, value, fmt::format("{} to {}", lowest, highest));
}

Status validate_truncation(const SamplingParams& params) {
  if (!std::isfinite(params.temperature) || params.temperature < 0.0F) {
    return out_of_range("temperature", params.temperature, "a finite number of at least 0");
  }
  if (params.top_k < -1) return out_of_range("top_k", params.top_k, "at least 1, or 0 for all");
  if (!(params.top_p > 0.0F && params.top_p <= 1.0F)) {
    return out_of_range("top_p", params.top_p, "more than 0 and at most 1");
  }
  return validate_range("min_p", params.min_p, 0.0F, 1.0F);
}

Status validate_penalties(const SamplingParams& params) {
  HALFBYTE_RETURN_IF_ERROR(validate_range("presence_penalty", params.presence_penalty, -2, 2));
  HALFBYTE_RETURN_IF_ERROR(validate_range("frequency_penalty", params.frequency_penalty, -2, 2));
  if (!(params.repetition_penalty > 0.0F && params.repetition_penalty <= 2.0F)) {
    return out_of_range("repetition_penalty", params.repetition_penalty,
                        "more than 0 and at most 2");
  }
  return {};
}

// Of num_logprobs and num_prompt_logprobs.
Status validate_num_logprobs(std::string_view name, int value, std::int64_t vocab_size) {
  if (value >= -1 && value <= vocab_size) return {};
  return out_of_range(name, value,
                      fmt::format("0 to {}, the vocabulary's size, or -1 for none", vocab_size));
}

Status validate_counts(const SamplingParams& params, std::int64_t vocab_size) {
  if (params.max_new_tokens < 0) {
    return out_of_range("max_new_tokens", params.max_new_tokens, "at least 0");
  }
  if (params.min_new_tokens < 0 || params.min_new_tokens > params.max_new_tokens) {
    return out_of_range("min_new_tokens", params.min_new_tokens,
                        fmt::format("0 to {}: max_new_tokens", params.max_new_tokens));
  }
  HALFBYTE_RETURN_IF_ERROR(validate_num_logprobs("num_logprobs", params.num_logprobs, vocab_size));
  return validate_num_logprobs("num_prompt_logprobs", params.num_prompt_logprobs, vocab_size);
}

Status validate_id(std::string_view what, std::int32_t id, std::int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return {};
  return out_of_range(what, id, fmt::format("0 to {}: the model's vocabulary", vocab_size - 1));
}

}  // namespace

Status validate_sampling(const SamplingParams& params, std::int64_t vocab_size) {
  HALFBYTE_RETURN_IF_ERROR(validate_truncation(params));
  HALFBYTE_RETURN_IF_ERROR(validate_penalties(params));
  HALFBYTE_RETURN_IF_ERROR(validate_counts(params, vocab_size));
  for (const std::int32_t id : params.stop_token_ids) {
    HALFBYTE_RETURN_IF_ERROR(validate_id("a stop token id", id, vocab_size));
  }
  for (const auto& [id, bias] : params.logit_bias) {
    HALFBYTE_RETURN_IF_ERROR(validate_id("a token id of logit_bias", id, vocab_size));
    HALFBYTE_RETURN_IF_ERROR(
        validate_range(fmt::format("logit_bias of token {}", id), bias, -100, 100));
  }
  return {};
}

Status validate_ids(const std::vector<std::int32_t>& ids, std::int64_t vocab_size) {
  if (ids.empty()) {
    return {StatusCode::kInvalidArgument, "the prompt has no tokens, want at least 1"};
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return validate_id(fmt::format("prompt token {}", i), ids[i], vocab_size);
  }
  return {};
}

Status validate_request(const Request& request, const EngineInfo& info, std::int64_t num_blocks) {
  HALFBYTE_RETURN_IF_ERROR(validate_ids(request.prompt_ids, info.vocab_size));
  HALFBYTE_RETURN_IF_ERROR(validate_sampling(request.sampling, info.vocab_size));
  const auto prompt_tokens = static_cast<std::int64_t>(request.prompt_ids.size());
  const std::int64_t start = request.sampling.prompt_logprob_start;
  if (start < 0 || start > prompt_tokens) {
    return out_of_range("prompt_logprob_start", start,
                        fmt::format("0 to {}: the prompt's length", prompt_tokens));
  }
  if (prompt_tokens >= info.max_context_tokens) {
    return {StatusCode::kInvalidArgument,
            fmt::format("the prompt has {} tokens, want fewer than the context of {}: shorten it",
                        prompt_tokens, info.max_context_tokens)};
  }
  const std::int64_t answer_tokens =
      std::min(request.sampling.max_new_tokens, info.max_context_tokens - prompt_tokens);
  // The last token of an answer is never put in the cache, that of a prompt always.
  const std::int64_t needed =
      blocks_for(prompt_tokens + std::max<std::int64_t>(answer_tokens, 1) - 1);
  if (needed > num_blocks) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{} prompt tokens and up to {} new ones need {} cache blocks of {} tokens, "
                        "the KV cache has {}: shorten the request or raise --max-total-tokens",
                        prompt_tokens, answer_tokens, needed, kKvBlockTokens, num_blocks)};
  }
  return {};
}

}  // namespace halfbyte
