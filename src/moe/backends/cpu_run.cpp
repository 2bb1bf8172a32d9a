// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/cpu_run.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "formats/nvfp4.h"
#include "kernels/reference/activation.h"
#include "moe/backends/host_backend.h"

namespace halfbyte {
namespace {

constexpr std::int64_t kPanel = cpu::kPanelRows;
constexpr int kTile = cpu::kTokenTile;

// Routes of one expert inside the current chunk. Slots number the chunk's routes from 0.
struct ActiveExpert {
  std::int64_t expert_idx = 0;
  std::int64_t first_route = 0;
  std::int64_t first_slot = 0;
  std::int64_t count = 0;
};

// The buffers of the workspace, in the order of plan.workspace.entries().
enum Buffer : std::size_t {
  kActive,  // ActiveExpert [L]
  kInUse,   // u8 [capacity]: rows of x that a route reads
  kX,       // fp32 [capacity, H]: what GEMM1 multiplies
  kXScale,  // fp32 [capacity]: the scale each row was quantised with
  kH,       // fp32 [max_routes, I]
  kHScale,  // fp32 [max_routes]
  kCodes,   // u8 [threads, code_bytes]: one row being quantised
};

std::int64_t code_bytes(const ExpertPlan& plan) {
  const std::int64_t width = std::max(plan.spec.hidden_size, plan.shard.intermediate_size);
  return round_up(width / 2 + width / kNvfp4BlockSize, 64);
}

// fp32 x of a mode that takes it as given is read where it lies.
bool reads_x_in_place(const ExpertPlan& plan) {
  return plan.mode == ActivationMode::kW4a16 && plan.spec.x_dtype == DType::kF32;
}

// Everything that the phases of one chunk share.
struct Step {
  const ExpertPlan& plan;
  const PreparedCpuExperts& prepared;
  const cpu::KernelTable& kernels;
  const DispatchedTokens& tokens;
  const ExpertOutput& output;
  ThreadPool& pool;
  ActiveExpert* active = nullptr;
  std::int64_t num_active = 0;
  std::int64_t num_slots = 0;
  std::uint8_t* in_use = nullptr;
  float* x = nullptr;
  float* x_scale = nullptr;
  float* h = nullptr;
  float* h_scale = nullptr;
  std::uint8_t* codes = nullptr;

  std::int64_t hidden() const { return plan.spec.hidden_size; }
  std::int64_t width() const { return plan.shard.intermediate_size; }
  bool dynamic() const { return plan.mode == ActivationMode::kW4a4Dynamic; }
  // The operand row of a route: the row of x when routes share rows, else the route's own slot.
  std::int64_t operand_row(std::int64_t route, std::int64_t slot) const {
    return tokens.route_row != nullptr ? tokens.route_row[route] : slot;
  }
};

// ------------------------------------------------------------------------------- routes

// The experts whose routes, counted over all experts, lie in [begin, begin + limit).
void find_active(Step& step, std::int64_t begin, std::int64_t limit) {
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

std::int64_t count_routes(const Step& step) {
  std::int64_t count = 0;
  for (std::int64_t e = 0; e < step.plan.shard.num_local_experts; ++e)
    count += step.tokens.expert_count[e];
  return count;
}

// ------------------------------------------------------------------------------- operand rows

// Decode-side scale of a row that is about to be quantised.
float row_scale(const Step& step, const float* row, std::int64_t cols, float s) {
  return step.dynamic() ? dynamic_row_scale(row, cols) : s;
}

// Replaces a row by what its NVFP4 codes say, without the scalar; exact in fp32.
void requantise(const Step& step, float* row, std::int64_t cols, float s, int thread_idx) {
  std::uint8_t* codes = step.codes + thread_idx * code_bytes(step.plan);
  std::uint8_t* block_scale = codes + cols / 2;
  quantize_activations(row, 1, cols, s, codes, block_scale);
  decode_activation_row(codes, block_scale, cols, row);
}

void read_payload_row(const Step& step, std::int64_t src, std::int64_t dst) {
  decode_activation_row(step.tokens.x_codes + src * step.hidden() / 2,
                        step.tokens.x_block_scale + src * step.hidden() / kNvfp4BlockSize,
                        step.hidden(), step.x + dst * step.hidden());
  step.x_scale[dst] = step.dynamic() ? step.tokens.x_row_scale[src] : step.prepared.scales.s1;
}

void make_operand_row(const Step& step, std::int64_t src, std::int64_t dst, int thread_idx) {
  if (step.tokens.x.data == nullptr) return read_payload_row(step, src, dst);
  float* row = step.x + dst * step.hidden();
  widen_x_row(step.tokens, src, row);
  if (!is_w4a4(step.plan.mode)) return;
  step.x_scale[dst] = row_scale(step, row, step.hidden(), step.prepared.scales.s1);
  requantise(step, row, step.hidden(), step.x_scale[dst], thread_idx);
}

// Rows that no route reads are not looked at: they may hold anything.
void mark_rows_in_use(const Step& step) {
  std::memset(step.in_use, 0, static_cast<std::size_t>(step.tokens.num_rows));
  for (std::int64_t i = 0; i < step.num_active; ++i) {
    for (std::int64_t j = 0; j < step.active[i].count; ++j)
      step.in_use[step.tokens.route_row[step.active[i].first_route + j]] = 1;
  }
}

void make_shared_rows(const Step& step) {
  mark_rows_in_use(step);
  step.pool.parallel_for(step.tokens.num_rows, [&](std::int64_t row, int thread_idx) {
    if (step.in_use[row] != 0) make_operand_row(step, row, row, thread_idx);
  });
}

void make_rows_of_routes(const Step& step) {
  for (std::int64_t i = 0; i < step.num_active; ++i) {
    const ActiveExpert& active = step.active[i];
    step.pool.parallel_for(active.count, [&](std::int64_t j, int thread_idx) {
      make_operand_row(step, active.first_route + j, active.first_slot + j, thread_idx);
    });
  }
}

const float* x_row(const Step& step, std::int64_t route, std::int64_t slot) {
  if (step.x == nullptr) {
    return static_cast<const float*>(step.tokens.x.data) +
           row_of_route(step.tokens, route) * step.tokens.x.row_stride;
  }
  return step.x + step.operand_row(route, slot) * step.hidden();
}

// ------------------------------------------------------------------------------- GEMMs

// What a sum is multiplied with (nvfp4-moe 4.3). `s` is the operand row's scale.
float alpha_of(const Step& step, float alpha, float global_scale, float s) {
  if (!step.dynamic()) return alpha;
  return s == 0.0F ? 0.0F : global_scale / (1.0F / s);
}

void scale_sums(float alpha, float* sums) {
  for (std::int64_t i = 0; i < kPanel; ++i)
    sums[i] *= alpha;
}

void activate(const Step& step, const float* gate, const float* up, float* h) {
  const ActivationSpec& spec = step.plan.spec.activation;
  if (step.kernels.activate != nullptr) return step.kernels.activate(spec, gate, up, kPanel, h);
  for (std::int64_t i = 0; i < kPanel; ++i)
    h[i] = reference::activate(spec, gate == nullptr ? 0.0F : gate[i], up[i]);
}

// Sums of one tile of routes: 16 columns of gate and up.
struct GateUpSums {
  float gate[kTile * kPanel];
  float up[kTile * kPanel];
};

void finish_gate_up(const Step& step,
                    const ActiveExpert& active,
                    std::int64_t route_in_expert,
                    GateUpSums& sums,
                    int t,
                    float* h) {
  const ExpertScales& scales = step.prepared.scales;
  const auto e = static_cast<std::size_t>(active.expert_idx);
  const std::int64_t route = active.first_route + route_in_expert + t;
  const std::int64_t slot = active.first_slot + route_in_expert + t;
  const float s = step.dynamic() ? step.x_scale[step.operand_row(route, slot)] : 1.0F;
  float* gate = nullptr;
  if (step.plan.spec.activation.gated()) {
    gate = sums.gate + t * kPanel;
    scale_sums(alpha_of(step, scales.gate_alpha[e], scales.gate_global_scale[e], s), gate);
  }
  float* up = sums.up + t * kPanel;
  scale_sums(alpha_of(step, scales.up_alpha[e], scales.up_global_scale[e], s), up);
  activate(step, gate, up, h + slot * step.width());
}

void run_gate_up_panel(const Step& step, const ActiveExpert& active, std::int64_t panel_idx) {
  const CpuExpert& expert = step.prepared.experts[static_cast<std::size_t>(active.expert_idx)];
  GateUpSums sums;
  for (std::int64_t j = 0; j < active.count; j += kTile) {
    const int num_x = static_cast<int>(std::min<std::int64_t>(kTile, active.count - j));
    const float* x[kTile] = {};
    for (int t = 0; t < num_x; ++t)
      x[t] = x_row(step, active.first_route + j + t, active.first_slot + j + t);
    if (expert.gated) step.kernels.panel_dot(expert.gate_panel(panel_idx), x, num_x, sums.gate);
    step.kernels.panel_dot(expert.up_panel(panel_idx), x, num_x, sums.up);
    for (int t = 0; t < num_x; ++t)
      finish_gate_up(step, active, j, sums, t, step.h + panel_idx * kPanel);
  }
}

void run_down_panel(const Step& step, const ActiveExpert& active, std::int64_t panel_idx) {
  const auto e = static_cast<std::size_t>(active.expert_idx);
  const cpu::PanelView panel = step.prepared.experts[e].down_panel(panel_idx);
  const ExpertScales& scales = step.prepared.scales;
  auto* y = static_cast<float*>(step.output.rows.data) + panel_idx * kPanel;
  float sums[kTile * kPanel];
  for (std::int64_t j = 0; j < active.count; j += kTile) {
    const int num_x = static_cast<int>(std::min<std::int64_t>(kTile, active.count - j));
    const float* x[kTile] = {};
    for (int t = 0; t < num_x; ++t)
      x[t] = step.h + (active.first_slot + j + t) * step.width();
    step.kernels.panel_dot(panel, x, num_x, sums);
    for (int t = 0; t < num_x; ++t) {
      const float s = step.dynamic() ? step.h_scale[active.first_slot + j + t] : 1.0F;
      scale_sums(alpha_of(step, scales.down_alpha[e], scales.down_global_scale[e], s),
                 sums + t * kPanel);
      std::memcpy(y + (active.first_route + j + t) * step.output.rows.row_stride, sums + t * kPanel,
                  sizeof(float) * static_cast<std::size_t>(kPanel));
    }
  }
}

void requantise_h(const Step& step) {
  step.pool.parallel_for(step.num_slots, [&](std::int64_t slot, int thread_idx) {
    float* row = step.h + slot * step.width();
    step.h_scale[slot] = row_scale(step, row, step.width(), step.prepared.scales.s2);
    requantise(step, row, step.width(), step.h_scale[slot], thread_idx);
  });
}

// A panel of one expert is a task: its weights stay in cache while all of the expert's routes pass.
template <typename PanelTask>
void for_each_panel(const Step& step, std::int64_t num_panels, const PanelTask& task) {
  step.pool.parallel_for(step.num_active * num_panels, [&](std::int64_t i, int) {
    task(step, step.active[i / num_panels], i % num_panels);
  });
}

void run_chunk(const Step& step) {
  if (step.x != nullptr) {
    step.tokens.route_row != nullptr ? make_shared_rows(step) : make_rows_of_routes(step);
  }
  for_each_panel(step, step.width() / kPanel, run_gate_up_panel);
  if (is_w4a4(step.plan.mode)) requantise_h(step);
  for_each_panel(step, step.hidden() / kPanel, run_down_panel);
}

}  // namespace

void plan_cpu_workspace(ExpertPlan& plan) {
  const auto add = [&plan](const char* name, std::int64_t count, std::size_t size) {
    plan.workspace.add(name, static_cast<std::size_t>(count) * size);
  };
  const std::int64_t x_rows = reads_x_in_place(plan) ? 0 : plan.capacity_tokens;
  const bool quantised = is_w4a4(plan.mode);
  plan.workspace = {};
  add("active_experts", plan.shard.num_local_experts, sizeof(ActiveExpert));
  add("rows_in_use", x_rows, sizeof(std::uint8_t));
  add("x", x_rows * plan.spec.hidden_size, sizeof(float));
  add("x_row_scale", quantised ? x_rows : 0, sizeof(float));
  add("h", plan.max_routes * plan.shard.intermediate_size, sizeof(float));
  add("h_row_scale", quantised ? plan.max_routes : 0, sizeof(float));
  add("codes", quantised ? plan.limits.num_threads * code_bytes(plan) : 0, sizeof(std::uint8_t));
}

void run_cpu_experts(const ExpertPlan& plan,
                     const PreparedCpuExperts& prepared,
                     const cpu::KernelTable& kernels,
                     const DispatchedTokens& tokens,
                     const ExpertOutput& output,
                     Workspace workspace) {
  const std::scoped_lock lock(prepared.pool->busy);
  const auto offset = [&plan](Buffer buffer) { return plan.workspace.entries()[buffer].offset; };
  Step step{plan, prepared, kernels, tokens, output, prepared.pool->pool};
  step.active = workspace.at<ActiveExpert>(offset(kActive));
  step.in_use = workspace.at<std::uint8_t>(offset(kInUse));
  step.x = reads_x_in_place(plan) ? nullptr : workspace.at<float>(offset(kX));
  step.x_scale = workspace.at<float>(offset(kXScale));
  step.h = workspace.at<float>(offset(kH));
  step.h_scale = workspace.at<float>(offset(kHScale));
  step.codes = workspace.at<std::uint8_t>(offset(kCodes));

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
