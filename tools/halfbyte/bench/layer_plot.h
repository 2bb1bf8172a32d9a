// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_LAYER_PLOT_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_LAYER_PLOT_H_

#include <string>
#include <string_view>

#include "halfbyte/result.h"

namespace halfbyte::tool {

/// The lines of `halfbyte bench layer --json` as an SVG: time, and share of the limit, over tokens;
/// a curve for each shape, mode and backend. kCorruptData names the first line that is none.
Result<std::string> plot_layers(const std::string& title, std::string_view lines);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_LAYER_PLOT_H_
