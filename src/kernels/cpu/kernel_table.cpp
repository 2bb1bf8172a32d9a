// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/kernel_table.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <vector>

#include "kernels/cpu/activation_avx2.h"

namespace halfbyte::cpu {
namespace {

// AMX comes after what every machine can run: it was slower than AVX-512 (docs/performance.md).
constexpr std::array kTables = {&kAvx512Kernels, &kAvxVnniKernels, &kAvx2Kernels, &kPortableKernels,
                                &kAmxKernels};

std::atomic<const KernelTable*> forced_table = nullptr;

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

// Tiles: leaf 7, bits 24 and 25 of edx. They are 8 KiB a thread, which the system saves for who
// asked for it.
std::string_view missing_for_amx() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx >> 24 & 1U) == 0)
    return "no amx_tile";
  if ((edx >> 25 & 1U) == 0) return "no amx_int8";
  static const bool permitted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return permitted ? missing_for_avx512() : "amx_tile not permitted by the system";
}

// AVX2 for everything but the products of bytes.
constexpr KernelTable avx2_with(std::string_view name,
                                Split15Dot split15_dot,
                                Int8Dot int8_dot,
                                int row_tile = kMaxRowTile) {
  return {.name = name,
          .panel_dot = panel_dot_avx2,
          .panel_streams_dot = panel_streams_dot_avx2,
          .activate = activate_avx2,
          .split15_dot = split15_dot,
          .int8_dot = int8_dot,
          .row_tile = row_tile,
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
constinit const KernelTable kAmxKernels = avx2_with("amx", split15_dot_amx, int8_dot_amx, 32);

std::span<const KernelTable* const> list_kernel_tables() {
  return kTables;
}

std::string_view missing_feature(const KernelTable& table) {
  if (&table == &kAmxKernels) return missing_for_amx();
  if (&table == &kAvx512Kernels) return missing_for_avx512();
  if (&table == &kAvxVnniKernels) return missing_for_avx_vnni();
  return &table == &kAvx2Kernels ? missing_for_avx2() : std::string_view{};
}

// Asked in every step: cpuid takes microseconds on a virtual machine.
const KernelTable& best_kernel_table() {
  static const KernelTable& best = find_best_table();
  const KernelTable* forced = forced_table.load(std::memory_order_relaxed);
  return forced != nullptr ? *forced : best;
}

bool kernel_table_is_forced() {
  return forced_table.load(std::memory_order_relaxed) != nullptr;
}

Status force_kernel_table(std::string_view name) {
  if (name == "auto") {
    forced_table = nullptr;
    return {};
  }
  std::vector<std::string_view> names = {"auto"};
  for (const KernelTable* table : kTables) {
    names.push_back(table->name);
    if (table->name != name) continue;
    const std::string_view missing = missing_feature(*table);
    if (!missing.empty())
      return {StatusCode::kUnsupported, fmt::format("{}: this machine has {}", name, missing)};
    forced_table = table;
    return {};
  }
  return {StatusCode::kInvalidArgument,
          fmt::format("\"{}\" is not one of {}", name, fmt::join(names, ", "))};
}

}  // namespace halfbyte::cpu
