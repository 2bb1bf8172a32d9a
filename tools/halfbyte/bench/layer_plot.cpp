// SPDX-License-Identifier: Apache-2.0
#include "bench/layer_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "bench/svg_panels.h"

namespace halfbyte::tool {
namespace {

constexpr std::array kColors = {"#1f6feb", "#cf222e", "#1a7f37", "#9a6700",
                                "#8250df", "#bf3989", "#57606a", "#0a7ea4"};

struct Point {
  std::string curve;
  std::int64_t num_tokens = 0;
  double us = 0.0;
  double percent = 0.0;
};

Result<Point> parse_point(std::string_view line, std::int64_t number) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  const auto has = [&json](const char* key, bool text) {
    const auto found = json.find(key);
    return found != json.end() && (text ? found->is_string() : found->is_number());
  };
  if (!json.is_object() || !has("shape", true) || !has("mode", true) || !has("backend", true) ||
      !has("tokens", false) || !has("ms", false) || !has("percent_of_limit", false)) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("line {}: want a row of `halfbyte bench layer --json`, got \"{}\"",
                              number, line.substr(0, 60)));
  }
  return Point{fmt::format("{}, {} on {}", json["shape"].get<std::string>(),
                           json["mode"].get<std::string>(), json["backend"].get<std::string>()),
               json["tokens"].get<std::int64_t>(), 1e3 * json["ms"].get<double>(),
               json["percent_of_limit"].get<double>()};
}

Result<std::vector<Point>> parse_points(std::string_view lines) {
  std::vector<Point> points;
  for (std::int64_t number = 1; !lines.empty(); ++number) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.empty()) continue;
    HALFBYTE_ASSIGN_OR_RETURN(Point point, parse_point(line, number));
    points.push_back(std::move(point));
  }
  if (points.empty()) return Status(StatusCode::kCorruptData, "there is no row");
  return points;
}

// The same curves in both panels; of several rows for one place the last.
std::array<PlotPanel, 2> make_panels(const std::vector<Point>& points,
                                     const std::set<std::int64_t>& tokens) {
  std::array panels = {PlotPanel{"microseconds of a step", {}, true},
                       PlotPanel{"percent of the memory's or the product's speed", {}, false}};
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::map<std::string, std::size_t> curve_idx;
  for (const Point& point : points) {
    const auto [known, added] = curve_idx.emplace(point.curve, curve_idx.size());
    const std::size_t idx = known->second;
    for (PlotPanel& panel : panels) {
      if (added)
        panel.curves.push_back({point.curve, kColors[idx % kColors.size()],
                                std::vector<double>(tokens.size(), kNone)});
    }
    const auto place =
        static_cast<std::size_t>(std::distance(tokens.begin(), tokens.find(point.num_tokens)));
    panels[0].curves[idx].values[place] = point.us;
    panels[1].curves[idx].values[place] = point.percent;
  }
  return panels;
}

}  // namespace

Result<std::string> plot_layers(const std::string& title, std::string_view lines) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::vector<Point> points, parse_points(lines));
  std::set<std::int64_t> tokens;
  for (const Point& point : points)
    tokens.insert(point.num_tokens);
  std::vector<std::string> names;
  names.reserve(tokens.size());
  for (const std::int64_t count : tokens)
    names.push_back(std::to_string(count));
  return draw_panels(title, "tokens of a step", names, make_panels(points, tokens));
}

}  // namespace halfbyte::tool
