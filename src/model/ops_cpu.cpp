// SPDX-License-Identifier: Apache-2.0
//
// DenseOps with SIMD linears and attention, over the rank's thread pool.
#include <algorithm>

#include "base/checked.h"
#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "formats/convert.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/linear.h"
#include "kernels/reference/dense.h"
#include "model/ops_rows.h"

namespace halfbyte {
namespace {

// Rows of an input scaled or made integers at a time: bounds the scratch whatever the batch.
constexpr std::int64_t kTransformRows = 64;
// Queries that walk the cache together: heads of a token, then tokens of a prompt. Enough to reuse
// a widened block, few enough to spread.
constexpr std::int64_t kHeadsPerTask = 8;
constexpr std::int64_t kQueriesPerTask = 16;
constexpr std::int64_t kElementsPerTask = 4096;
// Work below which waking the other threads costs more than they save (tens of microseconds).
constexpr std::int64_t kMinParallelElements = 32768;
constexpr std::int64_t kMinParallelMultiplyAdds = 262144;
constexpr std::int64_t kMinParallelIntegerMultiplyAdds = 524288;

// How a linear's kernels read x.
enum class LinearOperand {
  kF32,      // as it is: formats but NVFP4, and --dtype float32
  kSplit15,  // NVFP4 weights (docs/numerics.md 2)
  kNvfp4,    // w4a4, as exact integers
};

struct CpuLinear final : PreparedLinear {
  cpu::PackedMatrix matrix;
  LinearInput input;
  LinearOperand operand = LinearOperand::kF32;
  std::vector<float> bias;

  float output_scale() const { return input.quantized ? input.alpha : matrix.global_scale; }
};

struct CpuHeads final : PreparedHeads {
  DType dtype = DType::kF32;
  std::vector<std::byte> weights;
  cpu::HeadMatrix head(std::int64_t idx) const {
    return {weights.data() + idx * rows * cols * dtype_bytes(dtype), dtype, rows, cols};
  }
};

struct CpuEmbedding final : PreparedEmbedding {
  OwnedMatrix matrix;
};

// Memory that the operations share, allocated once.
struct CpuScratch {
  HostBuffer attention;               // [num_threads, attention_floats]
  std::int64_t attention_floats = 0;  // of one thread: whole cache lines
  HostBuffer scaled;                  // [kTransformRows, max_linear_cols]
  HostBuffer records;                 // [kTransformRows] rows of integers
};

class CpuOps final : public DenseOps {
 public:
  CpuOps(const OpsOptions& options, CpuScratch scratch)
      : round_bf16_(options.dtype == ComputeDtype::kBfloat16),
        exact_float32_(options.exact_float32),
        pool_(options.num_threads),
        scratch_(std::move(scratch)) {}

  std::string_view name() const override { return "cpu"; }

  Result<std::unique_ptr<PreparedLinear>> prepare_linear(const LoadedLinear& linear,
                                                         ActivationMode mode) const override {
    HALFBYTE_ASSIGN_OR_RETURN(LinearInput input, linear_input(linear, mode));
    auto prepared = std::make_unique<CpuLinear>();
    prepared->rows = linear.matrix.rows;
    prepared->cols = linear.matrix.cols;
    HALFBYTE_ASSIGN_OR_RETURN(prepared->matrix, cpu::pack_matrix(linear.matrix));
    prepared->operand = operand_of(linear.matrix.format, input);
    prepared->input = std::move(input);
    prepared->bias = linear.bias;
    return std::unique_ptr<PreparedLinear>(std::move(prepared));
  }

  // Kept in bf16 when that is what the weights are, as in every released checkpoint.
  Result<std::unique_ptr<PreparedHeads>> prepare_heads(std::span<const float> weights,
                                                       std::int64_t num_heads,
                                                       std::int64_t rows,
                                                       std::int64_t cols) const override {
    auto prepared = std::make_unique<CpuHeads>();
    prepared->num_heads = num_heads;
    prepared->rows = rows;
    prepared->cols = cols;
    const bool is_bf16 =
        std::all_of(weights.begin(), weights.end(), [](float w) { return round_to_bf16(w) == w; });
    prepared->dtype = is_bf16 ? DType::kBf16 : DType::kF32;
    prepared->weights.resize(weights.size() *
                             static_cast<std::size_t>(dtype_bytes(prepared->dtype)));
    narrow_from_f32(prepared->dtype, weights.data(), static_cast<std::int64_t>(weights.size()),
                    prepared->weights.data());
    return std::unique_ptr<PreparedHeads>(std::move(prepared));
  }

  Result<std::unique_ptr<PreparedEmbedding>> prepare_embedding(
      const LoadedLinear& table) const override {
    auto prepared = std::make_unique<CpuEmbedding>();
    prepared->rows = table.matrix.rows;
    prepared->cols = table.matrix.cols;
    prepared->matrix.assign(table.matrix);
    return std::unique_ptr<PreparedEmbedding>(std::move(prepared));
  }

  void embed(const PreparedEmbedding& table,
             std::span<const std::int32_t> token_ids,
             Rows y) override {
    const auto& embedding = static_cast<const CpuEmbedding&>(table);
    spread(y.rows, y.cols, [&](std::int64_t t, int) {
      float* row = y.data + t * y.row_stride;
      embed_row(embedding.matrix.view, token_ids[static_cast<std::size_t>(t)], round_bf16_, row);
    });
  }

  void linear(const PreparedLinear& weight, Rows x, Rows y) override {
    run_linear(static_cast<const CpuLinear&>(weight), x, y, round_bf16_);
  }

  void linear_f32(const PreparedLinear& weight, Rows x, Rows y) override {
    run_linear(static_cast<const CpuLinear&>(weight), x, y, false);
  }

  void linear_per_head(const PreparedHeads& weight, Heads x, Heads y) override {
    const auto& heads = static_cast<const CpuHeads&>(weight);
    // Heads outermost: a head's matrix stays in the cache over the tokens.
    spread(x.num_heads, x.num_tokens * weight.rows * weight.cols, [&](std::int64_t h, int) {
      for (std::int64_t t = 0; t < x.num_tokens; ++t) {
        cpu::head_linear(heads.head(h), x.data + t * x.token_stride + h * x.head_stride,
                         y.data + t * y.token_stride + h * y.head_stride);
      }
    });
  }

  void copy_heads(Heads x, Heads y) override {
    spread(x.num_tokens, x.num_heads * x.width,
           [&](std::int64_t t, int) { copy_heads_of_token(t, x, y); });
  }

  void rms_norm(Rows x, std::span<const float> weight, float epsilon, Rows y) override {
    spread(x.rows, x.cols, [&](std::int64_t i, int) {
      reference::rms_norm(x.data + i * x.row_stride, weight.data(), epsilon, 1, x.cols, round_bf16_,
                          y.data + i * y.row_stride);
    });
  }

  void rope(const RopeTable& table, const StepView& step, Heads x) override {
    spread(x.num_tokens, x.num_heads * x.width,
           [&](std::int64_t t, int) { rope_token(table, step, t, x); });
  }

  void append(const StepView& step, Rows x, const KvPool& pool) override {
    spread(x.rows, x.cols, [&](std::int64_t t, int) {
      store_row(pool, step.cache_rows[static_cast<std::size_t>(t)], x.data + t * x.row_stride);
    });
  }

  void attention(const StepView& step, const AttentionCall& call) override {
    const std::int64_t heads_per_group = call.q.num_heads / call.num_kv_heads;
    const std::int64_t chunks = ceil_div(heads_per_group, kHeadsPerTask);
    const std::int64_t tasks_per_token = call.num_kv_heads * chunks;
    const std::int64_t tokens_per_task = kQueriesPerTask / std::min(kHeadsPerTask, heads_per_group);
    spread(call.q.num_tokens * tasks_per_token, elements_per_task(step, call),
           [&](std::int64_t task, int thread) {
             const std::int64_t token = task / tasks_per_token;
             const std::int64_t num_tokens = tokens_led_by(step, token, tokens_per_task);
             if (num_tokens == 0) return;
             const std::int64_t group = task % tasks_per_token / chunks;
             const std::int64_t first = task % chunks * kHeadsPerTask;
             const QueryRange range = {token, num_tokens, group, group * heads_per_group + first,
                                       std::min(kHeadsPerTask, heads_per_group - first)};
             cpu::attend(attend_task(step, call, range),
                         scratch_.attention.as<float>() + thread * scratch_.attention_floats);
           });
  }

  void activate(const ActivationSpec& activation, Rows gate, Rows up, Rows h) override {
    const std::int64_t count = gate.rows * gate.cols;
    spread(ceil_div(count, kElementsPerTask), kElementsPerTask, [&](std::int64_t task, int) {
      const std::int64_t first = task * kElementsPerTask;
      activate_range(activation, gate.data + first, up.data + first,
                     std::min(kElementsPerTask, count - first), round_bf16_, h.data + first);
    });
  }

  void add(Rows x, Rows y) override {
    spread(x.rows, x.cols, [&](std::int64_t i, int) {
      add_row(x.data + i * x.row_stride, y.data + i * y.row_stride, x.cols, round_bf16_);
    });
  }

 private:
  // Heads [first_head, first_head + num_heads) of consecutive tokens; all read key head `group`.
  struct QueryRange {
    std::int64_t first_token = 0;
    std::int64_t num_tokens = 0;
    std::int64_t group = 0;
    std::int64_t first_head = 0;
    std::int64_t num_heads = 0;
  };

  // Runs task(index, thread) for every index.
  template <typename Task>
  void spread(std::int64_t num_tasks, std::int64_t elements_per_task, Task&& task) {
    pool_for(num_tasks * elements_per_task, kMinParallelElements).parallel_for(num_tasks, task);
  }

  ThreadPool& pool_for(std::int64_t work, std::int64_t min_parallel) {
    return work < min_parallel ? caller_only_ : pool_;
  }

  // A sequence's tokens are taken `most` at a time by the first of them; 0: another one leads.
  static std::int64_t tokens_led_by(const StepView& step, std::int64_t token, std::int64_t most) {
    const SequenceSlice& sequence = step.sequence_of(token);
    const std::int64_t offset = token - sequence.first_token;
    return offset % most == 0 ? std::min(most, sequence.num_tokens - offset) : 0;
  }

  // Of an attention task over the longest context of the step.
  static std::int64_t elements_per_task(const StepView& step, const AttentionCall& call) {
    std::int64_t longest = 0;
    for (const std::int64_t position : step.positions)
      longest = std::max(longest, position + 1);
    return longest * (call.q.width + call.out.width);
  }

  static cpu::PagedRows paged(const KvPool& pool,
                              const SequenceSlice& sequence,
                              std::int64_t column,
                              std::int64_t width) {
    return {pool.data, pool.dtype, pool.scale,     pool.row_width,
            column,    width,      kKvBlockTokens, sequence.block_table};
  }

  static cpu::AttendTask attend_task(const StepView& step,
                                     const AttentionCall& call,
                                     const QueryRange& range) {
    const SequenceSlice& sequence = step.sequence_of(range.first_token);
    cpu::AttendTask task;
    task.q = call.q.data + range.first_token * call.q.token_stride +
             range.first_head * call.q.head_stride;
    task.q_token_stride = call.q.token_stride;
    task.q_head_stride = call.q.head_stride;
    task.out = call.out.data + range.first_token * call.out.token_stride +
               range.first_head * call.out.head_stride;
    task.out_token_stride = call.out.token_stride;
    task.out_head_stride = call.out.head_stride;
    task.num_tokens = range.num_tokens;
    task.num_heads = range.num_heads;
    task.num_keys = step.positions[static_cast<std::size_t>(range.first_token)] + 1;
    task.scale = call.scale;
    task.keys = paged(call.cache.keys, sequence, range.group * call.q.width, call.q.width);
    task.values = paged(call.cache.values, sequence, range.group * call.out.width, call.out.width);
    return task;
  }

  LinearOperand operand_of(WeightFormat format, const LinearInput& input) const {
    if (input.quantized) return LinearOperand::kNvfp4;
    const bool narrow = format == WeightFormat::kNvfp4 && !exact_float32_;
    return narrow ? LinearOperand::kSplit15 : LinearOperand::kF32;
  }

  void run_linear(const CpuLinear& weight, Rows x, Rows y, bool round) {
    const bool reads_x = weight.operand == LinearOperand::kF32 && weight.input.is_x_itself();
    const std::int64_t at_a_time = reads_x ? x.rows : kTransformRows;
    for (std::int64_t first = 0; first < x.rows; first += at_a_time) {
      const std::int64_t rows = std::min(at_a_time, x.rows - first);
      const Rows tile(x.data + first * x.cols, rows, x.cols);
      const cpu::LinearOutput out{y.data + first * y.row_stride, y.row_stride,
                                  weight.output_scale()};
      multiply(weight, scale_columns(weight.input, tile, round_bf16_, scratch_.scaled.as<float>()),
               out);
    }
    if (!round && weight.bias.empty()) return;
    spread(y.rows, y.cols, [&](std::int64_t t, int) {
      finish_row(y.data + t * y.row_stride, y.cols, weight.bias, round);
    });
  }

  void multiply(const CpuLinear& weight, Rows x, const cpu::LinearOutput& y) {
    const cpu::KernelTable& kernels = cpu::best_kernel_table();
    if (weight.operand == LinearOperand::kSplit15)
      return multiply_records<cpu::Split15Record>(weight, x, y, kernels.quantize_split15);
    if (weight.operand == LinearOperand::kNvfp4) {
      return multiply_records<cpu::Int8Record>(
          weight, x, y, [&](const float* row, std::int64_t cols, cpu::Int8Record* dst) {
            kernels.quantize_nvfp4(row, cols, weight.input.input_scale, dst);
          });
    }
    cpu::linear(weight.matrix, x.data, x.rows, y,
                pool_for(x.rows * weight.rows * weight.cols, kMinParallelMultiplyAdds));
  }

  // x as integers first, at most kTransformRows rows.
  template <typename Record, typename Quantize>
  void multiply_records(const CpuLinear& weight,
                        Rows x,
                        const cpu::LinearOutput& y,
                        const Quantize& quantize) {
    auto* records = scratch_.records.as<Record>();
    const std::int64_t per_row = cpu::num_records(x.cols);
    spread(x.rows, x.cols, [&](std::int64_t t, int) {
      quantize(x.data + t * x.cols, x.cols, records + t * per_row);
    });
    cpu::linear(weight.matrix, records, x.rows, y,
                pool_for(x.rows * weight.rows * weight.cols, kMinParallelIntegerMultiplyAdds));
  }

  bool round_bf16_;
  bool exact_float32_;
  ThreadPool pool_;
  ThreadPool caller_only_{1};
  CpuScratch scratch_;
};

// Pages that no operation touches cost nothing.
Result<CpuScratch> allocate_scratch(const OpsOptions& options) {
  const auto allocate = [](std::int64_t count, std::size_t size) {
    return HostBuffer::allocate(static_cast<std::size_t>(count) * size);
  };
  CpuScratch scratch;
  // A whole number of cache lines, so that threads do not share one.
  scratch.attention_floats =
      round_up(cpu::attend_scratch_floats(kQueriesPerTask, options.max_context_tokens,
                                          kKvBlockTokens, options.max_cache_row),
               16);
  HALFBYTE_ASSIGN_OR_RETURN(
      scratch.attention, allocate(scratch.attention_floats * options.num_threads, sizeof(float)));
  HALFBYTE_ASSIGN_OR_RETURN(scratch.scaled,
                            allocate(kTransformRows * options.max_linear_cols, sizeof(float)));
  static_assert(sizeof(cpu::Split15Record) >= sizeof(cpu::Int8Record));
  HALFBYTE_ASSIGN_OR_RETURN(scratch.records,
                            allocate(kTransformRows * cpu::num_records(options.max_linear_cols),
                                     sizeof(cpu::Split15Record)));
  return scratch;
}

}  // namespace

Result<std::unique_ptr<DenseOps>> make_cpu_ops(const OpsOptions& options) {
  OpsOptions resolved = options;
  if (resolved.num_threads <= 0) resolved.num_threads = usable_cores();
  HALFBYTE_ASSIGN_OR_RETURN(CpuScratch scratch, allocate_scratch(resolved));
  return std::unique_ptr<DenseOps>(std::make_unique<CpuOps>(resolved, std::move(scratch)));
}

Result<std::unique_ptr<DenseOps>> make_dense_ops(std::string_view expert_backend,
                                                 const OpsOptions& options) {
  if (expert_backend == "reference") return make_reference_ops(options);
  return make_cpu_ops(options);
}

}  // namespace halfbyte
