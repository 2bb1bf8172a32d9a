// SPDX-License-Identifier: Apache-2.0
//
// What this machine can reach at most: reading memory, and multiplying int8. A speed is compared
// with them when all three are measured in the same run.
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_CEILINGS_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_CEILINGS_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/thread_pool.h"
#include "halfbyte/result.h"

namespace halfbyte::tool {

struct Ceilings {
  double read_gbps = 0.0;  // 10^9 bytes a second out of memory
  /// 10^9 multiplications and additions a second: on a CPU int8 x int8 into int32, on a CUDA device
  /// bf16 x bf16 into fp32.
  double multiply_gops = 0.0;
};

/// Measures both with a number of threads, some 0.1 s at a time. Each ceiling is the median of all
/// measurements so far (of the fastest way to read), as a speed that stands beside it is a median:
/// on a machine that others use too, both are of the same share of it.
class CeilingProbe {
 public:
  /// `bytes` are read in each pass: more than the caches hold. kOutOfMemory.
  static Result<std::unique_ptr<CeilingProbe>> create(std::int64_t bytes, int num_threads);
  virtual ~CeilingProbe() = default;

  virtual void measure() = 0;
  /// 0 before the first measurement.
  virtual Ceilings ceilings() const = 0;
  /// The instructions that multiply.
  virtual std::string_view isa() const = 0;
};

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_CEILINGS_H_
