// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>

namespace halfbyte::tool {
namespace {

double percentile(const std::vector<double>& sorted, double fraction) {
  if (sorted.empty()) return 0.0;
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - std::floor(place)) * (sorted[above] - sorted[below]);
}

double mean_of(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return values.empty() ? 0.0 : sum / static_cast<double>(values.size());
}

}  // namespace

Summary summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  Summary summary;
  summary.mean = mean_of(values);
  summary.median = percentile(values, 0.5);
  summary.p90 = percentile(values, 0.9);
  summary.p99 = percentile(values, 0.99);
  for (double& value : values)
    value = (value - summary.mean) * (value - summary.mean);
  summary.std = std::sqrt(mean_of(values));
  return summary;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return percentile(values, 0.5);
}

nlohmann::ordered_json to_json(const Summary& summary) {
  return {{"mean", rounded(summary.mean)},
          {"median", rounded(summary.median)},
          {"p90", rounded(summary.p90)},
          {"p99", rounded(summary.p99)},
          {"std", rounded(summary.std)}};
}

std::string summary_header(std::string_view unit) {
  return fmt::format("  {:<5} {:>10} {:>10} {:>10} {:>10} {:>10}\n", unit, "mean", "median", "p90",
                     "p99", "std");
}

std::string summary_row(std::string_view name, const Summary& summary) {
  return fmt::format("  {:<5} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f}\n", name,
                     summary.mean, summary.median, summary.p90, summary.p99, summary.std);
}

// Through the text with five digits: it parses back to the number that prints shortest.
double rounded(double value) {
  return std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr);
}

double covered_length(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  double length = 0.0;
  double covered_to = intervals.empty() ? 0.0 : intervals.front().begin;
  for (const Interval& interval : intervals) {
    length += std::max(0.0, interval.end - std::max(interval.begin, covered_to));
    covered_to = std::max(covered_to, interval.end);
  }
  return length;
}

}  // namespace halfbyte::tool
