// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_kernel.h"

namespace halfbyte::cpu {

void attend_avx2(const AttendTask& task, float* scratch) {
  attend_with_lanes(task, scratch);
}

void head_linear_avx2(const HeadMatrix& matrix, const float* x, float* y) {
  head_linear_with_lanes(matrix, x, y);
}

}  // namespace halfbyte::cpu
