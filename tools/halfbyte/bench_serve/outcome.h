// SPDX-License-Identifier: Apache-2.0
//
// What became of one request.
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_OUTCOME_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_OUTCOME_H_

#include <cstdint>
#include <string>
#include <vector>

namespace halfbyte::tool {

/// Times are seconds since the run began.
struct Outcome {
  double sent = 0.0;  // before the connection is made
  double done = 0.0;
  std::vector<double> chunks = {};      // when each piece of text came; one if it does not stream
  std::int64_t prompt_tokens = -1;      // as the server says; -1: it does not
  std::int64_t completion_tokens = -1;  // the same
  std::int64_t cached_tokens = 0;
  std::string text = {};
  std::string finish_reason = {};
  std::string error = {};  // empty: it went well
};

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_OUTCOME_H_
