// SPDX-License-Identifier: Apache-2.0
#include "bench/svg_panels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace halfbyte::tool {
namespace {

constexpr double kWidth = 360, kHeight = 240;        // of a panel's axes
constexpr double kLeft = 70, kTop = 60, kGap = 110;  // around them
constexpr int kNumTicks = 4;

// Where values stand on a panel, from its lower end to its upper one.
struct Scale {
  double low = 0.0;
  double high = 1.0;
  bool logarithmic = false;

  double y(double value) const {
    const double part = logarithmic ? std::log10(value / low) / std::log10(high / low)
                                    : (value - low) / (high - low);
    return kTop + kHeight * (1.0 - part);
  }
  std::vector<double> ticks() const {
    std::vector<double> values;
    if (logarithmic) {
      for (double value = low; value < 1.5 * high; value *= 10.0)
        values.push_back(value);
      return values;
    }
    for (int tick = 0; tick <= kNumTicks; ++tick)
      values.push_back(high * tick / kNumTicks);
    return values;
  }
};

struct Place {
  double left = 0.0;
  std::size_t num_points = 1;

  double x(std::size_t i) const {
    const auto steps = static_cast<double>(std::max<std::size_t>(num_points, 2) - 1);
    return left + kWidth * static_cast<double>(i) / steps;
  }
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

// Of what is above 0.
struct ValueRange {
  double smallest = std::numeric_limits<double>::infinity();
  double largest = 0.0;
};

ValueRange range_of(const PlotPanel& panel) {
  ValueRange range;
  for (const PlotCurve& curve : panel.curves) {
    for (const double value : curve.values) {
      if (!(value > 0.0)) continue;
      range.smallest = std::min(range.smallest, value);
      range.largest = std::max(range.largest, value);
    }
  }
  return range;
}

double power_of_ten_below(double value) {
  return std::pow(10.0, std::floor(std::log10(value)));
}

// 1, 2 or 5 times a power of ten, not below the largest value.
double round_top(double largest) {
  const double power = power_of_ten_below(largest);
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (largest <= factor * power) return factor * power;
  }
  return 10.0 * power;
}

Scale scale_of(const PlotPanel& panel) {
  const ValueRange range = range_of(panel);
  if (!(range.largest > 0.0)) return {};
  if (!panel.logarithmic) return {0.0, round_top(range.largest), false};
  return {power_of_ten_below(range.smallest), 10.0 * power_of_ten_below(range.largest), true};
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

std::string draw_axes(const Place& place,
                      const Scale& scale,
                      const std::string& axis_name,
                      std::span<const std::string> points) {
  std::string svg;
  for (const double value : scale.ticks()) {
    svg += line(place.left, scale.y(value), place.left + kWidth, scale.y(value));
    svg += text_at(place.left - 6, scale.y(value) + 4, "end", fmt::format("{:g}", value));
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    svg += line(place.x(i), kTop, place.x(i), kTop + kHeight);
    svg += text_at(place.x(i), kTop + kHeight + 18, "middle", points[i]);
  }
  return svg + text_at(place.left + kWidth / 2, kTop + kHeight + 38, "middle", axis_name);
}

std::string draw_curve(const Place& place, const Scale& scale, const PlotCurve& curve) {
  std::string path, dots;
  for (std::size_t i = 0; i < curve.values.size(); ++i) {
    if (std::isnan(curve.values[i])) continue;
    const double x = place.x(i), y = scale.y(curve.values[i]);
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x, y);
    dots += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{:g}</title></circle>\n", x,
        y, curve.color, curve.values[i]);
  }
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                     path, curve.color) +
         dots;
}

std::string draw_panel(const PlotPanel& panel,
                       const Place& place,
                       const std::string& axis_name,
                       std::span<const std::string> points) {
  const Scale scale = scale_of(panel);
  std::string svg = text_at(place.left + kWidth / 2, kTop - 12, "middle", panel.title) +
                    draw_axes(place, scale, axis_name, points);
  double legend_y = kTop + 16;
  for (const PlotCurve& curve : panel.curves) {
    svg += draw_curve(place, scale, curve);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n", place.left + 10,
                       legend_y, curve.color, escaped(curve.name));
    legend_y += 16;
  }
  return svg;
}

}  // namespace

std::string draw_panels(const std::string& title,
                        const std::string& axis_name,
                        std::span<const std::string> points,
                        std::span<const PlotPanel> panels) {
  const auto gaps = static_cast<double>(panels.empty() ? 0 : panels.size() - 1);
  const double width = kLeft + static_cast<double>(panels.size()) * kWidth + gaps * kGap + 30;
  const double height = kTop + kHeight + 60;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
      "viewBox=\"0 0 {0:g} {1:g}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height);
  svg += text_at(kLeft, 22, "start", title);
  Place place = {kLeft, points.size()};
  for (const PlotPanel& panel : panels) {
    svg += draw_panel(panel, place, axis_name, points);
    place.left += kWidth + kGap;
  }
  return svg + "</svg>\n";
}

}  // namespace halfbyte::tool
