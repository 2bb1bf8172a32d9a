// SPDX-License-Identifier: Apache-2.0
#include "bench_serve/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace halfbyte::tool {
namespace {

constexpr double kWidth = 360, kHeight = 240;        // of a panel's axes
constexpr double kLeft = 70, kTop = 60, kGap = 110;  // around them
constexpr int kNumTicks = 4;

struct Curve {
  std::string name, color;
  std::vector<double> values;
};

struct Panel {
  std::string title;
  double left = 0.0;
  double top_value = 1.0;  // at the upper end; 0 is at the lower one
  std::size_t num_points = 1;

  double x(std::size_t i) const {
    const auto steps = static_cast<double>(std::max<std::size_t>(num_points, 2) - 1);
    return left + kWidth * static_cast<double>(i) / steps;
  }
  double y(double value) const { return kTop + kHeight * (1.0 - value / top_value); }
};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

// 1, 2 or 5 times a power of ten, not below the largest value.
double round_top(std::span<const Curve> curves) {
  double largest = 0.0;
  for (const Curve& curve : curves) {
    for (const double value : curve.values)
      largest = std::max(largest, value);
  }
  if (!(largest > 0.0)) return 1.0;
  const double power = std::pow(10.0, std::floor(std::log10(largest)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (largest <= factor * power) return factor * power;
  }
  return 10.0 * power;
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

std::string line(double x1, double y1, double x2, double y2) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ccc\"/>\n", x1, y1,
      x2, y2);
}

std::string axes(const Panel& panel, std::span<const PlotPoint> points) {
  std::string svg = text_at(panel.left + kWidth / 2, kTop - 12, "middle", panel.title);
  for (int tick = 0; tick <= kNumTicks; ++tick) {
    const double value = panel.top_value * tick / kNumTicks;
    svg += line(panel.left, panel.y(value), panel.left + kWidth, panel.y(value));
    svg += text_at(panel.left - 6, panel.y(value) + 4, "end", fmt::format("{:g}", value));
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    svg += line(panel.x(i), kTop, panel.x(i), kTop + kHeight);
    svg +=
        text_at(panel.x(i), kTop + kHeight + 18, "middle", std::to_string(points[i].concurrency));
  }
  return svg + text_at(panel.left + kWidth / 2, kTop + kHeight + 38, "middle", "concurrency");
}

std::string draw(const Panel& panel, const Curve& curve) {
  std::string path, dots;
  for (std::size_t i = 0; i < curve.values.size(); ++i) {
    const double x = panel.x(i), y = panel.y(curve.values[i]);
    path += fmt::format("{}{:.1f},{:.1f}", i == 0 ? "" : " ", x, y);
    dots += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{:g}</title></circle>\n", x,
        y, curve.color, curve.values[i]);
  }
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                     path, curve.color) +
         dots;
}

std::string draw_panel(const std::string& title,
                       double left,
                       std::span<const PlotPoint> points,
                       std::span<const Curve> curves) {
  const Panel panel{title, left, round_top(curves), points.size()};
  std::string svg = axes(panel, points);
  double legend_y = kTop + 16;
  for (const Curve& curve : curves) {
    svg += draw(panel, curve);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n", left + 10,
                       legend_y, curve.color, escaped(curve.name));
    legend_y += 16;
  }
  return svg;
}

}  // namespace

std::string plot_svg(const std::string& title, std::span<const PlotPoint> points) {
  Curve throughput{"output", "#1f6feb", {}};
  Curve median{"median", "#1a7f37", {}};
  Curve p99{"p99", "#cf222e", {}};
  for (const PlotPoint& point : points) {
    throughput.values.push_back(point.output_tokens_per_s);
    median.values.push_back(point.ttft_median_ms);
    p99.values.push_back(point.ttft_p99_ms);
  }
  const double width = kLeft + 2 * kWidth + kGap + 30, height = kTop + kHeight + 60;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
      "viewBox=\"0 0 {0:g} {1:g}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height);
  svg += text_at(kLeft, 22, "start", title);
  const std::vector<Curve> ttft = {median, p99};
  svg += draw_panel("output tokens/s", kLeft, points, std::span(&throughput, 1));
  svg += draw_panel("time to the first token, ms", kLeft + kWidth + kGap, points, ttft);
  return svg + "</svg>\n";
}

}  // namespace halfbyte::tool
