// SPDX-License-Identifier: Apache-2.0
#include "formats/sm100_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "formats/e4m3.h"
#include "formats/nvfp4.h"
#include "formats/pack.h"

namespace halfbyte {
namespace {

using Bytes = std::vector<std::uint8_t>;

void append(std::span<const std::uint8_t> bytes, Bytes& dst) {
  dst.insert(dst.end(), bytes.begin(), bytes.end());
}

/// Appends the block scales times own / max; returns how many of them E4M3 cannot hold.
std::int64_t append_rescaled(const CanonicalMatrix& matrix, float max, Bytes& dst) {
  std::int64_t num_inexact = 0;
  for (const std::uint8_t byte : matrix.block_scale) {
    // 4 significant bits times 24: both products below are exact in fp64.
    const double wanted =
        static_cast<double>(e4m3_to_f32(byte)) * static_cast<double>(matrix.global_scale);
    const std::uint8_t rounded = f32_to_e4m3(static_cast<float>(wanted / static_cast<double>(max)));
    if (static_cast<double>(e4m3_to_f32(rounded)) * static_cast<double>(max) != wanted)
      ++num_inexact;
    dst.push_back(rounded);
  }
  return num_inexact;
}

Status check_matrix(const CanonicalMatrix& matrix,
                    const char* name,
                    std::int64_t rows,
                    std::int64_t cols) {
  if (matrix.format != WeightFormat::kNvfp4) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{}: only NVFP4 weights have this form", name));
  }
  const auto count = static_cast<std::size_t>(rows * cols);
  if (matrix.rows != rows || matrix.cols != cols || matrix.codes.size() != count / 2 ||
      matrix.block_scale.size() != count / kNvfp4BlockSize) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("{}: got {} x {} with {} code bytes and {} block scales, want {} x {}", name,
                    matrix.rows, matrix.cols, matrix.codes.size(), matrix.block_scale.size(), rows,
                    cols));
  }
  return {};
}

template <typename Tensors>
Status check_set(const Sm100Layouts& layouts, std::int64_t expert_idx, const Tensors& set) {
  const std::int64_t num_experts = layouts.gate_up.shape.num_experts;
  if (expert_idx < 0 || expert_idx >= num_experts) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("expert {}, want 0 to {}", expert_idx, num_experts - 1));
  }
  const auto check = [](const char* name, std::size_t got, std::int64_t want) {
    if (got == static_cast<std::size_t>(want)) return Status();
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}: got {} elements, want {}", name, got, want));
  };
  HALFBYTE_RETURN_IF_ERROR(
      check("gate_up_codes", set.gate_up_codes.size(), layouts.gate_up.code_bytes()));
  HALFBYTE_RETURN_IF_ERROR(
      check("gate_up_block_scale", set.gate_up_block_scale.size(), layouts.gate_up.scale_bytes()));
  HALFBYTE_RETURN_IF_ERROR(check("down_codes", set.down_codes.size(), layouts.down.code_bytes()));
  HALFBYTE_RETURN_IF_ERROR(
      check("down_block_scale", set.down_block_scale.size(), layouts.down.scale_bytes()));
  HALFBYTE_RETURN_IF_ERROR(check("gate_up_alpha", set.gate_up_alpha.size(), num_experts));
  return check("down_alpha", set.down_alpha.size(), num_experts);
}

Status check_expert(const Sm100Layouts& layouts, const CanonicalExpert& expert) {
  const WeightShape& gate_up = layouts.gate_up.shape;
  if (gate_up.num_halves == 2)
    HALFBYTE_RETURN_IF_ERROR(check_matrix(expert.gate, "gate", gate_up.half_rows, gate_up.cols));
  HALFBYTE_RETURN_IF_ERROR(check_matrix(expert.up, "up", gate_up.half_rows, gate_up.cols));
  return check_matrix(expert.down, "down", gate_up.cols, gate_up.half_rows);
}

CanonicalMatrix view_rows(const Bytes& codes,
                          const Bytes& block_scale,
                          std::int64_t first_row,
                          std::int64_t rows,
                          std::int64_t cols) {
  CanonicalMatrix matrix;
  matrix.rows = rows;
  matrix.cols = cols;
  const auto slice = [first_row, rows](const Bytes& bytes, std::int64_t row_bytes) {
    return std::span<const std::uint8_t>(bytes).subspan(
        static_cast<std::size_t>(first_row * row_bytes),
        static_cast<std::size_t>(rows * row_bytes));
  };
  matrix.codes = slice(codes, cols / 2);
  matrix.block_scale = slice(block_scale, cols / kNvfp4BlockSize);
  return matrix;
}

Bytes zeros(std::int64_t size) {
  return Bytes(static_cast<std::size_t>(size));
}

}  // namespace

Result<Sm100Layouts> make_sm100_layouts(std::int64_t num_experts,
                                        std::int64_t hidden_size,
                                        std::int64_t intermediate_size,
                                        bool gated) {
  const DataLayout rows =
      gated ? DataLayout::kGateUpInterleave64Blocked128x4 : DataLayout::kBlocked128x4;
  Sm100Layouts layouts;
  HALFBYTE_ASSIGN_OR_RETURN(layouts.gate_up, make_layout(rows, {num_experts, gated ? 2 : 1,
                                                                intermediate_size, hidden_size}));
  HALFBYTE_ASSIGN_OR_RETURN(
      layouts.down,
      make_layout(DataLayout::kBlocked128x4, {num_experts, 1, hidden_size, intermediate_size},
                  {1, gated ? 64 : kNvfp4BlockSize}));
  return layouts;
}

Status export_sm100_expert(const Sm100Layouts& layouts,
                           std::int64_t expert_idx,
                           const CanonicalExpert& expert,
                           bool allow_lossy,
                           const Sm100Tensors& dst) {
  HALFBYTE_RETURN_IF_ERROR(check_set(layouts, expert_idx, dst));
  HALFBYTE_RETURN_IF_ERROR(check_expert(layouts, expert));
  const bool gated = layouts.gate_up.shape.num_halves == 2;
  const float alpha =
      gated ? std::max(expert.gate.global_scale, expert.up.global_scale) : expert.up.global_scale;
  Bytes codes;
  Bytes block_scale;
  std::int64_t num_inexact = 0;
  if (gated) {
    append(expert.gate.codes, codes);
    num_inexact += append_rescaled(expert.gate, alpha, block_scale);
  }
  append(expert.up.codes, codes);
  num_inexact += append_rescaled(expert.up, alpha, block_scale);
  if (num_inexact > 0 && !allow_lossy) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("expert {}: gate has global scale {} and up {}, but the form has one "
                    "for both, and {} block scales cannot hold the ratio exactly; "
                    "allow_lossy rounds them",
                    expert_idx, expert.gate.global_scale, expert.up.global_scale, num_inexact));
  }
  pack_codes(layouts.gate_up, expert_idx, codes, dst.gate_up_codes);
  pack_block_scales(layouts.gate_up, expert_idx, block_scale, dst.gate_up_block_scale);
  pack_codes(layouts.down, expert_idx, expert.down.codes, dst.down_codes);
  pack_block_scales(layouts.down, expert_idx, expert.down.block_scale, dst.down_block_scale);
  dst.gate_up_alpha[static_cast<std::size_t>(expert_idx)] = alpha;
  dst.down_alpha[static_cast<std::size_t>(expert_idx)] = expert.down.global_scale;
  return {};
}

Result<OwnedExpert> import_sm100_expert(const Sm100Layouts& layouts,
                                        std::int64_t expert_idx,
                                        const ConstSm100Tensors& src) {
  HALFBYTE_RETURN_IF_ERROR(check_set(layouts, expert_idx, src));
  const WeightShape& gate_up = layouts.gate_up.shape;
  const WeightShape& down = layouts.down.shape;
  const std::int64_t rows = layouts.gate_up.rows();
  OwnedExpert expert;
  expert.gate_up_codes = zeros(rows * gate_up.cols / 2);
  expert.gate_up_block_scale = zeros(rows * gate_up.cols / kNvfp4BlockSize);
  expert.down_codes = zeros(down.half_rows * down.cols / 2);
  expert.down_block_scale = zeros(down.half_rows * down.cols / kNvfp4BlockSize);
  unpack_codes(layouts.gate_up, expert_idx, src.gate_up_codes, expert.gate_up_codes);
  unpack_block_scales(layouts.gate_up, expert_idx, src.gate_up_block_scale,
                      expert.gate_up_block_scale);
  unpack_codes(layouts.down, expert_idx, src.down_codes, expert.down_codes);
  unpack_block_scales(layouts.down, expert_idx, src.down_block_scale, expert.down_block_scale);

  const std::int64_t gate_rows = rows - gate_up.half_rows;
  const auto view_gate_up = [&](std::int64_t first, std::int64_t count) {
    return view_rows(expert.gate_up_codes, expert.gate_up_block_scale, first, count, gate_up.cols);
  };
  expert.view.gate = view_gate_up(0, gate_rows);
  expert.view.up = view_gate_up(gate_rows, gate_up.half_rows);
  expert.view.down =
      view_rows(expert.down_codes, expert.down_block_scale, 0, down.half_rows, down.cols);
  const float alpha = src.gate_up_alpha[static_cast<std::size_t>(expert_idx)];
  expert.view.gate.global_scale = alpha;
  expert.view.up.global_scale = alpha;
  expert.view.down.global_scale = src.down_alpha[static_cast<std::size_t>(expert_idx)];
  return expert;
}

}  // namespace halfbyte
