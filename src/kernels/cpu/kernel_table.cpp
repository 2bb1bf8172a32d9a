// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/kernel_table.h"

#include <cpuid.h>

#include <array>
#include <cmath>

#include "kernels/cpu/activation_avx2.h"

namespace halfbyte::cpu {
namespace {

constexpr std::array kTables = {&kAvx512Kernels, &kAvxVnniKernels, &kAvx2Kernels,
                                &kPortableKernels};

void add_weighted_portable(
    float weight, const float* row, std::int64_t count, bool first, float* acc) {
  for (std::int64_t i = 0; i < count; ++i)
    acc[i] = first ? weight * row[i] : std::fma(weight, row[i], acc[i]);
}

// The compiler's cpu model asks cpuid and, through xgetbv, whether the system saves the registers.
std::string_view missing_for_avx2() {
  if (!__builtin_cpu_supports("avx2")) return "no avx2";
  if (!__builtin_cpu_supports("fma")) return "no fma";
  if (!__builtin_cpu_supports("f16c")) return "no f16c";
  return {};
}

// VEX-coded VNNI: leaf 7, subleaf 1, bit 4 of eax. It uses the registers of AVX2.
std::string_view missing_for_avx_vnni() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  const bool known = __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0;
  return known && (eax & 1U << 4) != 0 ? missing_for_avx2() : "no avx_vnni";
}

std::string_view missing_for_avx512() {
  if (!__builtin_cpu_supports("avx512f")) return "no avx512f";
  if (!__builtin_cpu_supports("avx512bw")) return "no avx512bw";
  if (!__builtin_cpu_supports("avx512dq")) return "no avx512dq";
  if (!__builtin_cpu_supports("avx512vl")) return "no avx512vl";
  if (!__builtin_cpu_supports("avx512vnni")) return "no avx512_vnni";
  if (!__builtin_cpu_supports("avx512vbmi")) return "no avx512_vbmi";
  return missing_for_avx2();
}

// AVX2 for everything but the products of bytes.
constexpr KernelTable avx2_with(std::string_view name, Split15Dot split15_dot, Int8Dot int8_dot) {
  return {.name = name,
          .panel_dot = panel_dot_avx2,
          .panel_streams_dot = panel_streams_dot_avx2,
          .activate = activate_avx2,
          .split15_dot = split15_dot,
          .int8_dot = int8_dot,
          .quantize_split15 = quantize_split15_avx2,
          .quantize_int8 = quantize_int8_avx2,
          .quantize_nvfp4 = quantize_nvfp4_avx2,
          .add_weighted = add_weighted_avx2,
          .attend = attend_avx2,
          .head_linear = head_linear_avx2};
}

const KernelTable& find_best_table() {
  for (const KernelTable* table : kTables) {
    if (missing_feature(*table).empty()) return *table;
  }
  return kPortableKernels;
}

}  // namespace

constinit const KernelTable kPortableKernels = {.name = "portable",
                                                .panel_dot = panel_dot_portable,
                                                .split15_dot = split15_dot_portable,
                                                .int8_dot = int8_dot_portable,
                                                .quantize_split15 = quantize_split15,
                                                .quantize_int8 = quantize_int8,
                                                .quantize_nvfp4 = quantize_nvfp4,
                                                .add_weighted = add_weighted_portable,
                                                .attend = attend_portable,
                                                .head_linear = head_linear_portable};
constinit const KernelTable kAvx2Kernels = avx2_with("avx2", split15_dot_avx2, int8_dot_avx2);
constinit const KernelTable kAvxVnniKernels =
    avx2_with("avx_vnni", split15_dot_avx_vnni, int8_dot_avx_vnni);
constinit const KernelTable kAvx512Kernels =
    avx2_with("avx512", split15_dot_avx512, int8_dot_avx512);

std::span<const KernelTable* const> list_kernel_tables() {
  return kTables;
}

std::string_view missing_feature(const KernelTable& table) {
  if (&table == &kAvx512Kernels) return missing_for_avx512();
  if (&table == &kAvxVnniKernels) return missing_for_avx_vnni();
  return &table == &kAvx2Kernels ? missing_for_avx2() : std::string_view{};
}

// Asked in every step: cpuid takes microseconds on a virtual machine.
const KernelTable& best_kernel_table() {
  static const KernelTable& best = find_best_table();
  return best;
}

}  // namespace halfbyte::cpu
