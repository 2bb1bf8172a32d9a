// SPDX-License-Identifier: Apache-2.0
//
// What the backends of CUDA devices have in common.
#ifndef HALFBYTE_MOE_BACKENDS_CUDA_BACKEND_H_
#define HALFBYTE_MOE_BACKENDS_CUDA_BACKEND_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "device/buffer.h"
#include "device/properties.h"
#include "moe/expert_backend.h"

namespace halfbyte {

/// Ok when the layer lives on a CUDA device of this compute capability; `family` says which that
/// is. For a layer of the host: whether there is a device here at all.
Status can_use_cuda_device(std::string_view backend,
                           int compute_capability,
                           std::string_view family,
                           const DeviceLimits& limits);

/// Ok for what the kernels of CUDA devices take: NVFP4 experts, x in bf16, router weights at the
/// end.
Status check_cuda_spec(std::string_view backend, const MoeSpec& spec);

/// The device's name and multiprocessors, or why there is none.
std::string cuda_device_note();

/// The limits as kernels ask for them.
device::Properties properties_of(const DeviceLimits& limits);

/// Of a step whose ids are spread evenly over all experts: that is what the host knows of one.
struct ExpectedLoad {
  double rows = 0;     // of the local experts
  double experts = 0;  // local ones with a row
  double rows_per_expert() const { return experts > 0 ? rows / experts : 0; }
};
ExpectedLoad expected_load(const ExpertPlan& plan, std::int64_t num_tokens);

/// Rows of what by_projection() gives.
inline constexpr int kGate = 0;
inline constexpr int kUp = 1;
inline constexpr int kDown = 2;
/// [3, L]: alphas, or in w4a4_dynamic global scales, for each row has its own alpha. The gate's are
/// 1 where the activation has none.
std::vector<float> by_projection(const ExpertPlan& plan, const ExpertScales& scales);

Status allocate(device::DeviceBuffer& buffer, std::int64_t bytes);

/// A step without routes, with which warm_up launches every kernel once. The workspace of a plan
/// starts with its offsets and counts.
void add_step_without_routes(ExpertPlan& plan);
DispatchedTokens step_without_routes(const ExpertPlan& plan,
                                     std::int64_t num_tokens,
                                     Workspace workspace);

/// What every call of a CUDA device's backend begins with: whether it can be. Then the backend's
/// own part has its turn, with a stream that is there.
class CudaBackend : public ExpertBackend {
 public:
  DeviceKind device_kind() const final { return DeviceKind::kCuda; }
  Result<ExpertPlan> plan(ExpertPlan request) const final;
  Status prepare(const ExpertPlan& plan,
                 std::int64_t local_expert_idx,
                 const CanonicalExpert& expert,
                 PreparedExpertWeights& prepared,
                 device::Stream* stream) final;
  Status set_scales(const ExpertPlan& plan,
                    const ExpertScales& scales,
                    PreparedExpertWeights& prepared,
                    device::Stream* stream) final;
  Result<std::unique_ptr<TacticTimer>> make_tactic_timer(const ExpertPlan& plan,
                                                         const PreparedExpertWeights& prepared,
                                                         device::Stream* stream) final;
  Status warm_up(const ExpertPlan& plan,
                 const PreparedExpertWeights& prepared,
                 Workspace workspace,
                 device::Stream* stream) final;
  Status run(const ExpertPlan& plan,
             const PreparedExpertWeights& prepared,
             const DispatchedTokens& tokens,
             const ExpertOutput& output,
             Workspace workspace,
             device::Stream* stream) final;

 private:
  /// `request` has a mode, and can_use() and can_run() are ok.
  virtual Result<ExpertPlan> make_plan(ExpertPlan request) const = 0;
  virtual Status prepare_expert(const ExpertPlan& plan,
                                std::int64_t local_expert_idx,
                                const CanonicalExpert& expert,
                                PreparedExpertWeights& prepared,
                                const device::Stream& stream) = 0;
  virtual Status replace_scales(const ExpertPlan& plan,
                                const ExpertScales& scales,
                                PreparedExpertWeights& prepared,
                                const device::Stream& stream) = 0;
  /// Launches each kernel that a step may take once, with step_without_routes(), which is zeroed,
  /// so that the driver has loaded it.
  virtual Status launch_every_step(const ExpertPlan& plan,
                                   const PreparedExpertWeights& prepared,
                                   Workspace workspace,
                                   const device::Stream& stream) = 0;
  /// Into `rows`.
  virtual Status launch_step(const ExpertPlan& plan,
                             const PreparedExpertWeights& prepared,
                             const DispatchedTokens& tokens,
                             void* rows,
                             Workspace workspace,
                             const device::Stream& stream) = 0;
};

/// What a plan's batches launch from so many tokens on.
template <typename Step>
struct StepRange {
  std::int64_t first_tokens = 0;
  Step step;
};
/// The steps that `choose(num_tokens)` gives as tokens grow from 1 to `capacity_tokens`; equal
/// neighbours once. Every number of tokens at first, then in steps of a sixteenth and the last:
/// finer than the kernels' choices, and than the buckets of measured ones.
template <typename Step, typename Choose>
std::vector<StepRange<Step>> list_steps(std::int64_t capacity_tokens, Choose choose) {
  std::vector<StepRange<Step>> ranges;
  for (std::int64_t tokens = 1, stride = 1; tokens <= capacity_tokens; tokens += stride) {
    const Step step = choose(tokens);
    if (ranges.empty() || !step.launches_the_same(ranges.back().step))
      ranges.push_back({tokens, step});
    const std::int64_t left = std::max<std::int64_t>(1, capacity_tokens - tokens);
    stride = std::clamp<std::int64_t>(tokens / 16, 1, left);
  }
  return ranges;
}

/// The most tokens, up to `capacity_tokens`, that `holds` holds for, as it does for all below.
template <typename Holds>
std::int64_t most_tokens(std::int64_t capacity_tokens, Holds holds) {
  std::int64_t low = 0;
  std::int64_t high = capacity_tokens;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (holds(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// A line for each range: ExpertPlan::kernels.
template <typename Step>
std::vector<std::string> describe_steps(const std::vector<StepRange<Step>>& ranges) {
  std::vector<std::string> lines;
  lines.reserve(ranges.size());
  for (const StepRange<Step>& range : ranges)
    lines.push_back("from " + std::to_string(range.first_tokens) +
                    " tokens: " + range.step.to_string());
  return lines;
}

/// One T a device, alive as long as somebody holds it. Thread rule: any thread.
template <typename T>
class OnePerDevice {
 public:
  std::shared_ptr<T> of(int device_idx) {
    const std::scoped_lock lock(mutex_);
    std::shared_ptr<T> one = ones_[device_idx].lock();
    if (one == nullptr) {
      one = std::make_shared<T>();
      ones_[device_idx] = one;
    }
    return one;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::weak_ptr<T>> ones_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_CUDA_BACKEND_H_
