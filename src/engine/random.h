// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_ENGINE_RANDOM_H_
#define HALFBYTE_ENGINE_RANDOM_H_

#include <array>
#include <cstdint>

namespace halfbyte {

/// Philox4x32-10: four random words from a counter and a key, without any state.
///
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// A number in [0, 1), a multiple of 2^-53, that depends on seed and position alone.
double uniform(std::uint64_t seed, std::uint64_t position);

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_RANDOM_H_
