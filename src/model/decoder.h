// SPDX-License-Identifier: Apache-2.0
//
// The decoder that every architecture runs: embedding, pre-norm residual layers, head.
#ifndef HALFBYTE_MODEL_DECODER_H_
#define HALFBYTE_MODEL_DECODER_H_

#include <memory>
#include <vector>

#include "model/weights.h"

namespace halfbyte {

/// What one rank adds to the shared weights.
struct DecoderParts {
  std::shared_ptr<const SharedWeights> weights;
  std::vector<std::unique_ptr<MoeLayer>> experts;  // [num_hidden_layers]; null: a dense layer
  std::unique_ptr<DenseOps> ops;
  ModelOptions options;                            // resolved
  std::vector<std::pair<float, float>> kv_scales;  // per layer, or empty
};

/// Allocates the KV cache and all that a step needs. kOutOfMemory names the size.
Result<std::unique_ptr<Model>> make_decoder(DecoderParts parts);

}  // namespace halfbyte

#endif  // HALFBYTE_MODEL_DECODER_H_
