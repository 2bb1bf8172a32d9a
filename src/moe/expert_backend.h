// SPDX-License-Identifier: Apache-2.0
//
// The seam between the layer and whoever computes the experts.
#ifndef HALFBYTE_MOE_EXPERT_BACKEND_H_
#define HALFBYTE_MOE_EXPERT_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/workspace_layout.h"
#include "halfbyte/moe.h"
#include "moe/scales.h"
#include "moe/tuning.h"
#include "weights/sharding.h"

namespace halfbyte {

namespace device {
class Stream;
}

/// What a plan may count on; given, never asked of the machine while planning.
struct DeviceLimits {
  Device device;
  int compute_capability = 0;  // 90, 100; 0 on the host
  int num_multiprocessors = 0;
  std::int64_t shared_memory_bytes = 0;
  int num_threads = 0;  // host threads
};

/// How received tokens lie, as a backend is fastest with; all are fields of DispatchedTokens.
enum class TokenLayout : std::int32_t {
  kTokenMajor = 0,   // x has one row per token; route_row says which row each route reads
  kFlat = 1,         // one row per route in (expert, token, slot) order
  kExpertMajor = 2,  // slots of equal size per expert, of which expert_count are valid
};

/// What dispatch hands to a backend. Views into the dispatcher's workspace, on the plan's device.
///
/// Routes of local expert e are numbered expert_offset[e] .. expert_offset[e] + expert_count[e]
/// - 1. Route r reads row route_row[r] of x (row r when route_row is null) and writes row r of the
/// output.
struct DispatchedTokens {
  ConstMatrixView x;  // [rows, H] of the plan's x dtype; null data when the payload is NVFP4
  const std::uint8_t* x_codes = nullptr;        // [rows, H / 2]: NVFP4 payload
  const std::uint8_t* x_block_scale = nullptr;  // [rows, H / 16]
  const float* x_row_scale = nullptr;           // [rows]: kW4a4Dynamic
  std::int64_t num_rows = 0;
  const std::int32_t* route_row = nullptr;      // [num_routes]
  const std::int64_t* expert_offset = nullptr;  // [L + 1]
  const std::int32_t* expert_count = nullptr;   // [L]
  std::int64_t num_routes = 0;                  // sum of the counts; -1: known on the device only
};

/// Rows of the experts, unweighted: row r belongs to route r.
struct ExpertOutput {
  MatrixView rows;  // [max_routes, H] of plan.row_dtype
};

/// A backend's decisions for one layer. Plain data; printed, compared in tests.
struct ExpertPlan {
  std::string backend;
  MoeSpec spec;
  ActivationMode mode = ActivationMode::kW4a16;
  ExpertShard shard;
  DeviceLimits limits;
  bool fast_activation_math = false;
  bool exact_float32 = false;
  bool autotune = false;  // tactics will be measured: the workspace has room for each
  TuningTable tactics;    // measured, or forced by name; the backend's own choice for other steps
  std::int64_t capacity_tokens = 0;  // rows of x at most
  std::int64_t max_routes = 0;       // rows of the output at most
  TokenLayout token_layout = TokenLayout::kTokenMajor;
  DType row_dtype = DType::kF32;   // of ExpertOutput
  std::string x_format, h_format;  // as the kernels see them: "bf16", "split15", "nvfp4", "fp32"
  std::string activation_math = "portable";  // what computes the sigmoid
  std::vector<std::string> kernels;  // what a step of so many tokens launches, where that differs
  std::string prepared_layout;       // name and version
  std::int64_t prepared_bytes = 0;   // weights of all local experts
  WorkspaceLayout workspace;
};

/// A backend's form of the local experts, on its device. Addresses never change once allocated.
class PreparedExpertWeights {
 public:
  virtual ~PreparedExpertWeights() = default;
};

/// Thread rule: const functions from any thread; one run at a time per workspace.
class ExpertBackend {
 public:
  virtual ~ExpertBackend() = default;

  virtual std::string_view name() const = 0;
  virtual DeviceKind device_kind() const { return DeviceKind::kHost; }
  /// Ok, or why it cannot run on such a device. Pure, except that a backend of a device says of the
  /// host whether there is one here at all.
  virtual Status can_use(const DeviceLimits& limits) const;
  /// Ok, or the reason: format, activation, mode, dtype, alignment. Pure.
  virtual Status can_run(const MoeSpec& spec, ActivationMode mode) const = 0;
  /// What it would run with: the instruction set, the device.
  virtual std::string note() const = 0;
  /// What kAuto means here.
  virtual ActivationMode resolve_auto(const MoeSpec& spec) const = 0;

  /// Decides everything that depends on sizes. `request` has spec, mode, shard, limits, capacity,
  /// math options and tactics set; the result has the rest. Pure; needs no device. A plan is a
  /// request too. kInvalidArgument: a tactic that the backend does not have.
  virtual Result<ExpertPlan> plan(ExpertPlan request) const = 0;
  /// The tactics worth measuring for each bucket of tokens, where there are several. Pure: the same
  /// on every rank.
  virtual std::vector<TacticList> list_tactics(const ExpertPlan& /*plan*/) const { return {}; }

  virtual Result<std::unique_ptr<PreparedExpertWeights>> allocate(const ExpertPlan& plan) = 0;
  /// Converts one local expert (already cut to the shard). Different experts may be prepared from
  /// different threads. A second call replaces the first in place.
  virtual Status prepare(const ExpertPlan& plan,
                         std::int64_t local_expert_idx,
                         const CanonicalExpert& expert,
                         PreparedExpertWeights& prepared,
                         device::Stream* stream) = 0;
  /// Sets every derived scalar in place; after the last prepare, and after each reload.
  virtual Status set_scales(const ExpertPlan& plan,
                            const ExpertScales& scales,
                            PreparedExpertWeights& prepared,
                            device::Stream* stream) = 0;
  /// Times this layer's experts on memory of its own; kUnsupported where nothing is measured.
  virtual Result<std::unique_ptr<TacticTimer>> make_tactic_timer(
      const ExpertPlan& plan, const PreparedExpertWeights& prepared, device::Stream* stream);
  /// All one-time work (module load, attributes).
  virtual Status warm_up(const ExpertPlan& plan,
                         const PreparedExpertWeights& prepared,
                         Workspace workspace,
                         device::Stream* stream) = 0;
  /// Computes rows of every route. Allocates nothing, synchronises nothing.
  virtual Status run(const ExpertPlan& plan,
                     const PreparedExpertWeights& prepared,
                     const DispatchedTokens& tokens,
                     const ExpertOutput& output,
                     Workspace workspace,
                     device::Stream* stream) = 0;
};

/// Every backend of this build, best first: the one place where backends are listed
/// (backends/list.cpp). One whose kernels are not built is an entry too, and its can_use says so.
const std::vector<std::shared_ptr<ExpertBackend>>& list_expert_backends();
std::shared_ptr<ExpertBackend> make_reference_backend();
std::shared_ptr<ExpertBackend> make_cpu_backend();
std::shared_ptr<ExpertBackend> make_cuda_sm90_backend();
std::shared_ptr<ExpertBackend> make_cuda_sm100_backend();

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_EXPERT_BACKEND_H_
