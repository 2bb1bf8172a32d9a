// SPDX-License-Identifier: Apache-2.0
#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace halfbyte {
namespace {

// The pair whose wave turns `rotations` times over the original context.
double yarn_pair_of(const RopeConfig& config, double width, double rotations) {
  const double length = static_cast<double>(config.original_max_position_embeddings);
  return width * std::log(length / (2.0 * std::numbers::pi * rotations)) /
         (2.0 * std::log(config.theta));
}

struct Ramp {
  double low = 0.0;
  double high = 0.0;
  // 0: keep the frequency; 1: divide it by the factor.
  double at(std::int64_t pair) const {
    return std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
  }
};

Ramp yarn_ramp(const RopeConfig& config, double width) {
  const double beta_fast = config.beta_fast == 0.0 ? 32.0 : config.beta_fast;
  const double beta_slow = config.beta_slow == 0.0 ? 1.0 : config.beta_slow;
  Ramp ramp = {yarn_pair_of(config, width, beta_fast), yarn_pair_of(config, width, beta_slow)};
  if (config.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp.low = std::max(ramp.low, 0.0);
  ramp.high = std::min(ramp.high, width - 1.0);
  // Equal betas give an empty ramp (Kimi-K2): make it a step.
  if (ramp.low == ramp.high) ramp.high += 0.001;
  return ramp;
}

double yarn_attention_factor(const RopeConfig& config) {
  if (config.attention_factor) return *config.attention_factor;
  const double mscale = config.mscale.value_or(0.0);
  const double mscale_all_dim = config.mscale_all_dim.value_or(0.0);
  if (mscale != 0.0 && mscale_all_dim != 0.0) {
    return yarn_mscale(config.factor, mscale) / yarn_mscale(config.factor, mscale_all_dim);
  }
  return yarn_mscale(config.factor, 1.0);
}

}  // namespace

double yarn_mscale(double factor, double k) {
  return factor <= 1.0 ? 1.0 : 0.1 * k * std::log(factor) + 1.0;
}

RopeTable make_rope_table(const RopeConfig& config, std::int64_t width, bool interleaved) {
  const auto rotated =
      static_cast<std::int64_t>(static_cast<double>(width) * config.partial_rotary_factor);
  const double rotated_width = static_cast<double>(rotated);
  const bool yarn = config.type == RopeType::kYarn;
  const Ramp ramp = yarn ? yarn_ramp(config, rotated_width) : Ramp{0.0, 1.0};
  RopeTable table;
  table.interleaved = interleaved;
  if (yarn) table.attention_factor = static_cast<float>(yarn_attention_factor(config));
  for (std::int64_t pair = 0; pair < rotated / 2; ++pair) {
    double frequency = std::pow(config.theta, -2.0 * static_cast<double>(pair) / rotated_width);
    if (config.type == RopeType::kLinear) frequency /= config.factor;
    if (yarn) {
      const double scaled = ramp.at(pair);
      frequency = scaled * frequency / config.factor + (1.0 - scaled) * frequency;
    }
    table.inv_freq.push_back(static_cast<float>(frequency));
  }
  return table;
}

void fill_rope(const RopeTable& table,
               std::span<const std::int64_t> positions,
               float* cos,
               float* sin) {
  for (const std::int64_t position : positions) {
    for (const float inv_freq : table.inv_freq) {
      const float angle = static_cast<float>(position) * inv_freq;
      *cos++ = table.attention_factor * static_cast<float>(std::cos(static_cast<double>(angle)));
      *sin++ = table.attention_factor * static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

}  // namespace halfbyte
