// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_STATISTICS_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_STATISTICS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::tool {

/// Of a sample; all 0 when it is empty.
struct Summary {
  double mean = 0.0;
  double median = 0.0;
  double p90 = 0.0;
  double p99 = 0.0;
  double std = 0.0;  // of the population
};

/// Percentiles between two values are interpolated linearly, as numpy does by default.
Summary summarize(std::vector<double> values);
double median(std::vector<double> values);
nlohmann::ordered_json to_json(const Summary& summary);
/// A table of summaries: its header and a line, each with its newline.
std::string summary_header(std::string_view unit);
std::string summary_row(std::string_view name, const Summary& summary);

/// To five digits, which is more than a timing has.
double rounded(double value);

struct Interval {
  double begin = 0.0;
  double end = 0.0;
};

/// The length of what the intervals cover together.
double covered_length(std::vector<Interval> intervals);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_STATISTICS_H_
