// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/cpu_run.h"

#include <algorithm>
#include <mutex>

#include "kernels/reference/activation.h"
#include "moe/backends/cpu_step.h"

namespace halfbyte {
namespace {

constexpr std::int64_t kPanel = cpu::kPanelRows;
using cpu::kMaxRowTile;
constexpr std::int64_t kGroupCols = 64;  // of h: what is quantised together
constexpr std::int64_t kGroupPanels = kGroupCols / kPanel;
constexpr std::int64_t kDownPanels = 8;  // of a task of GEMM2

// The buffers of the workspace, in the order of plan.workspace.entries().
enum Buffer : std::size_t {
  kActive,   // ActiveExpert [L]
  kInUse,    // u8 [capacity]: rows of x that a route reads
  kX,        // [capacity] operand rows of H columns
  kXScale,   // fp32 [capacity]
  kH,        // [max_routes] operand rows of I columns
  kHScale,   // fp32 [max_routes]
  kWideH,    // fp32 [max_routes, I]: kW4a4Dynamic
  kScratch,  // [threads]
};

// ------------------------------------------------------------------------------- routes

// The experts whose routes, counted over all experts, lie in [begin, begin + limit).
void find_active(CpuStep& step, std::int64_t begin, std::int64_t limit) {
  std::int64_t counted = 0;
  step.num_active = 0;
  step.num_slots = 0;
  for (std::int64_t e = 0; e < step.plan.shard.num_local_experts; ++e) {
    const std::int64_t count = step.tokens.expert_count[e];
    const std::int64_t first = std::max(begin, counted);
    const std::int64_t last = std::min(begin + limit, counted + count);
    if (first < last) {
      step.active[step.num_active++] = {
          .expert_idx = e,
          .first_route = step.tokens.expert_offset[e] + first - counted,
          .first_slot = step.num_slots,
          .count = last - first};
      step.num_slots += last - first;
    }
    counted += count;
  }
}

std::int64_t count_routes(const CpuStep& step) {
  std::int64_t count = 0;
  for (std::int64_t e = 0; e < step.plan.shard.num_local_experts; ++e)
    count += step.tokens.expert_count[e];
  return count;
}

// ------------------------------------------------------------------------------- products

// Operand rows of up to kernels.row_tile routes, in the step's format: they pass the panels of a
// task together.
struct RowTile {
  int count = 0;
  const float* f32[kMaxRowTile];
  const cpu::Split15Record* split15[kMaxRowTile];
  const cpu::Int8Record* int8[kMaxRowTile];
};

void add_row(const CpuStep& step, const OperandRows& rows, std::int64_t row_idx, RowTile& tile) {
  const int t = tile.count++;
  if (step.format == OperandFormat::kF32) {
    tile.f32[t] = rows.f32(row_idx);
  } else if (step.format == OperandFormat::kSplit15) {
    tile.split15[t] = rows.split15(row_idx);
  } else {
    tile.int8[t] = rows.int8(row_idx);
  }
}

// sums[t][0..15] of one panel.
void panel_sums(const CpuStep& step, const cpu::PanelView& panel, RowTile& x, float* sums) {
  const std::int64_t num_superblocks = cpu::num_records(panel.cols);
  if (step.format == OperandFormat::kSplit15)
    return step.kernels.split15_dot(panel.data, num_superblocks, x.split15, x.count, sums);
  if (step.format == OperandFormat::kInt8)
    return step.kernels.int8_dot(panel.data, num_superblocks, x.int8, x.count, sums);
  for (int t = 0; t < x.count; t += cpu::kTokenTile) {
    step.kernels.panel_dot(panel, x.f32 + t, std::min(cpu::kTokenTile, x.count - t),
                           sums + t * kPanel);
  }
}

// What a sum is multiplied with (nvfp4-moe 4.3). `s` is the operand row's scale.
float alpha_of(const CpuStep& step, float alpha, float global_scale, float s) {
  if (!step.dynamic()) return alpha;
  return s == 0.0F ? 0.0F : global_scale / (1.0F / s);
}

void scale_panel(float alpha, const float* sums, float* dst) {
  for (std::int64_t i = 0; i < kPanel; ++i)
    dst[i] = sums[i] * alpha;
}

// ------------------------------------------------------------------------------- GEMM1

// One tile of routes times 64 columns of gate and up.
struct GateUpTile {
  RowTile x;
  float scale[kMaxRowTile];  // of each row: kW4a4Dynamic
  float sums[kMaxRowTile * kPanel];
  float gate[kMaxRowTile][kGroupCols];
  float up[kMaxRowTile][kGroupCols];  // then h
};

void gather_x(const CpuStep& step,
              const ActiveExpert& active,
              std::int64_t begin,
              GateUpTile& tile) {
  tile.x.count = 0;
  const std::int64_t end = std::min(active.count, begin + step.kernels.row_tile);
  for (std::int64_t j = begin; j < end; ++j) {
    const std::int64_t route = active.first_route + j;
    const std::int64_t row = step.operand_row(route, active.first_slot + j);
    tile.scale[tile.x.count] = step.dynamic() ? step.x_scale[row] : 1.0F;
    if (step.x.data != nullptr) {
      add_row(step, step.x, row, tile.x);
    } else {
      tile.x.f32[tile.x.count++] = static_cast<const float*>(step.tokens.x.data) +
                                   row_of_route(step.tokens, route) * step.tokens.x.row_stride;
    }
  }
}

// 16 columns of the tile: the sums times alpha.
void run_half_panel(const CpuStep& step,
                    const cpu::PanelView& panel,
                    float alpha,
                    float global_scale,
                    GateUpTile& tile,
                    float* dst) {
  panel_sums(step, panel, tile.x, tile.sums);
  for (int t = 0; t < tile.x.count; ++t) {
    scale_panel(alpha_of(step, alpha, global_scale, tile.scale[t]), tile.sums + t * kPanel,
                dst + t * kGroupCols);
  }
}

void run_gate_up_panel(const CpuStep& step,
                       std::size_t expert_idx,
                       std::int64_t panel_idx,
                       GateUpTile& tile) {
  const CpuExpert& expert = step.prepared.experts[expert_idx];
  const ExpertScales& scales = step.prepared.scales;
  const std::int64_t col = panel_idx % kGroupPanels * kPanel;
  if (expert.gated) {
    run_half_panel(step, expert.gate_panel(panel_idx), scales.gate_alpha[expert_idx],
                   scales.gate_global_scale[expert_idx], tile, tile.gate[0] + col);
  }
  run_half_panel(step, expert.up_panel(panel_idx), scales.up_alpha[expert_idx],
                 scales.up_global_scale[expert_idx], tile, tile.up[0] + col);
}

void activate(const CpuStep& step, std::int64_t cols, const float* gate, float* up) {
  const ActivationSpec& spec = step.plan.spec.activation;
  if (step.kernels.activate != nullptr) {
    return step.kernels.activate(spec, spec.gated() ? gate : nullptr, up, cols, up);
  }
  for (std::int64_t i = 0; i < cols; ++i)
    up[i] = reference::activate(spec, spec.gated() ? gate[i] : 0.0F, up[i]);
}

// 64 columns of h for all of an expert's routes, from product to operand: a task. Its weights stay
// in cache while the routes pass.
void run_gate_up_group(const CpuStep& step, const ActiveExpert& active, std::int64_t group) {
  const auto expert_idx = static_cast<std::size_t>(active.expert_idx);
  const std::int64_t first_col = group * kGroupCols;
  const std::int64_t cols = std::min(kGroupCols, step.width() - first_col);
  GateUpTile tile;
  for (std::int64_t j = 0; j < active.count; j += step.kernels.row_tile) {
    gather_x(step, active, j, tile);
    for (std::int64_t col = first_col; col < first_col + cols; col += kPanel)
      run_gate_up_panel(step, expert_idx, col / kPanel, tile);
    for (int t = 0; t < tile.x.count; ++t) {
      activate(step, cols, tile.gate[t], tile.up[t]);
      store_h(step, active.first_slot + j + t, first_col, tile.up[t], cols);
    }
  }
}

// ------------------------------------------------------------------------------- GEMM2

void store_down_panel(const CpuStep& step,
                      const ActiveExpert& active,
                      std::int64_t begin,
                      int count,
                      const float* sums,
                      std::int64_t panel_idx) {
  const auto e = static_cast<std::size_t>(active.expert_idx);
  const ExpertScales& scales = step.prepared.scales;
  auto* y = static_cast<float*>(step.output.rows.data) + panel_idx * kPanel;
  for (int t = 0; t < count; ++t) {
    const float s = step.dynamic() ? step.h_scale[active.first_slot + begin + t] : 1.0F;
    scale_panel(alpha_of(step, scales.down_alpha[e], scales.down_global_scale[e], s),
                sums + t * kPanel,
                y + (active.first_route + begin + t) * step.output.rows.row_stride);
  }
}

void run_down_group(const CpuStep& step, const ActiveExpert& active, std::int64_t group) {
  const CpuExpert& expert = step.prepared.experts[static_cast<std::size_t>(active.expert_idx)];
  const std::int64_t first = group * kDownPanels;
  const std::int64_t last = std::min(first + kDownPanels, step.hidden() / kPanel);
  float sums[kMaxRowTile * kPanel];
  for (std::int64_t j = 0; j < active.count; j += step.kernels.row_tile) {
    RowTile tile;
    for (std::int64_t t = j; t < std::min(active.count, j + step.kernels.row_tile); ++t)
      add_row(step, step.h, active.first_slot + t, tile);
    for (std::int64_t panel_idx = first; panel_idx < last; ++panel_idx) {
      panel_sums(step, expert.down_panel(panel_idx), tile, sums);
      store_down_panel(step, active, j, tile.count, sums, panel_idx);
    }
  }
}

// ------------------------------------------------------------------------------- phases

template <typename GroupTask>
void for_each_group(const CpuStep& step, std::int64_t num_groups, const GroupTask& task) {
  step.pool.parallel_for(step.num_active * num_groups, [&](std::int64_t i, int) {
    task(step, step.active[i / num_groups], i % num_groups);
  });
}

void run_chunk(const CpuStep& step) {
  make_x_rows(step);
  for_each_group(step, ceil_div(step.width(), kGroupCols), run_gate_up_group);
  quantize_wide_h(step);
  for_each_group(step, ceil_div(step.hidden() / kPanel, kDownPanels), run_down_group);
}

CpuStep make_step(const ExpertPlan& plan,
                  const PreparedCpuExperts& prepared,
                  const cpu::KernelTable& kernels,
                  const DispatchedTokens& tokens,
                  const ExpertOutput& output,
                  Workspace workspace) {
  const auto offset = [&plan](Buffer buffer) { return plan.workspace.entries()[buffer].offset; };
  CpuStep step{plan, prepared, kernels, tokens, output, prepared.pool->pool};
  step.format = operand_format(plan);
  step.active = workspace.at<ActiveExpert>(offset(kActive));
  step.in_use = workspace.at<std::uint8_t>(offset(kInUse));
  step.x = {reads_x_in_place(plan) ? nullptr : workspace.at<std::byte>(offset(kX)),
            operand_row_bytes(step.format, plan.spec.hidden_size)};
  step.x_scale = workspace.at<float>(offset(kXScale));
  step.h = {workspace.at<std::byte>(offset(kH)),
            operand_row_bytes(step.format, plan.shard.intermediate_size)};
  step.h_scale = workspace.at<float>(offset(kHScale));
  step.wide_h = workspace.at<float>(offset(kWideH));
  step.scratch = workspace.at<std::byte>(offset(kScratch));
  return step;
}

}  // namespace

void plan_cpu_workspace(ExpertPlan& plan) {
  const auto add = [&plan](const char* name, std::int64_t count, std::int64_t size) {
    plan.workspace.add(name, static_cast<std::size_t>(count * size));
  };
  const OperandFormat format = operand_format(plan);
  const std::int64_t width = plan.shard.intermediate_size;
  const std::int64_t x_rows = reads_x_in_place(plan) ? 0 : plan.capacity_tokens;
  const bool quantised = is_w4a4(plan.mode);
  const bool dynamic = plan.mode == ActivationMode::kW4a4Dynamic;
  plan.workspace = {};
  add("active_experts", plan.shard.num_local_experts, sizeof(ActiveExpert));
  add("rows_in_use", x_rows, sizeof(std::uint8_t));
  add("x", x_rows, operand_row_bytes(format, plan.spec.hidden_size));
  add("x_row_scale", quantised ? x_rows : 0, sizeof(float));
  add("h", plan.max_routes, operand_row_bytes(format, width));
  add("h_row_scale", quantised ? plan.max_routes : 0, sizeof(float));
  add("wide_h", dynamic ? plan.max_routes * width : 0, sizeof(float));
  add("scratch", plan.limits.num_threads, cpu_scratch_bytes(plan));
}

void run_cpu_experts(const ExpertPlan& plan,
                     const PreparedCpuExperts& prepared,
                     const cpu::KernelTable& kernels,
                     const DispatchedTokens& tokens,
                     const ExpertOutput& output,
                     Workspace workspace) {
  const std::scoped_lock lock(prepared.pool->busy);
  CpuStep step = make_step(plan, prepared, kernels, tokens, output, workspace);
  // Routes that share rows of x fit in one chunk; routes with a row of their own pass in chunks of
  // as many rows as the plan holds.
  const std::int64_t num_routes = count_routes(step);
  const std::int64_t chunk = tokens.route_row != nullptr ? num_routes : plan.capacity_tokens;
  for (std::int64_t begin = 0; begin < num_routes; begin += chunk) {
    find_active(step, begin, chunk);
    run_chunk(step);
  }
}

}  // namespace halfbyte
