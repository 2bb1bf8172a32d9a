// SPDX-License-Identifier: Apache-2.0
//
// What one instruction set provides. Each is one translation unit (kernels_<isa>.cpp) compiled with
// its own flags; which one runs is decided once, from cpuid.
#ifndef HALFBYTE_KERNELS_CPU_KERNEL_TABLE_H_
#define HALFBYTE_KERNELS_CPU_KERNEL_TABLE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "halfbyte/moe.h"
#include "halfbyte/status.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/integer_kernels.h"

namespace halfbyte::cpu {

/// Rows of x that one pass over a panel serves.
inline constexpr int kTokenTile = 4;

/// Rows of x that pass a panel together, at most: the rows of an expert of 512 tokens when each
/// token has 8 of 128, 32 give or take, hardly ever need a second pass.
inline constexpr int kMaxRowTile = 48;

/// Panels that few rows of x pass together, where a machine reads several places of memory faster
/// than one.
inline constexpr int kPanelStreams = 4;

/// One panel (panel_layout.h).
struct PanelView {
  WeightFormat format = WeightFormat::kNvfp4;
  const std::uint8_t* data = nullptr;
  std::int64_t cols = 0;
  std::int64_t scale_block_cols = 0;  // kFp8
};

/// sums[t][0..15] = dot(x[t], row of the panel), block scales applied, without a global scale;
/// 1 <= num_x <= kTokenTile. Per element: 8 products are summed in column order, the sum times its
/// scale is added to a running total. The order depends on cols alone.
using PanelDot = void (*)(const PanelView& panel, const float* const* x, int num_x, float* sums);
void panel_dot_portable(const PanelView& panel, const float* const* x, int num_x, float* sums);
void panel_dot_avx2(const PanelView& panel, const float* const* x, int num_x, float* sums);

/// sums[p][t][0..15] of num_x rows of x and kPanelStreams panels, `panel_bytes` apart: the bits of
/// PanelDot. Not kNvfp4, whose panels in fp32 wait for their decoding.
using PanelStreamsDot = void (*)(const PanelView& first,
                                 std::int64_t panel_bytes,
                                 const float* const* x,
                                 int num_x,
                                 float* sums);
void panel_streams_dot_avx2(const PanelView& first,
                            std::int64_t panel_bytes,
                            const float* const* x,
                            int num_x,
                            float* sums);

/// h[i] = activation(g[i], u[i]) with the bits of reference::activate. g may be null (not gated);
/// count is a multiple of 8.
using Activate = void (*)(
    const ActivationSpec& spec, const float* g, const float* u, std::int64_t count, float* h);

/// acc[i] = first ? RN(weight * row[i]) : fma(weight, row[i], acc[i]): one leaf of the combine tree
/// (docs/numerics.md 7), the bits of reference::combine_token. Any count.
using AddWeighted =
    void (*)(float weight, const float* row, std::int64_t count, bool first, float* acc);

struct KernelTable {
  std::string_view name;
  PanelDot panel_dot = nullptr;
  PanelStreamsDot panel_streams_dot = nullptr;  // null: the caller takes one panel at a time
  Activate activate = nullptr;  // null: the caller uses the reference, element by element
  Split15Dot split15_dot = nullptr;
  Int8Dot int8_dot = nullptr;
  int row_tile = 8;  // rows of x that these two gain from at a time, up to kMaxRowTile
  void (*quantize_split15)(const float* x, std::int64_t cols, Split15Record* row) = nullptr;
  void (*quantize_int8)(const float* x, std::int64_t cols, Int8Record* row) = nullptr;
  void (*quantize_nvfp4)(const float* x, std::int64_t cols, float s, Int8Record* row) = nullptr;
  AddWeighted add_weighted = nullptr;
  void (*attend)(const AttendTask& task, float* scratch) = nullptr;
  void (*head_linear)(const HeadMatrix& matrix, const float* x, float* y) = nullptr;
};

extern const KernelTable kPortableKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvxVnniKernels;  // AVX2 with VEX-coded VNNI
extern const KernelTable kAvx512Kernels;   // AVX-512 with VNNI and VBMI
extern const KernelTable kAmxKernels;      // the same with AMX-INT8, only when forced

/// Every table of this build: those that a machine chooses from, best first, then those that only
/// force_kernel_table() gives.
std::span<const KernelTable* const> list_kernel_tables();
/// Why this machine cannot run `table`: "no avx512_vbmi"; empty when it can.
std::string_view missing_feature(const KernelTable& table);
/// What runs here: the table that was forced, or the first of the automatic ones that this machine
/// can run. Thread rule: any thread.
const KernelTable& best_kernel_table();

/// Makes best_kernel_table() the table of that name, or with "auto" the machine's choice; for a
/// process that has not computed yet. kUnsupported with what the machine lacks,
/// kInvalidArgument with the names there are.
Status force_kernel_table(std::string_view name);
/// Whether best_kernel_table() is a forced one.
bool kernel_table_is_forced();

}  // namespace halfbyte::cpu

#endif  // HALFBYTE_KERNELS_CPU_KERNEL_TABLE_H_
