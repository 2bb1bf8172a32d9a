// SPDX-License-Identifier: Apache-2.0
//
// What an engine refuses before a request reaches its thread.
#ifndef HALFBYTE_ENGINE_REQUEST_VALIDATION_H_
#define HALFBYTE_ENGINE_REQUEST_VALIDATION_H_

#include <cstdint>
#include <vector>

#include "halfbyte/engine.h"

namespace halfbyte {

/// kInvalidArgument naming the parameter, its value and its range.
Status validate_sampling(const SamplingParams& params, std::int64_t vocab_size);

/// kInvalidArgument: none, or the first one outside the vocabulary.
Status validate_ids(const std::vector<std::int32_t>& ids, std::int64_t vocab_size);

/// The ids, the parameters, and whether the context and `num_blocks` cache blocks, a rank's whole
/// KV cache, hold the request.
Status validate_request(const Request& request, const EngineInfo& info, std::int64_t num_blocks);

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_REQUEST_VALIDATION_H_
