// SPDX-License-Identifier: Apache-2.0
//
// The loops that ceilings are measured with: one translation unit per instruction set, each with
// its own flags, chosen from cpuid.
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_CEILING_LOOPS_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_CEILING_LOOPS_H_

#include <cstdint>

namespace halfbyte::tool {

/// Reads `bytes` (a multiple of 1024) at `data` once; the result keeps a compiler from skipping it.
using ReadLoop = std::int64_t (*)(const std::int64_t* data, std::int64_t bytes);
std::int64_t read_portable(const std::int64_t* data, std::int64_t bytes);
std::int64_t read_avx2(const std::int64_t* data, std::int64_t bytes);
std::int64_t read_avx2_4_streams(const std::int64_t* data, std::int64_t bytes);
std::int64_t read_avx2_prefetch(const std::int64_t* data, std::int64_t bytes);

/// Multiplies int8 as fast as it can `steps` times over and adds the products up; each step is so
/// many operations (a multiplication and an addition are two).
using MultiplyLoop = std::int64_t (*)(std::int64_t steps);
inline constexpr std::int64_t kPortableStepOperations = 2 * 64;
inline constexpr std::int64_t kAvx2StepOperations = 2 * 10 * 32;
inline constexpr std::int64_t kAvxVnniStepOperations = 2 * 12 * 32;
inline constexpr std::int64_t kAvx512VnniStepOperations = 2 * 24 * 64;
inline constexpr std::int64_t kAmxStepOperations = 2 * 4 * 16 * 16 * 64;
std::int64_t multiply_portable(std::int64_t steps);
std::int64_t multiply_avx2(std::int64_t steps);
std::int64_t multiply_avx_vnni(std::int64_t steps);
std::int64_t multiply_avx512_vnni(std::int64_t steps);
std::int64_t multiply_amx(std::int64_t steps);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_CEILING_LOOPS_H_
