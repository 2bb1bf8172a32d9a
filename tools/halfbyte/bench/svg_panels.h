// SPDX-License-Identifier: Apache-2.0
//
// Curves over a few named points, side by side, as an SVG.
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_SVG_PANELS_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_SVG_PANELS_H_

#include <span>
#include <string>
#include <vector>

namespace halfbyte::tool {

struct PlotCurve {
  std::string name;
  std::string color;           // "#1f6feb"
  std::vector<double> values;  // one a point; NaN: none there
};

struct PlotPanel {
  std::string title;
  std::vector<PlotCurve> curves;
  bool logarithmic = false;  // powers of ten; else from 0
};

/// The panels over the same points, which are spread evenly, in their order.
std::string draw_panels(const std::string& title,
                        const std::string& axis_name,
                        std::span<const std::string> points,
                        std::span<const PlotPanel> panels);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_SVG_PANELS_H_
