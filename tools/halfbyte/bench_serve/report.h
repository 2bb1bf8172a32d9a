// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_REPORT_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_REPORT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "bench/statistics.h"
#include "bench_serve/goodput.h"
#include "bench_serve/load_client.h"
#include "bench_serve/prompts.h"

namespace halfbyte::tool {

/// What a run of requests showed. Tokens are the server's count where it gives one.
struct ServeReport {
  std::int64_t num_successful = 0;
  std::int64_t num_failed = 0;
  std::int64_t num_aborted = 0;  // the server ended them
  std::string first_error;       // of a request that failed
  double duration_s = 0.0;       // from the first request to the end of the last
  std::int64_t input_tokens = 0, cached_tokens = 0, output_tokens = 0;  // of successful requests
  std::int64_t max_under_way = 0;
  double mean_under_way = 0.0;
  Summary ttft, tpot, itl, e2e;   // ms; of successful requests
  double tokens_per_chunk = 0.0;  // above 1: ITL is between pieces of several tokens
  std::int64_t num_good = 0;      // successful, and within the limits
  bool has_usage = true;          // else pieces of text were counted for tokens
  std::int64_t num_prompts_counted_otherwise = 0;  // usage has another number than is known here
  std::int64_t local_output_tokens = -1;           // by the tokenizer given; -1: none is
  double lag_p99_ms = 0.0, lag_max_ms = 0.0, cpu_share = 0.0;  // of the client
  bool client_bound = false;  // the client was late by a tenth of what it measured, or never idle

  double per_second(std::int64_t count) const;
};

ServeReport make_report(const LoadResult& load,
                        std::span<const Prompt> prompts,
                        const GoodputLimits& limits,
                        const DatasetOptions& dataset);

/// The members of the report in a run's JSON line.
nlohmann::ordered_json to_json(const ServeReport& report);
/// The table that people read, with its last newline.
std::string to_text(const ServeReport& report, bool has_goodput);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_REPORT_H_
