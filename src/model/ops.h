// SPDX-License-Identifier: Apache-2.0
//
// The seam between a model and whoever computes everything around its experts.
//
// Activations are fp32 in memory in every compute dtype; under bfloat16 the operations round what
// they hand on (docs/numerics.md). Every row of a result is computed in an order that depends on
// that row's own data and position only, so a request's logits depend neither on the rest of the
// batch nor on how its prompt was cut into chunks.
#ifndef HALFBYTE_MODEL_OPS_H_
#define HALFBYTE_MODEL_OPS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/engine.h"
#include "halfbyte/result.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "model/rope_table.h"
#include "weights/checkpoint_weights.h"

namespace halfbyte {

/// Activations [rows, cols], fp32, `row_stride` elements apart; a view in the memory of the ops
/// that made the workspace.
struct Rows {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;

  Rows() = default;
  Rows(float* pointer, std::int64_t num_rows, std::int64_t num_cols)
      : data(pointer), rows(num_rows), cols(num_cols), row_stride(num_cols) {}
  Rows(float* pointer, std::int64_t num_rows, std::int64_t num_cols, std::int64_t stride)
      : data(pointer), rows(num_rows), cols(num_cols), row_stride(stride) {}
};

/// Heads of a batch: head h of token t starts at data + t * token_stride + h * head_stride.
struct Heads {
  float* data = nullptr;
  std::int64_t num_tokens = 0;
  std::int64_t num_heads = 0;
  std::int64_t width = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

/// A linear in the form its ops compute with. Owns its memory, immutable, any thread may read.
class PreparedLinear {
 public:
  virtual ~PreparedLinear() = default;
  std::int64_t rows = 0;  // outputs
  std::int64_t cols = 0;  // inputs
};

/// One small matrix per attention head, [num_heads, rows, cols].
class PreparedHeads {
 public:
  virtual ~PreparedHeads() = default;
  std::int64_t num_heads = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

/// An embedding table [vocab_size, hidden_size]; a copy of the file's bytes.
class PreparedEmbedding {
 public:
  virtual ~PreparedEmbedding() = default;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

/// Where the tokens of a step lie; the same for every layer.
struct StepView {
  std::span<const SequenceSlice> sequences;
  std::span<const std::int32_t> sequence_idx;  // [num_tokens], into sequences
  std::span<const std::int64_t> positions;     // [num_tokens], absolute
  std::span<const std::int64_t> cache_rows;    // [num_tokens], row of each token in a KvPool
  const float* cos = nullptr;                  // [num_tokens, num_pairs]
  const float* sin = nullptr;

  const SequenceSlice& sequence_of(std::int64_t token) const {
    const auto idx = sequence_idx[static_cast<std::size_t>(token)];
    return sequences[static_cast<std::size_t>(idx)];
  }
};

/// Row of a sequence's token in a KvPool.
inline std::int64_t cache_row_of(const SequenceSlice& sequence, std::int64_t position) {
  const auto block = static_cast<std::size_t>(position / kKvBlockTokens);
  return sequence.block_table[block] * kKvBlockTokens + position % kKvBlockTokens;
}

/// Causal attention over the paged cache. Query head h reads key head h / (num_heads /
/// num_kv_heads), whose keys are columns [g * q.width, ..) of the key pool's rows, and whose values
/// are columns [g * out.width, ..) of the value pool's rows.
struct AttentionCall {
  Heads q;
  Heads out;
  std::int64_t num_kv_heads = 1;
  float scale = 1.0F;
  KvLayer cache;
};

struct OpsOptions {
  ComputeDtype dtype = ComputeDtype::kFloat32;  // resolved
  bool exact_float32 = false;                   // --dtype float32: linears may not narrow x
  int num_threads = 0;                          // 0: the cores this process may use
  std::int64_t max_linear_cols = 0;             // widest input of a prepared linear
  std::int64_t max_context_tokens = 0;
  std::int64_t max_cache_row = 0;  // widest row of a KvPool
};

/// Thread rule: prepare_* from any thread; the rest from the rank's thread. The operations allocate
/// nothing and return when their results may be handed to the next operation of the same object
/// (on a device: when they are in the order of its stream).
class DenseOps {
 public:
  virtual ~DenseOps() = default;
  virtual std::string_view name() const = 0;

  /// `mode` is kW4a16, or kW4a4 for an NVFP4 linear: its input is then quantised with the linear's
  /// own input scale. kNotFound: that scale is absent. kUnsupported: a format these ops lack.
  virtual Result<std::unique_ptr<PreparedLinear>> prepare_linear(const LoadedLinear& linear,
                                                                 ActivationMode mode) const = 0;
  /// weights [num_heads, rows, cols], fp32.
  virtual Result<std::unique_ptr<PreparedHeads>> prepare_heads(std::span<const float> weights,
                                                               std::int64_t num_heads,
                                                               std::int64_t rows,
                                                               std::int64_t cols) const = 0;
  virtual Result<std::unique_ptr<PreparedEmbedding>> prepare_embedding(
      const LoadedLinear& table) const = 0;

  /// y = rows of the table; ids are in [0, rows).
  virtual void embed(const PreparedEmbedding& table,
                     std::span<const std::int32_t> token_ids,
                     Rows y) = 0;
  /// y = x W^T + bias, rounded to the compute dtype. x and y are dense (row_stride == cols).
  virtual void linear(const PreparedLinear& weight, Rows x, Rows y) = 0;
  /// The same, kept in fp32: router logits and the head.
  virtual void linear_f32(const PreparedLinear& weight, Rows x, Rows y) = 0;
  /// y[t, h] = W_h x[t, h], fp32.
  virtual void linear_per_head(const PreparedHeads& weight, Heads x, Heads y) = 0;
  /// y = x, head by head.
  virtual void copy_heads(Heads x, Heads y) = 0;
  /// y = w * round(x / sqrt(mean(x^2) + eps)); x and y may be the same.
  virtual void rms_norm(Rows x, std::span<const float> weight, float epsilon, Rows y) = 0;
  /// Rotates the first 2 * num_pairs values of every head in place.
  virtual void rope(const RopeTable& table, const StepView& step, Heads x) = 0;
  /// Stores row t of x [num_tokens, pool.row_width] in the cache row of token t.
  virtual void append(const StepView& step, Rows x, const KvPool& pool) = 0;
  virtual void attention(const StepView& step, const AttentionCall& call) = 0;
  /// h = activation(gate, up), elementwise, rounded to the compute dtype. h may be gate.
  virtual void activate(const ActivationSpec& activation, Rows gate, Rows up, Rows h) = 0;
  /// x += y, rounded to the compute dtype.
  virtual void add(Rows x, Rows y) = 0;
};

/// The ops that go with an expert backend: "reference" has its own, every other host backend takes
/// "cpu".
Result<std::unique_ptr<DenseOps>> make_dense_ops(std::string_view expert_backend,
                                                 const OpsOptions& options);
std::unique_ptr<DenseOps> make_reference_ops(const OpsOptions& options);
Result<std::unique_ptr<DenseOps>> make_cpu_ops(const OpsOptions& options);

}  // namespace halfbyte

#endif  // HALFBYTE_MODEL_OPS_H_
