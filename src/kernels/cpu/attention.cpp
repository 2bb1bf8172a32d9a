// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention.h"

#include "base/checked.h"
#include "kernels/cpu/kernel_table.h"

namespace halfbyte::cpu {
namespace {

bool has_avx2() {
  static const bool has = missing_feature(kAvx2Kernels).empty();
  return has;
}

}  // namespace

std::int64_t attend_scratch_floats(std::int64_t num_queries,
                                   std::int64_t num_keys,
                                   std::int64_t block_tokens,
                                   std::int64_t row_width) {
  constexpr std::int64_t kWidestVector = 8;
  return num_queries * round_up(num_keys, kWidestVector) + block_tokens * row_width;
}

void attend(const AttendTask& task, float* scratch) {
  has_avx2() ? attend_avx2(task, scratch) : attend_portable(task, scratch);
}

void head_linear(const HeadMatrix& matrix, const float* x, float* y) {
  has_avx2() ? head_linear_avx2(matrix, x, y) : head_linear_portable(matrix, x, y);
}

}  // namespace halfbyte::cpu
