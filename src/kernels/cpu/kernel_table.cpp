// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/kernel_table.h"

#include <array>

namespace halfbyte::cpu {
namespace {

constexpr std::array kTables = {&kAvx2Kernels, &kPortableKernels};

}  // namespace

std::span<const KernelTable* const> list_kernel_tables() {
  return kTables;
}

// The compiler's cpu model asks cpuid and, through xgetbv, whether the system saves the registers.
std::string_view missing_feature(const KernelTable& table) {
  if (&table == &kPortableKernels) return {};
  if (!__builtin_cpu_supports("avx2")) return "no avx2";
  if (!__builtin_cpu_supports("fma")) return "no fma";
  if (!__builtin_cpu_supports("f16c")) return "no f16c";
  return {};
}

const KernelTable& best_kernel_table() {
  for (const KernelTable* table : kTables) {
    if (missing_feature(*table).empty()) return *table;
  }
  return kPortableKernels;
}

}  // namespace halfbyte::cpu
