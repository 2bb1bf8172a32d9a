// SPDX-License-Identifier: Apache-2.0
#include "bench_serve/goodput.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace halfbyte::tool {
namespace {

double* limit_named(GoodputLimits& limits, const std::string& name) {
  if (name == "ttft") return &limits.ttft_ms;
  if (name == "tpot") return &limits.tpot_ms;
  return name == "e2e" ? &limits.e2e_ms : nullptr;
}

}  // namespace

Result<GoodputLimits> parse_goodput(std::span<const std::string> limits) {
  GoodputLimits parsed;
  for (const std::string& text : limits) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    double* limit = limit_named(parsed, text.substr(0, colon));
    const std::string number = text.substr(std::min(colon + 1, text.size()));
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    if (limit == nullptr || number.empty() || *end != '\0' || !std::isfinite(value) || value <= 0) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("--goodput \"{}\": want ttft:MS, tpot:MS or e2e:MS", text));
    }
    *limit = value;
  }
  return parsed;
}

}  // namespace halfbyte::tool
