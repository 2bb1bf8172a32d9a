// SPDX-License-Identifier: Apache-2.0
//
// What is asked of a server: data sets made here, or read from a file.
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_PROMPTS_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_PROMPTS_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/result.h"

namespace halfbyte::tool {

struct Prompt {
  nlohmann::ordered_json content;  // a text, or a list of ids
  std::int64_t output_tokens = 0;
  std::int64_t num_tokens = -1;  // of the content; -1: not known here
};

struct DatasetOptions {
  std::string name = "random";
  std::string path;  // of sharegpt, custom
  std::int64_t num_prompts = 1000;
  std::uint64_t seed = 1;
  std::int64_t input_len = 1024;
  std::int64_t output_len = 128;
  double range_ratio = 1.0;             // lengths are drawn from [ratio * len, len]
  std::int64_t vocab_size = 1000;       // random-ids: ids below it
  std::int64_t fixed_output_len = 0;    // sharegpt, custom; 0: as the file says
  std::int64_t num_groups = 64;         // generated-shared-prefix
  std::int64_t prompts_per_group = 16;  // the same, up to num_prompts
  std::int64_t system_prompt_len = 2048;
  std::int64_t question_len = 128;
  /// Tokens of a text; null: a word counts for one.
  std::function<Result<std::int64_t>(std::string_view)> count_tokens;
};

/// In the order of sending; the same options give the same prompts on every machine.
/// kInvalidArgument: no such data set, or an option that it needs is absent; kNotFound: no file;
/// kCorruptData: what the file has wrong, with its line or entry.
Result<std::vector<Prompt>> make_prompts(const DatasetOptions& options);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_PROMPTS_H_
