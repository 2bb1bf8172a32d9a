// SPDX-License-Identifier: Apache-2.0
//
// What was measured in this process, and in earlier ones that kept it in a cache directory.
#ifndef HALFBYTE_MOE_TUNING_MEMORY_H_
#define HALFBYTE_MOE_TUNING_MEMORY_H_

#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "base/log.h"
#include "moe/plan.h"
#include "moe/tuning.h"

namespace halfbyte {

/// Thread rule: any thread. One of them measures at a time: two that time one device at once
/// measure each other.
class TuningMemory {
 public:
  using Measure = std::function<Result<TuningTable>()>;

  /// The table of this key: of this process, else of `cache_directory` (empty: none), else what
  /// `measure` gives, which is kept in both. A file that cannot be used or written is a notice,
  /// never an error. Errors: those of `measure`; nothing is kept then.
  Result<TuningTable> recall_or_measure(const TuningKey& key,
                                        const std::string& cache_directory,
                                        std::span<const TacticList> lists,
                                        const Measure& measure,
                                        NoticeSink& notices);

 private:
  std::mutex mutex_;
  std::map<TuningKey, TuningTable> tables_;
};

/// Everything that the tactics of a plan's steps depend on: nvfp4-moe 12.6. Pure.
TuningKey tuning_key(const MoePlan& plan,
                     std::string_view device_name,
                     std::string_view driver_version,
                     std::span<const TacticList> lists);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_TUNING_MEMORY_H_
