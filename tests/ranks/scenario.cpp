// SPDX-License-Identifier: Apache-2.0
#include "ranks/scenario.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <sstream>

#include "base/host_buffer.h"
#include "formats/convert.h"
#include "formats/nvfp4.h"
#include "support/rank_threads.h"

namespace halfbyte::test {
namespace {

using Row = std::vector<float>;
constexpr std::size_t kGuardBytes = 256;

float round_through(DType dtype, float value) {
  std::array<std::byte, 8> bits = {};
  narrow_from_f32(dtype, &value, 1, bits.data());
  widen_to_f32(dtype, bits.data(), 1, &value);
  return value;
}

// The split of 9.1, written out by counting.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
Range experts_of(std::int64_t num_experts, int num_ranks, int rank) {
  Range range;
  for (int before = 0; before <= rank; ++before) {
    range.begin = range.end;
    range.end += num_experts / num_ranks + (before < num_experts % num_ranks ? 1 : 0);
  }
  return range;
}
int owner_of(std::int64_t num_experts, int num_ranks, std::int64_t expert_idx) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    const Range range = experts_of(num_experts, num_ranks, rank);
    if (expert_idx >= range.begin && expert_idx < range.end) return rank;
  }
  return -1;
}

// In place of an expert: linear in x, different for each expert; `part` of moe_tp equal shares.
float fake_expert(float x, std::int64_t expert_idx, int moe_tp) {
  const auto e = static_cast<float>(expert_idx);
  return (x * (1.0F + 0.13F * e) + 0.7F * e) / static_cast<float>(moe_tp);
}

// x as the experts see it in this mode: weighted, rounded, quantised and read back.
Row seen_row(const Scenario& scenario, Row x, std::optional<float> weight) {
  if (weight.has_value()) {
    for (float& value : x)
      value = round_through(scenario.x_dtype, *weight * value);
  }
  if (scenario.mode == ActivationMode::kW4a16) return x;
  const auto cols = static_cast<std::int64_t>(x.size());
  const float scale =
      scenario.mode == ActivationMode::kW4a4 ? scenario.s1 : dynamic_row_scale(x.data(), cols);
  std::vector<std::uint8_t> codes(x.size() / 2);
  std::vector<std::uint8_t> block_scale(x.size() / 16);
  quantize_activations(x.data(), 1, cols, scale, codes.data(), block_scale.data());
  decode_activation_row(codes.data(), block_scale.data(), cols, x.data());
  for (float& value : x)
    value *= scale;
  return x;
}

using MaybeRow = std::optional<Row>;
MaybeRow add_rows(MaybeRow left, const MaybeRow& right) {
  if (!left.has_value()) return right;
  if (!right.has_value()) return left;
  for (std::size_t i = 0; i < left->size(); ++i)
    (*left)[i] += (*right)[i];
  return left;
}

// Leaves [begin, end) of the tree, joined in pairs.
MaybeRow join_leaves(const std::vector<MaybeRow>& leaves, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return leaves[begin];
  const std::size_t middle = begin + (end - begin) / 2;
  return add_rows(join_leaves(leaves, begin, middle), join_leaves(leaves, middle, end));
}

class Oracle {
 public:
  Oracle(const Scenario& scenario, const GroupTokens& tokens)
      : scenario_(scenario), tokens_(tokens) {}

  Row token(std::size_t token_idx) const {
    const int moe_tp = scenario_.tp / scenario_.ep;
    std::vector<MaybeRow> by_expert_rank;
    for (int ep_rank = 0; ep_rank < scenario_.ep; ++ep_rank) {
      MaybeRow sum;
      for (int part = 0; part < moe_tp; ++part) {
        sum = add_rows(sum, partial(token_idx, ep_rank));
      }
      by_expert_rank.push_back(sum);
    }
    return finish(token_idx, join_ranks(by_expert_rank));
  }

 private:
  // What one rank sends.
  MaybeRow partial(std::size_t token_idx, int ep_rank) const {
    const Range local = experts_of(scenario_.num_experts, scenario_.ep, ep_rank);
    std::vector<MaybeRow> leaves(16);
    const auto top_k = static_cast<std::size_t>(scenario_.top_k);
    for (std::size_t slot = token_idx * top_k; slot < (token_idx + 1) * top_k; ++slot) {
      const std::int64_t expert_idx = tokens_.topk_idx[slot];
      if (expert_idx < local.begin || expert_idx >= local.end) continue;
      const int group = owner_of(scenario_.num_experts, 16, expert_idx);
      accumulate(token_idx, slot, leaves[static_cast<std::size_t>(group)]);
    }
    MaybeRow sum = join_leaves(leaves, 0, 16);
    if (scenario_.shared == SharedExpert::Kind::kSharded) {
      sum = add_rows(sum, shared_row(token_idx, static_cast<float>(scenario_.tp)));
    }
    if (sum.has_value() && scenario_.dispatcher != "local") {
      for (float& value : *sum)
        value = round_through(scenario_.combine_dtype, value);
    }
    return sum;
  }

  void accumulate(std::size_t token_idx, std::size_t slot, MaybeRow& leaf) const {
    const float route_weight = tokens_.topk_weights[slot];
    const float weight = scenario_.weight_input ? 1.0F : route_weight;
    const Row x = seen_row(scenario_, row_of(tokens_.x, token_idx),
                           scenario_.weight_input ? std::optional(route_weight) : std::nullopt);
    const bool first = !leaf.has_value();
    if (first) leaf = Row(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float y = round_through(scenario_.row_dtype, fake_expert(x[i], tokens_.topk_idx[slot],
                                                                     scenario_.tp / scenario_.ep));
      (*leaf)[i] = first ? weight * y : std::fma(weight, y, (*leaf)[i]);
    }
  }

  MaybeRow join_ranks(const std::vector<MaybeRow>& partials) const {
    const bool whole_subtrees =
        scenario_.ep == 1 || (scenario_.num_experts % 16 == 0 && 16 % scenario_.ep == 0);
    if (whole_subtrees) return join_leaves(partials, 0, partials.size());
    MaybeRow sum;
    for (const MaybeRow& each : partials)
      sum = add_rows(sum, each);
    return sum;
  }

  Row finish(std::size_t token_idx, MaybeRow sum) const {
    if (scenario_.shared == SharedExpert::Kind::kReplicated) {
      sum = add_rows(sum, shared_row(token_idx, 1.0F));
    }
    Row y = sum.value_or(Row(static_cast<std::size_t>(scenario_.hidden_size), 0.0F));
    for (float& value : y)
      value = round_through(scenario_.y_dtype, value);
    return y;
  }

  Row row_of(const Row& matrix, std::size_t token_idx) const {
    const auto cols = static_cast<std::ptrdiff_t>(scenario_.hidden_size);
    const auto begin = matrix.begin() + static_cast<std::ptrdiff_t>(token_idx) * cols;
    return {begin, begin + cols};
  }
  Row shared_row(std::size_t token_idx, float parts) const {
    Row row = row_of(tokens_.shared, token_idx);
    for (float& value : row)
      value /= parts;
    return row;
  }

  const Scenario& scenario_;
  const GroupTokens& tokens_;
};

// Memory with a pattern before and behind it.
class GuardedBuffer {
 public:
  GuardedBuffer(std::size_t bytes, std::uint8_t poison)
      : bytes_(bytes), buffer_(HostBuffer::allocate(bytes + 2 * kGuardBytes)) {
    std::memset(buffer_->data(), kPattern, buffer_->size());
    std::memset(data(), poison, bytes);
  }
  std::byte* data() const { return buffer_->data() + kGuardBytes; }
  std::size_t bytes() const { return bytes_; }
  bool intact() const {
    const auto is_pattern = [](std::byte value) { return value == std::byte{kPattern}; };
    const std::byte* begin = buffer_->data();
    return std::all_of(begin, begin + kGuardBytes, is_pattern) &&
           std::all_of(data() + bytes_, data() + bytes_ + kGuardBytes, is_pattern);
  }

 private:
  static constexpr std::uint8_t kPattern = 0xA5;
  std::size_t bytes_;
  Result<HostBuffer> buffer_;
};

Row read_token_row(const Scenario& scenario, const DispatchedTokens& tokens, std::int64_t row) {
  const std::int64_t cols = scenario.hidden_size;
  Row x(static_cast<std::size_t>(cols));
  if (tokens.x_codes == nullptr) {
    const auto* src = static_cast<const std::byte*>(tokens.x.data) +
                      row * tokens.x.row_stride * dtype_bytes(tokens.x.dtype);
    widen_to_f32(tokens.x.dtype, src, cols, x.data());
    return seen_row(scenario, x, std::nullopt);
  }
  decode_activation_row(tokens.x_codes + row * cols / 2, tokens.x_block_scale + row * cols / 16,
                        cols, x.data());
  const float scale = tokens.x_row_scale != nullptr ? tokens.x_row_scale[row] : scenario.s1;
  for (float& value : x)
    value *= scale;
  return x;
}

// In place of a backend.
void run_fake_experts(const Scenario& scenario,
                      const DispatchPlan& plan,
                      const DispatchedTokens& tokens,
                      const ExpertOutput& output) {
  for (std::int64_t expert = 0; expert < plan.shard.num_local_experts; ++expert) {
    for (std::int64_t i = 0; i < tokens.expert_count[expert]; ++i) {
      const std::int64_t route = tokens.expert_offset[expert] + i;
      Row row = read_token_row(scenario, tokens, tokens.route_row[route]);
      for (float& value : row) {
        value = fake_expert(value, plan.shard.first_expert + expert, plan.tp_size / plan.ep_size);
      }
      auto* dst = static_cast<std::byte*>(output.rows.data) +
                  route * output.rows.row_stride * dtype_bytes(output.rows.dtype);
      narrow_from_f32(output.rows.dtype, row.data(), output.rows.cols, dst);
    }
  }
}

// One rank's memory and calls.
class RankRun {
 public:
  RankRun(const Scenario& scenario, const GroupTokens& tokens, Transport& transport, int rank)
      : scenario_(scenario), tokens_(tokens), transport_(transport), rank_(rank) {}

  Status run(ScenarioResult& result) {
    HALFBYTE_ASSIGN_OR_RETURN(dispatcher_, make_dispatcher(scenario_.dispatcher, &transport_));
    HALFBYTE_ASSIGN_OR_RETURN(plan_, plan_scenario(scenario_, *dispatcher_, rank_));
    GuardedBuffer workspace(plan_.workspace.total_bytes(), scenario_.poison);
    GuardedBuffer rows(static_cast<std::size_t>(plan_.max_routes * scenario_.hidden_size *
                                                dtype_bytes(scenario_.row_dtype)),
                       scenario_.poison);
    GuardedBuffer y(y_bytes(), scenario_.poison);
    Status status;
    for (int step = 0; step < scenario_.steps && status.ok(); ++step) {
      status = run_step(workspace, rows, y, result);
    }
    const std::size_t own = static_cast<std::size_t>(rank_);
    if (status.ok()) result.y[own] = read_output(y);
    guards_intact_ = workspace.intact() && rows.intact() && y.intact();
    untouched_ = std::all_of(y.data(), y.data() + y.bytes(), [this](std::byte value) {
      return value == std::byte{scenario_.poison};
    });
    return status;
  }
  bool guards_intact() const { return guards_intact_; }
  bool untouched() const { return untouched_; }

 private:
  std::int64_t num_tokens() const {
    return static_cast<std::int64_t>(tokens_.topk_idx.size()) / scenario_.top_k;
  }
  std::size_t y_bytes() const {
    return static_cast<std::size_t>(num_tokens() * scenario_.hidden_size *
                                    dtype_bytes(scenario_.y_dtype));
  }

  Status run_step(const GuardedBuffer& workspace_buffer,
                  const GuardedBuffer& rows,
                  const GuardedBuffer& y,
                  ScenarioResult& result) {
    const Workspace workspace = {workspace_buffer.data(), workspace_buffer.bytes()};
    std::vector<std::byte> x(tokens_.x.size() *
                             static_cast<std::size_t>(dtype_bytes(scenario_.x_dtype)));
    narrow_from_f32(scenario_.x_dtype, tokens_.x.data(),
                    static_cast<std::int64_t>(tokens_.x.size()), x.data());
    DispatchInput input;
    input.x = ConstMatrixView(x.empty() ? nullptr : x.data(), scenario_.x_dtype, num_tokens(),
                              scenario_.hidden_size);
    input.routing = {tokens_.topk_idx, tokens_.topk_weights};
    input.s1 = scenario_.s1;
    input.tokens_per_rank = scenario_.tokens_per_rank;
    HALFBYTE_ASSIGN_OR_RETURN(const DispatchedTokens received,
                              dispatcher_->dispatch(plan_, input, workspace, nullptr));
    const auto own = static_cast<std::size_t>(rank_);
    result.num_rows[own] = received.num_rows;
    result.num_routes[own] = received.num_routes;
    result.dropped_routes[own] = dispatcher_->last_dropped_routes();
    const ExpertOutput output = {
        MatrixView(rows.data(), scenario_.row_dtype, plan_.max_routes, scenario_.hidden_size)};
    run_fake_experts(scenario_, plan_, received, output);
    // The caller's routing may be gone before combine.
    input = {};
    std::ranges::fill(x, std::byte{scenario_.poison});
    return combine(received, output, workspace, y);
  }

  Status combine(const DispatchedTokens& received,
                 const ExpertOutput& output,
                 Workspace workspace,
                 const GuardedBuffer& y) {
    SharedExpert shared;
    Row part = tokens_.shared;
    if (scenario_.shared == SharedExpert::Kind::kSharded) {
      for (float& value : part)
        value /= static_cast<float>(scenario_.tp);
    }
    if (scenario_.shared != SharedExpert::Kind::kNone) {
      shared = {scenario_.shared, ConstMatrixView(part.empty() ? nullptr : part.data(), DType::kF32,
                                                  num_tokens(), scenario_.hidden_size)};
    }
    const MatrixView view(y.bytes() == 0 ? nullptr : y.data(), scenario_.y_dtype, num_tokens(),
                          scenario_.hidden_size);
    return dispatcher_->combine(plan_, received, output, shared, view, workspace, nullptr);
  }

  Row read_output(const GuardedBuffer& y) const {
    Row values(static_cast<std::size_t>(num_tokens() * scenario_.hidden_size));
    widen_to_f32(scenario_.y_dtype, y.data(), static_cast<std::int64_t>(values.size()),
                 values.data());
    return values;
  }

  const Scenario& scenario_;
  const GroupTokens& tokens_;
  Transport& transport_;
  int rank_;
  std::unique_ptr<Dispatcher> dispatcher_;
  DispatchPlan plan_;
  bool guards_intact_ = true;
  bool untouched_ = true;
};

}  // namespace

std::vector<GroupTokens> make_tokens(const Scenario& scenario, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::uniform_real_distribution<float> weight(0.05F, 1.0F);
  std::uniform_int_distribution<std::int32_t> expert(
      -1, static_cast<std::int32_t>(scenario.num_experts));
  std::vector<GroupTokens> groups;
  for (const std::int64_t count : scenario.tokens_per_rank) {
    GroupTokens& group = groups.emplace_back();
    for (std::int64_t i = 0; i < count * scenario.hidden_size; ++i) {
      group.x.push_back(round_through(scenario.x_dtype, normal(rng)));
      if (scenario.shared != SharedExpert::Kind::kNone) group.shared.push_back(normal(rng));
    }
    for (std::int64_t i = 0; i < count * scenario.top_k; ++i) {
      group.topk_idx.push_back(expert(rng));
      group.topk_weights.push_back(weight(rng));
      // The weight of a slot without a route is never used.
      if (group.topk_idx.back() < 0) group.topk_weights.back() = std::nanf("");
    }
  }
  return groups;
}

std::vector<std::vector<float>> expected_outputs(const Scenario& scenario,
                                                 const std::vector<GroupTokens>& tokens) {
  std::vector<std::vector<float>> outputs;
  for (const GroupTokens& group : tokens) {
    std::vector<float>& y = outputs.emplace_back();
    const Oracle oracle(scenario, group);
    const std::size_t count = group.topk_idx.size() / static_cast<std::size_t>(scenario.top_k);
    for (std::size_t token = 0; token < count; ++token) {
      const Row row = oracle.token(token);
      y.insert(y.end(), row.begin(), row.end());
    }
  }
  return outputs;
}

Result<DispatchPlan> plan_scenario(const Scenario& scenario,
                                   const Dispatcher& dispatcher,
                                   int rank) {
  DispatchPlan request;
  request.spec.hidden_size = scenario.hidden_size;
  request.spec.intermediate_size = 16 * scenario.tp;
  request.spec.num_experts = scenario.num_experts;
  request.spec.top_k = scenario.top_k;
  request.spec.x_dtype = scenario.x_dtype;
  request.spec.y_dtype = scenario.y_dtype;
  request.spec.apply_router_weight_on_input = scenario.weight_input;
  request.mode = scenario.mode;
  request.rank = rank;
  request.tp_size = scenario.tp;
  request.ep_size = scenario.ep;
  request.dp_size = scenario.dp;
  request.combine_mode = scenario.combine_mode;
  request.combine_dtype = scenario.combine_dtype;
  request.payload = scenario.payload;
  request.row_dtype = scenario.row_dtype;
  request.max_tokens_per_rank = scenario.max_tokens_per_rank;
  const int moe_tp = scenario.ep > 0 ? std::max(scenario.tp / scenario.ep, 1) : 1;
  const Range experts = experts_of(scenario.num_experts, std::max(scenario.ep, 1), rank / moe_tp);
  request.shard = {experts.begin, experts.end - experts.begin, rank % moe_tp * 16, 16};
  return dispatcher.plan(std::move(request));
}

ScenarioResult run_scenario(const Scenario& scenario, const std::vector<GroupTokens>& tokens) {
  const auto ranks = static_cast<std::size_t>(scenario.tp);
  ScenarioResult result;
  result.y.resize(ranks);
  result.num_rows.resize(ranks);
  result.num_routes.resize(ranks);
  result.dropped_routes.resize(ranks);
  std::vector<char> intact(ranks, 1);
  std::vector<char> untouched(ranks, 1);
  const int group_size = scenario.tp / scenario.dp;
  RankOutcome outcome = run_ranks(scenario.tp, [&](int rank, Transport& transport) {
    RankRun run(scenario, tokens[static_cast<std::size_t>(rank / group_size)], transport, rank);
    Status status = run.run(result);
    intact[static_cast<std::size_t>(rank)] = run.guards_intact() ? 1 : 0;
    untouched[static_cast<std::size_t>(rank)] = run.untouched() ? 1 : 0;
    return status;
  });
  result.status = std::move(outcome.status);
  result.num_collectives = std::move(outcome.num_collectives);
  const auto is_set = [](char value) { return value == 1; };
  result.guards_intact = std::ranges::all_of(intact, is_set);
  result.outputs_untouched = std::ranges::all_of(untouched, is_set);
  return result;
}

std::string check_scenario(const Scenario& scenario, const std::vector<GroupTokens>& tokens) {
  const ScenarioResult result = run_scenario(scenario, tokens);
  const std::vector<std::vector<float>> want = expected_outputs(scenario, tokens);
  std::ostringstream wrong;
  const std::size_t group_size = static_cast<std::size_t>(scenario.tp / scenario.dp);
  for (std::size_t rank = 0; rank < result.y.size(); ++rank) {
    if (!result.status[rank].ok()) {
      wrong << "rank " << rank << ": " << result.status[rank].to_string() << "\n";
      continue;
    }
    if (result.num_collectives[rank] != result.num_collectives[0]) {
      wrong << "rank " << rank << " made " << result.num_collectives[rank]
            << " collectives, rank 0 " << result.num_collectives[0] << "\n";
    }
    const std::vector<float>& y = result.y[rank];
    const std::vector<float>& expected = want[rank / group_size];
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (std::memcmp(&y[i], &expected[i], sizeof(float)) == 0) continue;
      wrong << "rank " << rank << " element " << i << ": " << y[i] << ", want " << expected[i]
            << "\n";
      break;
    }
  }
  if (!result.guards_intact) wrong << "a guard was overwritten\n";
  return wrong.str();
}

}  // namespace halfbyte::test
