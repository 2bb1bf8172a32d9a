// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/cuda_tactic_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "device/buffer.h"
#include "device/event.h"
#include "device/graph.h"
#include "device/properties.h"
#include "formats/convert.h"
#include "kernels/cuda/common/read_stream.h"
#include "moe/backends/cuda_backend.h"
#include "moe/dispatch/grouping.h"
#include "moe/rotating_routing.h"

namespace halfbyte {
namespace {

using device::DeviceBuffer;

constexpr std::int64_t kCopiesOfCache = 3;
constexpr std::int64_t kRandomRows = 251;  // of x, then again: a prime, so that experts differ
constexpr std::int64_t kSampleRows = 64;   // of the output
// A timing is of so many tokens, but 2 to 8 steps: as in use, a step's start overlaps the end of
// the one before, and a step alone would find the device idle and its clock high.
constexpr std::int64_t kTimedTokens = 2048;
constexpr std::int64_t kFewestSteps = 2;
constexpr std::int64_t kMostSteps = 8;
// Elements from one step's array to the next: what they hold, rounded up to what kernels may ask of
// an address.
constexpr std::int64_t stride_of(std::int64_t count) {
  return round_up(count, 16);
}
// Two answers that are each within the widest end-to-end row of nvfp4-moe 8.3 (w4a4 modes, bf16
// rows) of the exact one are at most twice that apart.
constexpr double kLargestDistance = 2 * (3e-3 + 0x1p-9);

// A routing as a dispatcher would hand it over, on the host.
struct HostRoutes {
  std::vector<std::int64_t> offset;     // [L + 1]
  std::vector<std::int32_t> count;      // [L]
  std::vector<std::int32_t> route_row;  // [routes]
};

HostRoutes group(const ExpertPlan& plan, const Routing& routing, std::int64_t num_tokens) {
  const std::int64_t top_k = plan.spec.top_k;
  const std::int64_t local = plan.shard.num_local_experts;
  HostRoutes routes;
  routes.offset.resize(static_cast<std::size_t>(local + 1));
  routes.count.resize(static_cast<std::size_t>(local));
  const auto slots = static_cast<std::size_t>(num_tokens * top_k);
  routes.route_row.resize(slots);
  std::vector<std::int64_t> slot_route(slots);
  ExpertShard shard;
  shard.num_local_experts = local;  // the ids count from this rank's first
  const std::int64_t num_routes = group_routes(
      routing.topk_idx, top_k, shard,
      {routes.offset.data(), routes.count.data(), routes.route_row.data(), slot_route.data()});
  routes.route_row.resize(static_cast<std::size_t>(num_routes));
  return routes;
}

double distance(std::span<const float> got, std::span<const float> want) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(got[i]) - want[i];
    difference += d * d;
    size += static_cast<double>(want[i]) * want[i];
  }
  return std::sqrt(difference / size);  // NaN: something is not finite, or all is zero
}

class CudaTacticTimer final : public TacticTimer {
 public:
  CudaTacticTimer(ExpertBackend& backend,
                  const ExpertPlan& plan,
                  const PreparedExpertWeights& prepared,
                  device::Stream stream,
                  device::Event begin,
                  device::Event end)
      : backend_(backend),
        plan_(plan),
        prepared_(prepared),
        stream_(std::move(stream)),
        begin_(std::move(begin)),
        end_(std::move(end)) {}

  Status allocate();
  Status set_step(std::int64_t num_tokens, const std::string& default_tactic) override;
  Status check(const std::string& tactic) override;
  Result<double> microseconds(const std::string& tactic) override;

 private:
  std::int64_t row_bytes() const { return plan_.spec.hidden_size * dtype_bytes(plan_.row_dtype); }
  template <typename T>
  Status put(const std::vector<T>& values, const DeviceBuffer& buffer, std::int64_t first) const {
    return buffer.upload(std::as_bytes(std::span(values)),
                         static_cast<std::size_t>(first) * sizeof(T), stream_);
  }
  Status fill_x() const;
  ExpertPlan plan_with(const std::string& tactic) const;
  Status add_step(const HostRoutes& routes, std::int64_t num_tokens);
  Status run(const ExpertPlan& plan, const DispatchedTokens& step);
  Result<std::vector<float>> answer(const std::string& tactic);

  ExpertBackend& backend_;
  const ExpertPlan& plan_;
  const PreparedExpertWeights& prepared_;
  device::Stream stream_;  // one of its own: graphs are captured from it
  device::Event begin_, end_;
  DeviceBuffer workspace_, x_, rows_, offset_, count_, route_row_, cache_, sink_;
  std::vector<DispatchedTokens> steps_;
  std::map<std::string, device::Graph> graphs_;  // of these steps, by tactic
  std::int64_t num_routes_ = 0;
  std::vector<float> want_;  // of the default tactic
};

Status CudaTacticTimer::allocate() {
  using halfbyte::allocate;  // cuda_backend.h
  HALFBYTE_ASSIGN_OR_RETURN(const device::Properties properties,
                            device::read_properties(plan_.limits.device.index));
  const std::int64_t local = plan_.shard.num_local_experts;
  const std::int64_t tokens = std::max(kTimedTokens, kFewestSteps * plan_.capacity_tokens);
  const std::int64_t slots = tokens * plan_.spec.top_k + kMostSteps * stride_of(1);
  HALFBYTE_RETURN_IF_ERROR(
      allocate(workspace_, static_cast<std::int64_t>(plan_.workspace.total_bytes())));
  HALFBYTE_RETURN_IF_ERROR(allocate(x_, plan_.capacity_tokens * plan_.spec.hidden_size * 2));
  HALFBYTE_RETURN_IF_ERROR(allocate(rows_, plan_.max_routes * row_bytes()));
  HALFBYTE_RETURN_IF_ERROR(allocate(offset_, kMostSteps * stride_of(local + 1) * 8));
  HALFBYTE_RETURN_IF_ERROR(allocate(count_, kMostSteps * stride_of(local) * 4));
  HALFBYTE_RETURN_IF_ERROR(allocate(route_row_, slots * 4));
  HALFBYTE_RETURN_IF_ERROR(allocate(cache_, kCopiesOfCache * properties.l2_bytes));
  HALFBYTE_RETURN_IF_ERROR(allocate(sink_, sizeof(std::uint32_t)));
  HALFBYTE_RETURN_IF_ERROR(cache_.fill(std::byte{1}, stream_));
  return fill_x();
}

// Zeros would let the products run faster than any real token does.
Status CudaTacticTimer::fill_x() const {
  const std::int64_t hidden = plan_.spec.hidden_size;
  const std::int64_t capacity = plan_.capacity_tokens;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(std::min(capacity, kRandomRows) * hidden));
  for (float& value : values)
    value = normal(random);
  std::vector<std::byte> rows(values.size() * 2);
  narrow_from_f32(DType::kBf16, values.data(), std::ssize(values), rows.data());
  for (std::int64_t row = 0; row < capacity; row += kRandomRows) {
    const auto bytes = static_cast<std::size_t>(std::min(kRandomRows, capacity - row) * hidden * 2);
    HALFBYTE_RETURN_IF_ERROR(x_.upload(std::span(rows).first(bytes),
                                       static_cast<std::size_t>(row * hidden * 2), stream_));
  }
  return stream_.synchronize();
}

Status CudaTacticTimer::add_step(const HostRoutes& routes, std::int64_t num_tokens) {
  const std::int64_t step = std::ssize(steps_);
  const std::int64_t first_offset = step * stride_of(std::ssize(routes.offset));
  const std::int64_t first_count = step * stride_of(std::ssize(routes.count));
  const std::int64_t first_row = step * stride_of(num_tokens * plan_.spec.top_k);
  HALFBYTE_RETURN_IF_ERROR(put(routes.offset, offset_, first_offset));
  HALFBYTE_RETURN_IF_ERROR(put(routes.count, count_, first_count));
  HALFBYTE_RETURN_IF_ERROR(put(routes.route_row, route_row_, first_row));
  HALFBYTE_RETURN_IF_ERROR(stream_.synchronize());
  DispatchedTokens tokens;
  tokens.x = {x_.data(), DType::kBf16, num_tokens, plan_.spec.hidden_size, plan_.limits.device};
  tokens.num_rows = num_tokens;
  tokens.route_row = route_row_.as<std::int32_t>() + first_row;
  tokens.expert_offset = offset_.as<std::int64_t>() + first_offset;
  tokens.expert_count = count_.as<std::int32_t>() + first_count;
  tokens.num_routes = -1;  // as a dispatcher on a device says
  steps_.push_back(tokens);
  return {};
}

Status CudaTacticTimer::set_step(std::int64_t num_tokens, const std::string& default_tactic) {
  graphs_.clear();
  steps_.clear();
  RotatingRouting routing({plan_.spec.num_experts, plan_.shard.num_local_experts, plan_.spec.top_k},
                          num_tokens);
  num_routes_ = routing.num_routes();
  const std::int64_t num_steps = std::clamp(kTimedTokens / num_tokens, kFewestSteps, kMostSteps);
  for (std::int64_t step = 0; step < num_steps; ++step)
    HALFBYTE_RETURN_IF_ERROR(add_step(group(plan_, routing.round(step), num_tokens), num_tokens));
  HALFBYTE_ASSIGN_OR_RETURN(want_, answer(default_tactic));
  return {};
}

ExpertPlan CudaTacticTimer::plan_with(const std::string& tactic) const {
  ExpertPlan forced = plan_;
  forced.tactics = {{plan_.capacity_tokens, tactic}};
  return forced;
}

Status CudaTacticTimer::run(const ExpertPlan& plan, const DispatchedTokens& step) {
  const MatrixView rows(rows_.data(), plan.row_dtype, plan.max_routes, plan.spec.hidden_size,
                        plan.limits.device);
  return backend_.run(plan, prepared_, step, {rows}, {workspace_.data(), workspace_.size()},
                      &stream_);
}

// The first rows, so that one expert's weights and the last of a tile are among them. What a tactic
// leaves unwritten is NaN, not the answer of the one before.
Result<std::vector<float>> CudaTacticTimer::answer(const std::string& tactic) {
  HALFBYTE_RETURN_IF_ERROR(rows_.fill(std::byte{0xFF}, stream_));
  HALFBYTE_RETURN_IF_ERROR(run(plan_with(tactic), steps_.front()));
  const std::int64_t num_rows = std::min(num_routes_, kSampleRows);
  std::vector<std::byte> bytes(static_cast<std::size_t>(num_rows * row_bytes()));
  HALFBYTE_RETURN_IF_ERROR(rows_.download(bytes, 0, stream_));
  HALFBYTE_RETURN_IF_ERROR(stream_.synchronize());
  std::vector<float> values(static_cast<std::size_t>(num_rows * plan_.spec.hidden_size));
  widen_to_f32(plan_.row_dtype, bytes.data(), std::ssize(values), values.data());
  return values;
}

Status CudaTacticTimer::check(const std::string& tactic) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::vector<float> got, answer(tactic));
  const double apart = got == want_ ? 0 : distance(got, want_);
  if (!(apart <= kLargestDistance))
    return {StatusCode::kInternal,
            fmt::format("tactic {}: {} relative to the default's rows, want {} at most", tactic,
                        apart, kLargestDistance)};
  const ExpertPlan plan = plan_with(tactic);
  HALFBYTE_ASSIGN_OR_RETURN(device::Graph graph, device::Graph::capture(stream_, [&]() -> Status {
                              for (const DispatchedTokens& step : steps_)
                                HALFBYTE_RETURN_IF_ERROR(run(plan, step));
                              return {};
                            }));
  graphs_.insert_or_assign(tactic, std::move(graph));
  return {};
}

Result<double> CudaTacticTimer::microseconds(const std::string& tactic) {
  const auto graph = graphs_.find(tactic);
  if (graph == graphs_.end())
    return Status(StatusCode::kInternal, fmt::format("tactic {}: timed unchecked", tactic));
  HALFBYTE_RETURN_IF_ERROR(cuda::launch_read_stream(cache_.data(),
                                                    static_cast<std::int64_t>(cache_.size()),
                                                    sink_.as<std::uint32_t>(), stream_.handle()));
  HALFBYTE_RETURN_IF_ERROR(begin_.record(stream_));
  HALFBYTE_RETURN_IF_ERROR(graph->second.launch(stream_));
  HALFBYTE_RETURN_IF_ERROR(end_.record(stream_));
  HALFBYTE_ASSIGN_OR_RETURN(const float milliseconds, begin_.milliseconds_until(end_));
  return milliseconds * 1e3 / static_cast<double>(steps_.size());
}

}  // namespace

Result<std::unique_ptr<TacticTimer>> make_cuda_tactic_timer(ExpertBackend& backend,
                                                            const ExpertPlan& plan,
                                                            const PreparedExpertWeights& prepared,
                                                            device::Stream& stream) {
  HALFBYTE_RETURN_IF_ERROR(stream.synchronize());  // the weights are there
  HALFBYTE_ASSIGN_OR_RETURN(device::Stream own, device::Stream::create());
  HALFBYTE_ASSIGN_OR_RETURN(device::Event begin, device::Event::create());
  HALFBYTE_ASSIGN_OR_RETURN(device::Event end, device::Event::create());
  auto timer = std::make_unique<CudaTacticTimer>(backend, plan, prepared, std::move(own),
                                                 std::move(begin), std::move(end));
  HALFBYTE_RETURN_IF_ERROR(timer->allocate());
  return std::unique_ptr<TacticTimer>(std::move(timer));
}

}  // namespace halfbyte
