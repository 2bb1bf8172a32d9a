// SPDX-License-Identifier: Apache-2.0
//
// The seam between the layer and how tokens reach the experts and come back.
#ifndef HALFBYTE_MOE_DISPATCHER_H_
#define HALFBYTE_MOE_DISPATCHER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport.h"
#include "moe/expert_backend.h"

namespace halfbyte {

/// What a token's row is when it travels.
enum class Payload : std::int32_t { kAsGiven = 0, kNvfp4 = 1, kNvfp4Dynamic = 2 };

/// A dispatcher's decisions for one layer on one rank.
struct DispatchPlan {
  std::string dispatcher;  // local, standard, all_to_all
  Device device;           // where the layer lives
  MoeSpec spec;
  ActivationMode mode = ActivationMode::kW4a16;
  ExpertShard shard;
  int rank = 0;
  int tp_size = 1, ep_size = 1, dp_size = 1;  // moe_tp = tp / ep
  CombineMode combine_mode = CombineMode::kOrdered;
  DType combine_dtype = DType::kF32;  // wire
  Payload payload = Payload::kAsGiven;
  std::int64_t max_tokens_per_rank = 0;  // T_r at most; D under all_to_all
  std::int64_t capacity_tokens = 0;      // rows entering the experts at most (10.4)
  std::int64_t max_routes = 0;
  std::int64_t dispatch_bytes_per_token = 0;
  std::int64_t combine_bytes_per_token = 0;
  DType row_dtype = DType::kF32;  // of ExpertOutput, from the backend's plan
  WorkspaceLayout workspace;
};

/// One step's input on this rank. Dispatchers of the host find routing.num_valid_tokens null: the
/// layer has replaced the ids of padding.
struct DispatchInput {
  ConstMatrixView x;                              // [T, H] of spec.x_dtype
  Routing routing;                                // [T, k]
  float s1 = 1.0F;                                // kW4a4: the scale a payload is quantised with
  std::span<const std::int64_t> tokens_per_rank;  // [dp_size] T_r; empty with one rank
};

/// Thread rule: its rank's thread.
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;

  virtual std::string_view name() const = 0;
  virtual Status can_run(const DispatchPlan& request) const = 0;
  /// Fills payload sizes, capacity and workspace. Pure.
  virtual Result<DispatchPlan> plan(DispatchPlan request) const = 0;

  /// Sends tokens to the ranks of their experts and groups what arrived by (expert, token, slot).
  /// kCapacityExceeded before anything is sent; two dispatches without a combine are refused.
  virtual Result<DispatchedTokens> dispatch(const DispatchPlan& plan,
                                            const DispatchInput& input,
                                            Workspace workspace,
                                            device::Stream* stream) = 0;
  /// Weighs and sums rows in the fixed order of nvfp4-moe 9.5, brings them home, adds the shared
  /// expert, rounds once into y [T, H].
  virtual Status combine(const DispatchPlan& plan,
                         const DispatchedTokens& tokens,
                         const ExpertOutput& output,
                         const SharedExpert& shared,
                         MatrixView y,
                         Workspace workspace,
                         device::Stream* stream) = 0;
  /// Routes with an id outside [0, E) in the last dispatch, and rows with no valid id.
  virtual std::int64_t last_dropped_routes() const = 0;
};

/// Ok when a forward fits (nvfp4-moe 10.4), from the list that every rank has, so that all ranks
/// answer alike: T of this rank without a list.
///   local and standard with dp = 1: T <= capacity; standard, dp > 1: sum of T_r <= capacity;
///   all_to_all: max of T_r <= max_tokens_per_rank.
Status check_forward_fits(const DispatchPlan& plan,
                          std::int64_t num_tokens,
                          std::span<const std::int64_t> tokens_per_rank);

/// By name; the one place where dispatchers are listed (dispatch/list.cpp). `transport` is null for
/// local and outlives the dispatcher. kUnsupported: the scheme does not run on such a device.
std::vector<std::string> list_dispatchers();
Result<std::unique_ptr<Dispatcher>> make_dispatcher(std::string_view name,
                                                    Transport* transport,
                                                    DeviceKind device_kind = DeviceKind::kHost);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_DISPATCHER_H_
