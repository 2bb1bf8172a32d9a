// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention.h"

#include "base/checked.h"
#include "kernels/cpu/kernel_table.h"

namespace halfbyte::cpu {
std::int64_t attend_scratch_floats(std::int64_t num_queries,
                                   std::int64_t num_keys,
                                   std::int64_t block_tokens,
                                   std::int64_t row_width) {
  constexpr std::int64_t kWidestVector = 8;
  return num_queries * round_up(num_keys, kWidestVector) + block_tokens * row_width;
}

void attend(const AttendTask& task, float* scratch) {
  best_kernel_table().attend(task, scratch);
}

void head_linear(const HeadMatrix& matrix, const float* x, float* y) {
  best_kernel_table().head_linear(matrix, x, y);
}

}  // namespace halfbyte::cpu
