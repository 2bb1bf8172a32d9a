// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/cuda_sm90_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "moe/backends/host_backend.h"

namespace halfbyte {
namespace {

constexpr std::size_t kAlignment = 128;

Status refuse(std::string_view what) {
  return {StatusCode::kUnsupported, fmt::format("cuda_sm90: {}", what)};
}

sm90::MoeDecodeShape decode_shape(const ExpertPlan& plan, const ExpectedLoad& load) {
  return {.num_local_experts = static_cast<int>(plan.shard.num_local_experts),
          .hidden_size = plan.spec.hidden_size,
          .intermediate_size = plan.shard.intermediate_size,
          .gated = plan.spec.activation.gated(),
          .row_dtype = plan.row_dtype,
          .expected_rows = load.rows,
          .expected_experts = load.experts};
}

sm90::GroupedGemmShape gate_up_shape(const ExpertPlan& plan, const ExpectedLoad& load) {
  return {sm90_gate_up(plan), sm90::GemmOutput::kActivated, DType::kBf16, load.rows_per_expert()};
}

sm90::GroupedGemmShape down_shape(const ExpertPlan& plan, const ExpectedLoad& load) {
  return {sm90_down(plan), sm90::GemmOutput::kRows, plan.row_dtype, load.rows_per_expert()};
}

// The grouped GEMM takes fewer experts than decode, which is right for any number of rows.
bool has_prefill(const ExpertPlan& plan) {
  const device::Properties properties = properties_of(plan.limits);
  return can_run(gate_up_shape(plan, {}), properties).ok() &&
         can_run(down_shape(plan, {}), properties).ok();
}

bool takes_decode(const ExpertPlan& plan, std::int64_t num_tokens) {
  return expected_load(plan, num_tokens).rows_per_expert() <= sm90::kMaxDecodeRowsPerExpert ||
         !has_prefill(plan);
}

// Tokens of the largest step that takes decode: rows per expert grow with the tokens.
std::int64_t max_decode_tokens(const ExpertPlan& plan) {
  std::int64_t low = 0;
  std::int64_t high = plan.capacity_tokens;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (takes_decode(plan, middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Bytes of the tiles of any step's routes, for the width that needs most.
std::size_t tile_bytes(const ExpertPlan& plan, std::int64_t cols) {
  std::int64_t most = 0;
  for (const int tokens : sm90::list_tile_tokens()) {
    const sm90::TokenTiles tiles = {tokens, cols};
    most = std::max(
        most, tiles.max_tiles(plan.max_routes, plan.shard.num_local_experts) * tiles.tile_bytes());
  }
  return static_cast<std::size_t>(most);
}

// Decode's h and prefill's h never live at the same time.
void lay_out(ExpertPlan& plan) {
  const std::int64_t decode_tokens = max_decode_tokens(plan);
  auto h_bytes = static_cast<std::size_t>(decode_tokens * plan.spec.top_k *
                                          decode_shape(plan, {}).h_cols() * 2);
  std::size_t x_tile_bytes = 0;
  if (decode_tokens < plan.capacity_tokens) {
    h_bytes = std::max(h_bytes, tile_bytes(plan, gate_up_shape(plan, {}).output_cols()));
    x_tile_bytes = tile_bytes(plan, sm90_gate_up(plan).padded_cols());
  }
  plan.workspace = {};
  add_step_without_routes(plan);
  plan.workspace.add("h", h_bytes, kAlignment);
  plan.workspace.add("x_tiles", x_tile_bytes, kAlignment);
}

Status check_options(const ExpertPlan& request) {
  if (!request.exact_float32) return {};
  return refuse("h is rounded to bf16 between the GEMMs, so --dtype float32 cannot be kept");
}

}  // namespace

Status check_sm90_spec(const MoeSpec& spec, ActivationMode mode) {
  HALFBYTE_RETURN_IF_ERROR(check_cuda_spec("cuda_sm90", spec));
  if (mode == ActivationMode::kW4a16) return {};
  return refuse(
      fmt::format("mode {} has no kernels here yet: use w4a16, which takes the same checkpoints",
                  activation_mode_name(mode)));
}

Result<ExpertPlan> plan_sm90(ExpertPlan request) {
  HALFBYTE_RETURN_IF_ERROR(check_options(request));
  HALFBYTE_RETURN_IF_ERROR(complete_request(request));
  // Rows as narrow as the output, so that nothing is lost twice and no byte moves for nothing.
  request.row_dtype = request.spec.y_dtype == DType::kBf16 ? DType::kBf16 : DType::kF32;
  const sm90::MoeDecodeShape shape = decode_shape(request, {});
  HALFBYTE_RETURN_IF_ERROR(can_run(shape, properties_of(request.limits)));
  request.backend = "cuda_sm90";
  request.token_layout = TokenLayout::kTokenMajor;
  request.x_format = "bf16";
  request.h_format = "bf16";
  request.activation_math = "hardware exp2, within 2^-20";
  request.prepared_layout = fmt::format("{} v{}", sm90::kLayoutName, sm90::kLayoutVersion);
  request.prepared_bytes = shape.gate_up().bytes() + shape.down().bytes();
  lay_out(request);
  request.kernels = describe_steps(list_sm90_steps(request));
  return request;
}

Sm90Step choose_sm90_step(const ExpertPlan& plan, std::int64_t num_tokens) {
  const device::Properties properties = properties_of(plan.limits);
  const ExpectedLoad load = expected_load(plan, num_tokens);
  Sm90Step step;
  step.decode = takes_decode(plan, num_tokens);
  if (step.decode) {
    step.decode_shape = decode_shape(plan, load);
    step.decode_config = select_config(step.decode_shape, properties);
    return step;
  }
  step.gate_up = gate_up_shape(plan, load);
  step.down = down_shape(plan, load);
  step.gate_up_config = select_config(step.gate_up, properties);
  // One width: the tiles that the first GEMM writes are those that the second reads.
  step.down_config = make_config(step.down, step.gate_up_config.tile_tokens, properties);
  return step;
}

std::string Sm90Step::to_string() const {
  return decode ? decode_config.to_string() : gate_up_config.to_string() + ", twice";
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

sm90::WeightLayout sm90_gate_up(const ExpertPlan& plan) {
  return decode_shape(plan, {}).gate_up();
}

sm90::WeightLayout sm90_down(const ExpertPlan& plan) {
  return decode_shape(plan, {}).down();
}

Sm90Workspace sm90_workspace(const ExpertPlan& plan) {
  const auto& entries = plan.workspace.entries();
  return {entries[1].offset, entries[2].offset};
}

}  // namespace halfbyte
