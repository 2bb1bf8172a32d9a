// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/cuda_sm90_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/cuda/sm90/activate_tiles.h"
#include "moe/backends/cuda_sm90_fp8_plan.h"
#include "moe/backends/cuda_sm90_tactics.h"
#include "moe/backends/host_backend.h"

namespace halfbyte {
namespace {

constexpr std::size_t kAlignment = 128;
constexpr double kNearCrossover = 2;  // times or a part of the rows per expert

Status refuse(std::string_view what) {
  return {StatusCode::kUnsupported, fmt::format("cuda_sm90: {}", what)};
}

sm90::DecodeTokens decode_tokens(ActivationMode mode) {
  if (mode == ActivationMode::kW4a8) return sm90::DecodeTokens::kE4m3;
  return mode == ActivationMode::kW4a4 ? sm90::DecodeTokens::kGrid : sm90::DecodeTokens::kBf16;
}

bool is_dynamic(const ExpertPlan& plan) {
  return plan.mode == ActivationMode::kW4a4Dynamic;
}

// A route's own scale of h needs its whole row: then the first GEMM gives sums.
sm90::GemmOutput gate_up_output(const ExpertPlan& plan) {
  if (is_dynamic(plan)) return sm90::GemmOutput::kRows;
  return is_w4a4(plan.mode) ? sm90::GemmOutput::kQuantized : sm90::GemmOutput::kActivated;
}

sm90::GemmOutput down_output(const ExpertPlan& plan) {
  return is_dynamic(plan) ? sm90::GemmOutput::kScaledRows : sm90::GemmOutput::kRows;
}

sm90::GroupedGemmShape gate_up_shape(const ExpertPlan& plan, const ExpectedLoad& load) {
  return {sm90_gate_up(plan), gate_up_output(plan), DType::kF32, load.rows_per_expert()};
}

sm90::GroupedGemmShape down_shape(const ExpertPlan& plan, const ExpectedLoad& load) {
  return {sm90_down(plan), down_output(plan), plan.row_dtype, load.rows_per_expert()};
}

Status check_prefill(const ExpertPlan& plan) {
  const device::Properties properties = properties_of(plan.limits);
  HALFBYTE_RETURN_IF_ERROR(can_run(gate_up_shape(plan, {}), properties));
  return can_run(down_shape(plan, {}), properties);
}

// The grouped GEMM takes fewer experts than decode, which is right for any number of rows.
bool has_prefill(const ExpertPlan& plan) {
  return check_prefill(plan).ok();
}

bool takes_decode(const ExpertPlan& plan, std::int64_t num_tokens) {
  if (is_dynamic(plan)) return false;
  return expected_load(plan, num_tokens).rows_per_expert() <= sm90::kMaxDecodeRowsPerExpert ||
         !has_prefill(plan);
}

// Near the crossover both kernels are worth measuring.
bool may_decode(const ExpertPlan& plan, std::int64_t num_tokens) {
  if (takes_decode(plan, num_tokens)) return true;
  return plan.autotune && !is_dynamic(plan) &&
         expected_load(plan, num_tokens).rows_per_expert() <=
             kNearCrossover * sm90::kMaxDecodeRowsPerExpert;
}

bool may_prefill(const ExpertPlan& plan, std::int64_t num_tokens) {
  if (!takes_decode(plan, num_tokens)) return true;
  return plan.autotune && has_prefill(plan) &&
         expected_load(plan, num_tokens).rows_per_expert() * kNearCrossover >=
             sm90::kMaxDecodeRowsPerExpert;
}

// Bytes of the tiles of any step's routes, for the width that needs most.
std::size_t tile_bytes(const ExpertPlan& plan, std::int64_t cols) {
  return sm90::most_tile_bytes(list_sm90_tile_tokens(plan), cols, 2, plan.max_routes,
                               plan.shard.num_local_experts);
}

// What the w4a4 modes have beside the others, in the order of Sm90Workspace.
void add_quantized(ExpertPlan& plan) {
  const auto tokens = is_w4a4(plan.mode) ? static_cast<std::size_t>(plan.capacity_tokens) : 0;
  const auto routes = is_dynamic(plan) ? static_cast<std::size_t>(plan.max_routes) : 0;
  const auto sum_cols = static_cast<std::size_t>(gate_up_shape(plan, {}).output_cols());
  plan.workspace.add("x_grid", tokens * static_cast<std::size_t>(plan.spec.hidden_size) * 2,
                     kAlignment);
  plan.workspace.add("x_row_scale", is_dynamic(plan) ? tokens * sizeof(float) : 0, kAlignment);
  plan.workspace.add("sums", routes * sum_cols * sizeof(float), kAlignment);
  plan.workspace.add("row_alpha", routes * sizeof(float), kAlignment);
}

// What steps may take: by the plan's own choice, by a measurement, or because the request says so.
struct Reach {
  std::int64_t decode_tokens = 0;  // of the largest step of decode
  bool prefill = false;
};

Reach reach_of(const ExpertPlan& plan) {
  const std::int64_t capacity = plan.capacity_tokens;
  Reach reach = {most_tokens(capacity, [&plan](std::int64_t n) { return may_decode(plan, n); }),
                 capacity > 0 && may_prefill(plan, capacity)};
  for (const auto& [num_tokens, name] : plan.tactics) {
    const bool decode = find_sm90_tactic(name)->decode;  // checked
    if (decode) reach.decode_tokens = std::max(reach.decode_tokens, std::min(num_tokens, capacity));
    reach.prefill = reach.prefill || !decode;
  }
  return reach;
}

// Decode's h and prefill's h never live at the same time.
void lay_out(ExpertPlan& plan) {
  const Reach reach = reach_of(plan);
  auto h_bytes = static_cast<std::size_t>(reach.decode_tokens * plan.spec.top_k *
                                          sm90_decode_shape(plan, {}).h_cols() * 2);
  std::size_t x_tile_bytes = 0;
  if (reach.prefill) {
    h_bytes = std::max(h_bytes, tile_bytes(plan, sm90_down(plan).padded_cols()));
    x_tile_bytes = tile_bytes(plan, sm90_gate_up(plan).padded_cols());
  }
  plan.workspace = {};
  add_step_without_routes(plan);
  plan.workspace.add("h", h_bytes, kAlignment);
  plan.workspace.add("x_tiles", x_tile_bytes, kAlignment);
  add_quantized(plan);
}

Status check_options(const ExpertPlan& request) {
  if (!request.exact_float32 || request.mode != ActivationMode::kW4a16) return {};
  return refuse("h is rounded to bf16 between the GEMMs, so --dtype float32 cannot be kept");
}

Status check_kernels(const ExpertPlan& plan) {
  HALFBYTE_RETURN_IF_ERROR(can_run(sm90_decode_shape(plan, {}), properties_of(plan.limits)));
  if (!is_dynamic(plan)) return {};
  HALFBYTE_RETURN_IF_ERROR(check_prefill(plan));
  if (plan.shard.intermediate_size <= sm90::kMaxActivateCols) return {};
  return refuse(fmt::format("w4a4_dynamic takes an intermediate size up to {}, got {}",
                            sm90::kMaxActivateCols, plan.shard.intermediate_size));
}

std::vector<Sm90Tactic> tactics_of(const ExpertPlan& plan) {
  return all_sm90_tactics(!is_dynamic(plan),
                          has_prefill(plan) ? list_sm90_tile_tokens(plan) : std::span<const int>());
}

Status check_tactics(const ExpertPlan& plan) {
  const std::vector<Sm90Tactic> known = tactics_of(plan);
  for (const auto& [num_tokens, name] : plan.tactics) {
    const auto tactic = find_sm90_tactic(name);
    if (tactic && std::find(known.begin(), known.end(), *tactic) != known.end()) continue;
    std::vector<std::string> names;
    names.reserve(known.size());
    for (const Sm90Tactic& one : known)
      names.push_back(one.to_string());
    return {StatusCode::kInvalidArgument,
            fmt::format("cuda_sm90: tactic \"{}\" of up to {} tokens: this layer in {} has {}",
                        name, num_tokens, activation_mode_name(plan.mode), fmt::join(names, ", "))};
  }
  return {};
}

// A step by a given tactic, or by the plan's own choice.
Sm90Step make_step(const ExpertPlan& plan,
                   std::int64_t num_tokens,
                   const std::optional<Sm90Tactic>& tactic) {
  const device::Properties properties = properties_of(plan.limits);
  const ExpectedLoad load = expected_load(plan, num_tokens);
  Sm90Step step;
  step.decode = tactic ? tactic->decode : takes_decode(plan, num_tokens);
  if (step.decode) {
    step.decode_shape = sm90_decode_shape(plan, load);
    step.decode_config = tactic ? make_config(step.decode_shape, tactic->tile(), properties)
                                : select_config(step.decode_shape, properties);
    return step;
  }
  step.gate_up = gate_up_shape(plan, load);
  step.down = down_shape(plan, load);
  step.gate_up_config = tactic ? make_config(step.gate_up, tactic->tokens, properties)
                               : select_config(step.gate_up, properties);
  // One width: the tiles that the first GEMM writes are those that the second reads.
  step.down_config = make_config(step.down, step.gate_up_config.tile_tokens, properties);
  return step;
}

Sm90Tactic own_tactic(const ExpertPlan& plan, std::int64_t num_tokens) {
  const Sm90Step step = make_step(plan, num_tokens, std::nullopt);
  return step.decode ? sm90_decode_tactic(step.decode_config.tile)
                     : sm90_prefill_tactic(step.gate_up_config.tile_tokens);
}

void state_formats(ExpertPlan& plan) {
  const bool quantized = is_w4a4(plan.mode);
  plan.x_format = quantized ? "nvfp4" : "bf16";
  plan.h_format = quantized ? "nvfp4" : "bf16";
  plan.activation_math = quantized ? "portable" : "hardware exp2, within 2^-20";
}

}  // namespace

Status check_sm90_spec(const MoeSpec& spec, ActivationMode mode) {
  HALFBYTE_RETURN_IF_ERROR(check_cuda_spec("cuda_sm90", spec));
  if (mode != ActivationMode::kAuto) return {};
  return refuse("want a mode, got auto");
}

Result<ExpertPlan> plan_sm90(ExpertPlan request) {
  HALFBYTE_RETURN_IF_ERROR(check_options(request));
  HALFBYTE_RETURN_IF_ERROR(complete_request(request));
  // Rows as narrow as the output, so that nothing is lost twice and no byte moves for nothing.
  request.row_dtype = request.spec.y_dtype == DType::kBf16 ? DType::kBf16 : DType::kF32;
  request.backend = "cuda_sm90";
  request.token_layout = TokenLayout::kTokenMajor;
  request.prepared_bytes = sm90_gate_up(request).bytes() + sm90_down(request).bytes();
  if (request.mode == ActivationMode::kW4a8) {
    HALFBYTE_RETURN_IF_ERROR(plan_sm90_fp8(request));
    return request;
  }
  HALFBYTE_RETURN_IF_ERROR(check_kernels(request));
  HALFBYTE_RETURN_IF_ERROR(check_tactics(request));
  state_formats(request);
  request.prepared_layout = fmt::format("{} v{}", sm90::kLayoutName, sm90::kLayoutVersion);
  lay_out(request);
  request.kernels = describe_steps(list_sm90_steps(request));
  return request;
}

std::span<const int> list_sm90_tile_tokens(const ExpertPlan& plan) {
  return sm90::list_tile_tokens(is_dynamic(plan) ? down_output(plan) : gate_up_output(plan));
}

Sm90Step choose_sm90_step(const ExpertPlan& plan, std::int64_t num_tokens) {
  const std::string* name = find_tactic(plan.tactics, num_tokens);
  return make_step(plan, num_tokens, name == nullptr ? std::nullopt : find_sm90_tactic(*name));
}

std::vector<TacticList> list_sm90_tactics(const ExpertPlan& plan) {
  if (plan.mode == ActivationMode::kW4a8) return {};
  std::vector<TacticList> lists;
  for (const std::int64_t num_tokens : token_buckets(plan.capacity_tokens)) {
    const Sm90Tactic own = own_tactic(plan, num_tokens);
    TacticList list = {num_tokens, {own.to_string()}};
    for (const Sm90Tactic& other : tactics_of(plan)) {
      const bool may = other.decode ? may_decode(plan, num_tokens) : may_prefill(plan, num_tokens);
      if (may && other != own) list.names.push_back(other.to_string());
    }
    lists.push_back(std::move(list));
  }
  return lists;
}

std::string Sm90Step::to_string() const {
  if (decode) return decode_config.to_string();
  const bool sums = gate_up.output == sm90::GemmOutput::kRows;
  return gate_up_config.to_string() + (sums ? ", twice, activate_tiles between" : ", twice");
}

bool Sm90Step::launches_the_same(const Sm90Step& other) const {
  return decode == other.decode && decode_config == other.decode_config &&
         gate_up_config == other.gate_up_config;
}

std::vector<Sm90Range> list_sm90_steps(const ExpertPlan& plan) {
  return list_steps<Sm90Step>(plan.capacity_tokens, [&plan](std::int64_t num_tokens) {
    return choose_sm90_step(plan, num_tokens);
  });
}

sm90::MoeDecodeShape sm90_decode_shape(const ExpertPlan& plan, const ExpectedLoad& load) {
  return {.num_local_experts = static_cast<int>(plan.shard.num_local_experts),
          .hidden_size = plan.spec.hidden_size,
          .intermediate_size = plan.shard.intermediate_size,
          .gated = plan.spec.activation.gated(),
          .row_dtype = plan.row_dtype,
          .expected_rows = load.rows,
          .expected_experts = load.experts,
          .tokens = decode_tokens(plan.mode)};
}

sm90::WeightLayout sm90_gate_up(const ExpertPlan& plan) {
  return sm90_decode_shape(plan, {}).gate_up();
}

sm90::WeightLayout sm90_down(const ExpertPlan& plan) {
  return sm90_decode_shape(plan, {}).down();
}

Sm90Workspace sm90_workspace(const ExpertPlan& plan) {
  std::size_t next = 1;  // after the step without routes
  Sm90Workspace at;
  for (std::size_t* offset :
       {&at.h, &at.x_tiles, &at.x_grid, &at.x_row_scale, &at.sums, &at.row_alpha})
    *offset = plan.workspace.entries()[next++].offset;
  return at;
}

}  // namespace halfbyte
