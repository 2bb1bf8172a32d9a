// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_ENGINE_SEQUENCE_H_
#define HALFBYTE_ENGINE_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "halfbyte/engine.h"

namespace halfbyte {

/// One request's stream of tokens while the engine works on it.
struct Sequence {
  RequestId request_id = 0;          // ascending: also the age
  std::vector<std::int32_t> tokens;  // the prompt, then what was generated
  std::int64_t num_prompt_tokens = 0;
  std::int64_t max_total_tokens = 0;  // prompt and answer; at least num_prompt_tokens + 1
  SamplingParams sampling;
  std::vector<std::int32_t> end_token_ids;  // each is the last token of the answer
  std::unique_ptr<TokenConstraint> constraint;
  std::string cache_salt;
  std::vector<std::int32_t> block_table;  // its cache blocks; empty while it waits
  std::size_t num_shared_blocks = 0;      // the first of them, which are in the prefix cache
  std::int64_t num_cached_tokens = 0;     // the first ones, whose K and V are in the cache
  std::int64_t num_prefix_tokens = 0;     // of the prompt: found in the prefix cache
  bool was_admitted = false;              // so it has been sent back if it waits

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }
  /// Tokens that the model has not seen. 1: the next step decodes.
  std::int64_t num_pending_tokens() const { return num_tokens() - num_cached_tokens; }
};

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_SEQUENCE_H_
