// SPDX-License-Identifier: Apache-2.0
#include "server/step_profile.h"

#include <cstddef>
#include <cstdint>
#include <numeric>

#include "engine/expert_load.h"
#include "server/expert_usage.h"

namespace halfbyte::server {
namespace {

std::int64_t total(const Histogram& histogram) {
  return std::reduce(histogram.counts.begin(), histogram.counts.end());
}

Json phase_json(const Histogram& begin, const Histogram& end) {
  return {{"steps", total(end) - total(begin)}, {"seconds", end.sum - begin.sum}};
}

Json layers_json(const EngineCounts& begin, const EngineCounts& end) {
  std::vector<ExpertLoad> load = end.load;
  for (std::size_t i = 0; i < load.size(); ++i) {
    subtract(begin.load[i].counters, load[i].counters);
  }
  return expert_load_json(load)["layers"];
}

}  // namespace

Json profile_json(const EngineCounts& begin, const EngineCounts& end) {
  const EngineHistograms& first = begin.histograms;
  const EngineHistograms& last = end.histograms;
  return {{"seconds", std::chrono::duration<double>(end.time - begin.time).count()},
          {"steps", end.stats.steps - begin.stats.steps},
          {"prefill_tokens", end.stats.prefill_tokens - begin.stats.prefill_tokens},
          {"decode_tokens", end.stats.decode_tokens - begin.stats.decode_tokens},
          {"cached_tokens", end.stats.cached_prompt_tokens - begin.stats.cached_prompt_tokens},
          {"preemptions", end.stats.preemptions - begin.stats.preemptions},
          {"phases",
           {{"prefill", phase_json(first.prefill_step_seconds, last.prefill_step_seconds)},
            {"decode", phase_json(first.decode_step_seconds, last.decode_step_seconds)},
            {"mixed", phase_json(first.mixed_step_seconds, last.mixed_step_seconds)}}},
          {"layers", layers_json(begin, end)}};
}

}  // namespace halfbyte::server
