// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_ENGINE_SEQUENCE_H_
#define HALFBYTE_ENGINE_SEQUENCE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/prefix_cache.h"
#include "halfbyte/engine.h"

namespace halfbyte {

/// One request's stream of tokens while the engine works on it.
struct Sequence {
  RequestId request_id = 0;          // ascending: also the age
  std::vector<std::int32_t> tokens;  // the prompt, then what was generated
  std::int64_t num_prompt_tokens = 0;
  std::int64_t max_total_tokens = 0;  // prompt and answer
  SamplingParams sampling;
  std::vector<std::int32_t> end_token_ids;  // each is the last token of the answer
  std::unique_ptr<TokenConstraint> constraint;
  std::string cache_salt;
  std::vector<std::int32_t> block_table;  // its cache blocks; empty while it waits
  std::size_t num_shared_blocks = 0;      // the first of them, which are in the prefix cache
  std::int64_t num_cached_tokens = 0;     // the first ones, whose K and V are in the cache
  std::int64_t num_prefix_tokens = 0;     // of the prompt: found in the prefix cache
  std::int64_t num_overtakes = 0;         // later ones that were admitted before it
  PrefixMatch prefix_match;               // what it would find, while it waits
  std::optional<std::chrono::steady_clock::time_point> queued_since;  // until its first step
  std::int64_t num_unscored_tokens = 0;  // last ones of the prompt whose logprobs are still wanted
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;  // as TokenEvent's, until it is given

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }
  /// Tokens that the model has not seen. 1: the next step decodes.
  std::int64_t num_pending_tokens() const { return num_tokens() - num_cached_tokens; }
  /// The position whose logits give the first unscored token's logprob; the others' follow it.
  std::int64_t first_unscored_row() const { return num_prompt_tokens - num_unscored_tokens - 1; }
  /// Tokens that need not be computed where the prefix cache has them: no logits of theirs are
  /// wanted.
  std::int64_t num_reusable_tokens() const {
    return num_unscored_tokens > 0 ? first_unscored_row() : num_tokens() - 1;
  }
};

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_SEQUENCE_H_
