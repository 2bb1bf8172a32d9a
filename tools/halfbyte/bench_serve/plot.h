// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_PLOT_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_PLOT_H_

#include <cstdint>
#include <span>
#include <string>

namespace halfbyte::tool {

struct PlotPoint {
  std::int64_t concurrency = 0;
  double output_tokens_per_s = 0.0;
  double ttft_median_ms = 0.0;
  double ttft_p99_ms = 0.0;
};

/// Two panels over concurrency, as an SVG: output tokens a second, and TTFT. The points are
/// spread evenly, in their order.
std::string plot_svg(const std::string& title, std::span<const PlotPoint> points);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_PLOT_H_
