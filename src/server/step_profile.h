// SPDX-License-Identifier: Apache-2.0
//
// What the engine does between /start_profile and /stop_profile.
#ifndef HALFBYTE_SERVER_STEP_PROFILE_H_
#define HALFBYTE_SERVER_STEP_PROFILE_H_

#include <chrono>
#include <vector>

#include "halfbyte/engine.h"
#include "server/json.h"

namespace halfbyte::server {

/// What an engine has counted since its start.
struct EngineCounts {
  std::chrono::steady_clock::time_point time = {};
  EngineStats stats = {};
  EngineHistograms histograms = {};
  std::vector<ExpertLoad> load = {};
};

/// {seconds, steps, tokens of each kind, preemptions, phases: {PHASE: {steps, seconds}}, layers};
/// `layers` as /expert_load has them. `end` is later, and of the same engine.
Json profile_json(const EngineCounts& begin, const EngineCounts& end);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_STEP_PROFILE_H_
