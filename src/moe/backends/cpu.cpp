// SPDX-License-Identifier: Apache-2.0
//
// Experts on the CPU: weights decoded in registers, exact products of what the plan says the
// activations are, sums in an order that depends on the number of columns alone.
#include "moe/backends/cpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "kernels/cpu/linear.h"
#include "moe/backends/cpu_run.h"
#include "moe/backends/cpu_step.h"
#include "moe/backends/host_backend.h"

namespace halfbyte {
namespace {

// What the kernels see of x or h; `exact` names it where it stays as it is.
std::string format_name(const ExpertPlan& plan, const std::string& exact) {
  if (is_w4a4(plan.mode)) return "nvfp4";
  if (plan.mode == ActivationMode::kW4a8) return "int8";
  return operand_format(plan) == OperandFormat::kSplit15 ? "split15" : exact;
}

class CpuBackend final : public ExpertBackend {
 public:
  explicit CpuBackend(const cpu::KernelTable& kernels) : kernels_(kernels) {}

  std::string_view name() const override { return "cpu"; }

  Status can_run(const MoeSpec& spec, ActivationMode mode) const override {
    const std::string_view missing = cpu::missing_feature(kernels_);
    if (!missing.empty()) {
      return {StatusCode::kUnsupported, fmt::format("cpu: {} kernels: {}", kernels_.name, missing)};
    }
    return check_host_spec(name(), spec, mode == ActivationMode::kAuto ? resolve_auto(spec) : mode);
  }

  std::string note() const override {
    return &kernels_ == &cpu::best_kernel_table() ? cpu::isa_description()
                                                  : fmt::format("{} (asked for)", kernels_.name);
  }

  ActivationMode resolve_auto(const MoeSpec& /*spec*/) const override {
    return ActivationMode::kW4a16;
  }

  Result<ExpertPlan> plan(ExpertPlan request) const override {
    if (request.mode == ActivationMode::kAuto) request.mode = resolve_auto(request.spec);
    HALFBYTE_RETURN_IF_ERROR(can_run(request.spec, request.mode));
    HALFBYTE_RETURN_IF_ERROR(complete_request(request));
    if (request.limits.num_threads <= 0) request.limits.num_threads = usable_cores();
    request.backend = name();
    request.token_layout = TokenLayout::kTokenMajor;
    request.row_dtype = DType::kF32;
    request.x_format = format_name(request, activation_dtype_name(request.spec.x_dtype));
    request.h_format = format_name(request, "fp32");
    request.prepared_layout = cpu::kPanelLayoutName;
    request.prepared_bytes =
        request.shard.num_local_experts * planned_cpu_expert(request).total_bytes();
    plan_cpu_workspace(request);
    return request;
  }

  Result<std::unique_ptr<PreparedExpertWeights>> allocate(const ExpertPlan& plan) override {
    auto prepared = std::make_unique<PreparedCpuExperts>();
    HALFBYTE_RETURN_IF_ERROR(allocate_cpu_experts(plan, *prepared));
    prepared->pool = pool_of(plan);
    return std::unique_ptr<PreparedExpertWeights>(std::move(prepared));
  }

  Status prepare(const ExpertPlan& plan,
                 std::int64_t local_expert_idx,
                 const CanonicalExpert& expert,
                 PreparedExpertWeights& prepared,
                 device::Stream* /*stream*/) override {
    HALFBYTE_RETURN_IF_ERROR(check_expert(plan, local_expert_idx, expert));
    CpuExpert& packed = static_cast<PreparedCpuExperts&>(prepared)
                            .experts[static_cast<std::size_t>(local_expert_idx)];
    return pack_cpu_expert(expert, packed)
        .with_context(fmt::format("expert {}", plan.shard.first_expert + local_expert_idx));
  }

  Status set_scales(const ExpertPlan& plan,
                    const ExpertScales& scales,
                    PreparedExpertWeights& prepared,
                    device::Stream* /*stream*/) override {
    HALFBYTE_RETURN_IF_ERROR(check_scales(plan, scales));
    static_cast<PreparedCpuExperts&>(prepared).scales = scales;
    return {};
  }

  // The threads were started by allocate; there is nothing to tune.
  Status warm_up(const ExpertPlan& /*plan*/,
                 const PreparedExpertWeights& /*prepared*/,
                 Workspace /*workspace*/,
                 device::Stream* /*stream*/) override {
    return {};
  }

  Status run(const ExpertPlan& plan,
             const PreparedExpertWeights& prepared,
             const DispatchedTokens& tokens,
             const ExpertOutput& output,
             Workspace workspace,
             device::Stream* /*stream*/) override {
    HALFBYTE_RETURN_IF_ERROR(check_tokens(plan, tokens, output, workspace));
    run_cpu_experts(plan, static_cast<const PreparedCpuExperts&>(prepared), kernels_, tokens,
                    output, workspace);
    return {};
  }

 private:
  // Threads, first expert and first column of a shard.
  using PoolKey = std::tuple<int, std::int64_t, std::int64_t>;

  // All layers of a rank share one set of threads. Ranks that are threads of one process hold other
  // shards, and so have their own: they do not wait for each other.
  std::shared_ptr<SharedPool> pool_of(const ExpertPlan& plan) {
    const PoolKey key{plan.limits.num_threads, plan.shard.first_expert,
                      plan.shard.intermediate_begin};
    const std::scoped_lock lock(mutex_);
    std::shared_ptr<SharedPool> pool = pools_[key].lock();
    if (pool == nullptr) {
      pool = std::make_shared<SharedPool>(plan.limits.num_threads);
      pools_[key] = pool;
    }
    return pool;
  }

  const cpu::KernelTable& kernels_;
  std::mutex mutex_;
  std::map<PoolKey, std::weak_ptr<SharedPool>> pools_;
};

}  // namespace

std::shared_ptr<ExpertBackend> make_cpu_backend_with(const cpu::KernelTable& kernels) {
  return std::make_shared<CpuBackend>(kernels);
}

std::shared_ptr<ExpertBackend> make_cpu_backend() {
  return make_cpu_backend_with(cpu::best_kernel_table());
}

}  // namespace halfbyte
