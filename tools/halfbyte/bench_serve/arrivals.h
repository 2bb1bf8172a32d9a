// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_ARRIVALS_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_ARRIVALS_H_

#include <cstdint>
#include <vector>

namespace halfbyte::tool {

/// When each of `num_requests` arrives, in seconds: a Poisson process of `rate` a second, the first
/// at 0; all at 0 when the rate is infinite. The same seed gives the same times on every machine.
std::vector<double> arrival_times(std::int64_t num_requests, double rate, std::uint64_t seed);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_ARRIVALS_H_
