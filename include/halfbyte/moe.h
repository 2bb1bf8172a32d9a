// SPDX-License-Identifier: Apache-2.0
//
// The MoE layer, for those who have an engine of their own: describe it (MoeSpec, MoeOptions),
// create it, give it its experts one at a time, run it. examples/moe_layer.cpp is a whole program.
#ifndef HALFBYTE_MOE_H_
#define HALFBYTE_MOE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/result.h"
#include "halfbyte/tensor_view.h"

namespace halfbyte {

class NoticeSink;  // where notices go, one line each, at most once per key
class Transport;   // connects ranks (halfbyte/transport.h); null: one rank

/// A sink that hands each line to `line`, at most once per key. Give the same one to every layer.
std::shared_ptr<NoticeSink> make_notice_sink(std::function<void(std::string_view)> line);

// --------------------------------------------------------------------------------- weights

/// How one matrix is stored.
enum class WeightFormat : std::int32_t {
  kNvfp4 = 0,  // E2M1 codes, an E4M3 block scale per 16 columns, one fp32 global scale
  kFp8 = 1,    // E4M3, an fp32 scale per scale_block_rows x scale_block_cols
  kBf16 = 2,
  kF16 = 3,
  kF32 = 4,
};

/// A weight matrix [rows, cols] in canonical form: y = x W^T. A view; it owns nothing.
///
///   kNvfp4: w[r][c] = e2m1(codes, nibble c) * e4m3(block_scale[r][c / 16]) * global_scale
///   kFp8:   w[r][c] = e4m3(codes[r][c]) * scale[r / scale_block_rows][c / scale_block_cols]
///   others: codes holds the elements, little-endian, possibly unaligned.
struct CanonicalMatrix {
  WeightFormat format = WeightFormat::kNvfp4;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  // nvfp4 [rows, cols / 2], low nibble = even column; else [rows, cols] elements
  std::span<const std::uint8_t> codes;
  std::span<const std::uint8_t> block_scale;  // nvfp4 [rows, cols / 16], E4M3 bytes, linear layout
  float global_scale = 1.0F;          // nvfp4; multiplies: not the reciprocal some tools store
  std::span<const float> scale;       // fp8 [ceil(rows / block_rows), ceil(cols / block_cols)]
  std::int64_t scale_block_rows = 0;  // fp8
  std::int64_t scale_block_cols = 0;  // fp8
};

/// One expert. `gate` has no rows when the activation is not gated.
struct CanonicalExpert {
  CanonicalMatrix gate;  // [intermediate_size, hidden_size]
  CanonicalMatrix up;    // [intermediate_size, hidden_size]
  CanonicalMatrix down;  // [hidden_size, intermediate_size]
};

/// A scale tensor as a caller has it; shape {} is a scalar, {0} is empty.
struct ScaleTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

/// Activation scales of all experts (never of this rank's only). Needed by w4a4 alone.
/// Accepted shapes: [], [1], [E], [E,1]; for gate_up also [E,2] (gate, up); [L], [L,2] with a
/// transport.
struct ExpertInputScales {
  ScaleTensor gate_up;
  ScaleTensor down;
};

/// All experts of a rank as plain arrays, for callers who do not stream them one at a time.
struct ExpertArrays {
  std::int64_t num_experts = 0;  // L: how many are given, in the order of their ids
  // Gate rows first; [L, I, ..] when the activation is not gated.
  std::span<const std::uint8_t> gate_up_codes;        // [L, 2 * I, H / 2]
  std::span<const std::uint8_t> gate_up_block_scale;  // [L, 2 * I, H / 16]
  std::span<const std::uint8_t> down_codes;           // [L, H, I / 2]
  std::span<const std::uint8_t> down_block_scale;     // [L, H, I / 16]
  // Of all experts [], [1], [E], [E,1], [E,2] (gate, up), or of the given ones [L], [L,2].
  ScaleTensor gate_up_global_scale;
  ScaleTensor down_global_scale;  // [], [1], [E], [E,1], or [L]
};

// --------------------------------------------------------------------------------- description

/// Which numbers the experts see. docs/numerics.md defines each.
enum class ActivationMode : std::int32_t {
  kAuto = 0,
  kW4a16 = 1,
  kW4a4 = 2,
  kW4a4Dynamic = 3,
  kW4a8 = 4
};
std::string_view activation_mode_name(ActivationMode mode);
Result<ActivationMode> parse_activation_mode(std::string_view name);

/// docs/numerics.md, section 4, has the formulas.
enum class ActivationFunction : std::int32_t {
  kSwiglu = 0,
  kSwigluClamped = 1,
  kRelu2 = 2,
  kGegluTanh = 3
};

struct ActivationSpec {
  ActivationFunction function = ActivationFunction::kSwiglu;
  // kSwigluClamped alone: h = (g' * sigmoid(alpha * g')) * (u' + beta), g' = min(g, limit),
  // u' = clamp(u, +-limit).
  float alpha = 1.0F;
  float beta = 0.0F;
  float limit = std::numeric_limits<float>::infinity();
  bool gated() const { return function != ActivationFunction::kRelu2; }
};

/// docs/numerics.md, section 5, has the formulas and the rule for ties.
enum class RoutingMethod : std::int32_t {
  kSoftmax = 0,
  kSoftmaxRenorm = 1,
  kSigmoidBias = 2,
  kGroupedMax = 3,
  kGroupedTop2 = 4,
  kSqrtSoftplus = 5,
  kLlama4 = 6,
};

struct RouterSpec {
  RoutingMethod method = RoutingMethod::kSoftmaxRenorm;
  bool grouped_max_uses_sigmoid = false;  // kGroupedMax: score by sigmoid instead of softmax
  int num_groups = 1;                     // 0 and 1: no groups
  int topk_group = 1;                     // groups kept
  bool renormalize = false;               // for the methods where it is optional
  float routed_scaling_factor = 1.0F;     // multiplied into the weights once, here
};

/// What a layer computes. Nothing about where or how.
struct MoeSpec {
  std::int64_t hidden_size = 0;        // H, a multiple of 16
  std::int64_t intermediate_size = 0;  // I of one whole expert, a multiple of 16
  std::int64_t num_experts = 0;        // E, physical experts over all ranks
  std::int64_t top_k = 0;
  WeightFormat expert_format = WeightFormat::kNvfp4;  // kNvfp4, kFp8 or kBf16
  ActivationSpec activation;
  RouterSpec router;
  bool apply_router_weight_on_input = false;  // top_k must be 1
  DType x_dtype = DType::kBf16;               // kBf16, kF16 or kF32
  DType y_dtype = DType::kBf16;
  bool declares_activation_quantization = false;  // the checkpoint asks for w4a4
};

/// kOrdered: sums in a fixed order, whatever the number of ranks. kFast: the transport may add.
enum class CombineMode : std::int32_t { kOrdered = 0, kFast = 1 };

/// Scratch memory that the layers of one rank share, all on one device, as large as the largest of
/// them needs; it grows when a layer is created and never later: capture CUDA graphs when all
/// layers are there. Between start() and finish() of one layer no other layer with the same
/// workspace may start; on a CUDA device all of them work on one stream.
class MoeWorkspace;
std::shared_ptr<MoeWorkspace> make_moe_workspace();

/// How to run it: the options of the command, one to one. Empty and 0 mean "decide for me".
struct MoeOptions {
  /// Where the layer lives: the host, or a CUDA device. On a CUDA device x, y, shared.rows and
  /// routing are device memory, and see MoeLayer::set_stream().
  Device device;
  std::string runner_backend = "auto";  // --moe-runner-backend
  std::string transport = "auto";       // --moe-transport
  std::string a2a_backend = "none";     // --moe-a2a-backend: none (standard) or all_to_all
  ActivationMode activation_mode = ActivationMode::kAuto;
  CombineMode combine_mode = CombineMode::kOrdered;
  std::optional<DType> combine_dtype;  // wire of combine; default y_dtype
  std::optional<bool> nvfp4_dispatch;  // default: on for the w4a4 modes under all_to_all
  bool fast_activation_math = false;   // --moe-activation-math fast
  bool exact_float32 = false;          // --dtype float32: no backend may narrow activations
  int tp_size = 0;
  int ep_size = 0;
  int dp_size = 0;
  bool enable_dp_attention = false;
  std::int64_t capacity_tokens = 0;  // tokens of the largest forward of a rank; required
  int num_threads = 0;               // of a CPU backend; 0: the cores this process may use
  /// finish_loading() measures which of a CUDA backend's tactics are fastest on this device, once
  /// for each size of layer in a process, and leaves the backend's own choice for a gain of 3 %.
  /// Tactics add in different orders, so another measurement may give other last bits. Off: the own
  /// choice.
  bool autotune = true;
  std::string cache_directory;  // keeps what was measured for later processes; empty: nowhere
  std::shared_ptr<MoeWorkspace> workspace;  // null: the layer has one of its own
  std::shared_ptr<NoticeSink> notices;      // null: notices are dropped; used by rank 0 alone
};

// --------------------------------------------------------------------------------- running

/// topk_idx and topk_weights of a step; views, on the layer's device. An id of -1, or one outside
/// [0, E), is no route.
struct Routing {
  std::span<const std::int32_t> topk_idx;  // [num_tokens, top_k]
  std::span<const float> topk_weights;     // [num_tokens, top_k], final: never scaled again
  /// [1]: rows from this one on are padding, whatever they hold: their rows of y are zeros (without
  /// the shared expert), and no statistic counts them. Read when the step runs. Null: all are
  /// valid.
  const std::int32_t* num_valid_tokens = nullptr;
};

/// Output of a shared expert, added once. `rows` is empty when there is none.
struct SharedExpert {
  enum class Kind : std::int32_t { kNone = 0, kReplicated = 1, kSharded = 2 };
  Kind kind = Kind::kNone;
  ConstMatrixView rows;  // [num_tokens, hidden_size], kF32
};

/// Of one layer on one rank, since creation; start() and route() count. On a CUDA device nobody on
/// the host knows a step's counts: only unroutable_rows counts there, of logits on the host.
struct MoeCounters {
  std::vector<std::int64_t> tokens_per_expert;  // [num_experts]; zero for experts of other ranks
  std::int64_t dropped_routes = 0;              // ids of this rank's tokens that name no expert
  std::int64_t padded_rows = 0;        // rows that reached the experts without being a token
  std::int64_t unroutable_rows = 0;    // logits without a finite value
  std::int64_t expert_bytes_read = 0;  // prepared weights of every expert that had a token
  std::int64_t num_steps = 0;          // start() calls
  std::int64_t experts_touched = 0;    // experts that had a token, over those steps
  std::int64_t dispatch_bytes = 0;     // rows that ranks sent this one, its own too; dp_size > 1
};

/// One MoE layer on one rank.
///
/// create -> load_expert for every expert (any order) -> finish_loading -> run, run, ...
/// Thread rule: one thread at a time. With several ranks every rank makes the same calls.
///
/// On a CUDA device start(), finish() and run() enqueue on the stream of set_stream() and return:
/// no allocation, no synchronisation. They can be captured into a CUDA graph once the layer has
/// run; a replay reads x, routing and the weights where they lay, with what they hold then. A fault
/// inside a kernel shows when the caller synchronises.
class MoeLayer {
 public:
  /// Plans the layer and allocates all it will ever need. `input_scales` may be empty unless the
  /// mode is w4a4. `transport` is null for one rank and outlives the layer.
  ///
  /// @return kInvalidArgument: options contradict, with the remedy; kUnsupported: no backend can do
  ///         it, with each one's reason; kNotFound: w4a4 without an input scale; kCorruptData: an
  ///         input scale that is not finite and > 0, all named; kOutOfMemory.
  static Result<std::unique_ptr<MoeLayer>> create(const MoeSpec& spec,
                                                  const MoeOptions& options,
                                                  const ExpertInputScales& input_scales = {},
                                                  Transport* transport = nullptr);
  ~MoeLayer();
  MoeLayer(const MoeLayer&) = delete;
  MoeLayer& operator=(const MoeLayer&) = delete;

  /// A cudaStream_t of the layer's device, borrowed; null (as at first): its default stream. Later
  /// calls work on it. Loading waits for its copies and orders them after what the stream holds;
  /// order other streams that run this layer yourself.
  /// @return kInvalidArgument: the layer lives on the host, or a step is in flight.
  Status set_stream(void* cuda_stream);

  /// The experts this rank holds: [first_expert, first_expert + num_local_experts).
  std::int64_t first_expert() const;
  std::int64_t num_local_experts() const;

  /// Takes one whole expert (this rank cuts out its part), validates it, and converts it to the
  /// backend's layout. Nothing of `expert` is kept. Experts of other ranks are ignored. Different
  /// experts may be loaded from different threads.
  ///
  /// Loading again replaces weights in place, at the same addresses; a refused expert leaves the
  /// old one running, an accepted one is used from the next finish_loading() on, before which run()
  /// is refused.
  /// @return kInvalidArgument: shape or format differ from the spec, or the stream is being
  ///         captured (the capture goes on); kCorruptData: a global scale that is not finite and
  ///         > 0, or block scales that are NaN or negative, naming row and group (up to 16, then a
  ///         count).
  Status load_expert(std::int64_t expert_idx, const CanonicalExpert& expert);
  /// All experts at once (of all ranks, or of this rank only), then finish_loading(). Every expert
  /// is validated before the first is replaced. Errors: those of load_expert(), and
  /// kInvalidArgument for an array of another size or a scale of another shape.
  Status load_arrays(const ExpertArrays& arrays);
  /// New activation scales for the weights that are loaded next (kW4a4 alone reads them); a refused
  /// one leaves the old. Used from the next finish_loading() on.
  Status set_input_scales(const ExpertInputScales& input_scales);
  /// Computes every derived scale, and on a CUDA device does all one-time work. kInvalidArgument
  /// names the experts that were never loaded, or says that the stream is being captured.
  Status finish_loading();

  /// logits fp32 [num_tokens, E] -> ids and weights, [num_tokens, top_k] each; bias is empty or
  /// [E]. A row without a finite logit gets ids of -1 and weights of 0.
  ///
  /// Works where the logits are, which is where the other views must be: on the host, wherever the
  /// layer lives, with such rows counted; or on the layer's CUDA device, where it enqueues and
  /// returns, with the same bits. kInvalidArgument: a shape, a dtype or another device;
  /// kUnsupported: on a CUDA device, more than 1024 experts or a top_k above 64.
  Status route(ConstMatrixView logits,
               std::span<const float> bias,
               std::span<std::int32_t> topk_idx,
               std::span<float> topk_weights);

  /// y = sum over a token's experts of weight * expert(x), plus the shared expert, rounded once.
  /// x [num_tokens, H] of spec.x_dtype, y [num_tokens, H] of spec.y_dtype; on a CUDA device without
  /// gaps between rows, 16-byte aligned. `tokens_per_rank` lists T_r of all dp ranks, needed when
  /// dp_size > 1.
  /// @return kInvalidArgument: a shape, a dtype, or a call out of order; kCapacityExceeded: more
  ///         tokens than planned. Both leave y untouched, the second on all ranks alike. A step
  ///         that fails in the experts or between ranks is the layer's last: later ones return its
  ///         error.
  Status run(ConstMatrixView x,
             const Routing& routing,
             const SharedExpert& shared,
             MatrixView y,
             std::span<const std::int64_t> tokens_per_rank = {});

  /// run() in two halves; what the caller does between them overlaps with the exchange of tokens.
  /// On the host x and routing are not read after start() returns. On a CUDA device, in the order
  /// of the stream, x is not read after start() and routing not after finish(). So y may be x.
  Status start(ConstMatrixView x,
               const Routing& routing,
               std::span<const std::int64_t> tokens_per_rank = {});
  Status finish(const SharedExpert& shared, MatrixView y);

  /// Tokens already sorted by expert: x and y are [num_local_experts * rows_per_expert, H], of
  /// which the first counts[e] rows of each expert are valid; y is unweighted. Other rows are not
  /// touched. Host only (kUnsupported).
  Status run_bucketed(ConstMatrixView x, std::span<const std::int32_t> counts, MatrixView y);

  /// The plan as text: backend, dispatcher, formats of x, h and rows, workspace map.
  std::string describe_plan() const;
  /// Bytes of workspace that this layer's plan asks for.
  std::size_t workspace_bytes() const;
  std::string_view backend_name() const;
  std::string_view transport_name() const;
  ActivationMode activation_mode() const;
  /// As they are now. Any thread, also while a step runs: then some count it already, some not yet.
  MoeCounters counters() const;

 private:
  struct Impl;
  explicit MoeLayer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_H_
