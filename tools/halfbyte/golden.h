// SPDX-License-Identifier: Apache-2.0
//
// Comparison with what an independent implementation computed: a golden directory.
#ifndef HALFBYTE_TOOLS_HALFBYTE_GOLDEN_H_
#define HALFBYTE_TOOLS_HALFBYTE_GOLDEN_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "halfbyte/engine.h"

namespace halfbyte::tool {

/// Teacher-forced logits of a mode.
struct GoldenLogits {
  std::vector<std::vector<std::int32_t>> sequences;
  std::vector<float> logits;  // [tokens of all sequences, vocab]
};

/// Greedy answers of a mode.
struct GoldenGreedy {
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::int32_t> output_ids;
};

/// golden_logits.safetensors: tokens int32 [n], offsets int32 [sequences + 1], logits.<mode> fp32
/// [m, vocab], which may cover the first sequences only. kNotFound names a missing file or tensor.
Result<GoldenLogits> read_golden_logits(const std::string& directory,
                                        const std::string& mode,
                                        std::int64_t vocab_size);
/// golden.json: greedy, a list of {prompt_ids, <mode>: ids}.
Result<std::vector<GoldenGreedy>> read_golden_greedy(const std::string& directory,
                                                     const std::string& mode);

/// How far `ours` is from `golden`, in fp64.
struct LogitDistance {
  double kl_sum = 0.0;  // KL(softmax(golden) || softmax(ours)), nats, of all positions but the last
  double kl_max = 0.0;
  std::int64_t kl_positions = 0;
  double largest_difference = 0.0;  // over all positions
  double largest_golden = 0.0;

  double kl_mean() const;
  double logit_rel_max() const;
  /// Adds one sequence: both are [tokens, vocab].
  void add(std::span<const float> golden, std::span<const float> ours, std::int64_t vocab_size);
};

/// Scores every golden sequence on the engine and measures.
Result<LogitDistance> measure(Engine& engine, const GoldenLogits& golden);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_GOLDEN_H_
