// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_GOODPUT_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_GOODPUT_H_

#include <limits>
#include <span>
#include <string>

#include "halfbyte/result.h"

namespace halfbyte::tool {

/// What a request must keep to count as good, in milliseconds.
struct GoodputLimits {
  double ttft_ms = std::numeric_limits<double>::infinity();
  double tpot_ms = std::numeric_limits<double>::infinity();
  double e2e_ms = std::numeric_limits<double>::infinity();
};

/// Of "ttft:200", "tpot:50", "e2e:5000"; kInvalidArgument names the one that is wrong.
Result<GoodputLimits> parse_goodput(std::span<const std::string> limits);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_GOODPUT_H_
