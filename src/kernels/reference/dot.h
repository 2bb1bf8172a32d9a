// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_KERNELS_REFERENCE_DOT_H_
#define HALFBYTE_KERNELS_REFERENCE_DOT_H_

#include <cstdint>

namespace halfbyte::reference {

/// sum of a[i] * b[i] in fp64: each product is exact, the sum runs in ascending i.
inline double dot(const float* a, const float* b, std::int64_t size) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < size; ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

}  // namespace halfbyte::reference

#endif  // HALFBYTE_KERNELS_REFERENCE_DOT_H_
