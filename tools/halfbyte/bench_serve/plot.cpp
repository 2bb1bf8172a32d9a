// SPDX-License-Identifier: Apache-2.0
#include "bench_serve/plot.h"

#include <array>
#include <vector>

#include "bench/svg_panels.h"

namespace halfbyte::tool {

std::string plot_svg(const std::string& title, std::span<const PlotPoint> points) {
  PlotCurve throughput{"output", "#1f6feb", {}};
  PlotCurve median{"median", "#1a7f37", {}};
  PlotCurve p99{"p99", "#cf222e", {}};
  std::vector<std::string> names;
  names.reserve(points.size());
  for (const PlotPoint& point : points) {
    names.push_back(std::to_string(point.concurrency));
    throughput.values.push_back(point.output_tokens_per_s);
    median.values.push_back(point.ttft_median_ms);
    p99.values.push_back(point.ttft_p99_ms);
  }
  const std::array panels = {PlotPanel{"output tokens/s", {throughput}},
                             PlotPanel{"time to the first token, ms", {median, p99}}};
  return draw_panels(title, "concurrency", names, panels);
}

}  // namespace halfbyte::tool
