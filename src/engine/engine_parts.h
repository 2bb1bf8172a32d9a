// SPDX-License-Identifier: Apache-2.0
//
// What an engine is made of once everything is loaded and decided.
#ifndef HALFBYTE_ENGINE_ENGINE_PARTS_H_
#define HALFBYTE_ENGINE_ENGINE_PARTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/transport.h"
#include "engine/scheduler.h"
#include "halfbyte/engine.h"
#include "model/model.h"

namespace halfbyte {

struct EngineParts {
  std::vector<std::unique_ptr<Model>> models;          // one per rank
  std::vector<std::unique_ptr<Transport>> transports;  // one per rank; none for a single rank
  int dp_size = 1;         // data-parallel attention: groups of ranks with requests of their own
  SchedulerLimits limits;  // of one data-parallel rank
  std::int64_t num_blocks = 0;       // of one rank's KV cache
  std::int64_t num_sampled_ids = 0;  // as EngineOptions'
  bool keeps_prefixes = true;        // of finished requests
  SchedulePolicy schedule_policy = SchedulePolicy::kLpm;
  EngineInfo info;
};

/// Starts an engine on parts from anywhere: Engine::create (load.cpp) ends here, and so do tests.
class EngineFactory {
 public:
  static std::unique_ptr<Engine> start(EngineParts parts);
};

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_ENGINE_PARTS_H_
