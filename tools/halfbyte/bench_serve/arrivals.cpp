// SPDX-License-Identifier: Apache-2.0
#include "bench_serve/arrivals.h"

#include <cmath>
#include <random>

namespace halfbyte::tool {

std::vector<double> arrival_times(std::int64_t num_requests, double rate, std::uint64_t seed) {
  std::vector<double> times(static_cast<std::size_t>(num_requests), 0.0);
  if (std::isinf(rate)) return times;
  std::mt19937_64 random(seed);
  for (std::size_t i = 1; i < times.size(); ++i) {
    // std::exponential_distribution differs between standard libraries.
    const double uniform = std::ldexp(static_cast<double>(random() >> 11), -53);  // [0, 1)
    times[i] = times[i - 1] - std::log1p(-uniform) / rate;
  }
  return times;
}

}  // namespace halfbyte::tool
