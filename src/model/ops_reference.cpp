// SPDX-License-Identifier: Apache-2.0
//
// DenseOps in plain loops on one thread: the oracle of every other.
#include <algorithm>

#include "kernels/reference/dense.h"
#include "model/ops_rows.h"

namespace halfbyte {
namespace {

struct ReferenceLinear final : PreparedLinear {
  OwnedMatrix matrix;
  LinearInput input;
  std::vector<float> bias;
};

struct ReferenceHeads final : PreparedHeads {
  std::vector<float> weights;
};

struct ReferenceEmbedding final : PreparedEmbedding {
  OwnedMatrix matrix;
};

void scale_rows(Rows rows, float alpha) {
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    float* row = rows.data + i * rows.row_stride;
    for (std::int64_t c = 0; c < rows.cols; ++c)
      row[c] *= alpha;
  }
}

class ReferenceOps final : public DenseOps {
 public:
  explicit ReferenceOps(const OpsOptions& options)
      : round_bf16_(options.dtype == ComputeDtype::kBfloat16) {}

  std::string_view name() const override { return "reference"; }

  Result<std::unique_ptr<PreparedLinear>> prepare_linear(const LoadedLinear& linear,
                                                         ActivationMode mode) const override {
    HALFBYTE_ASSIGN_OR_RETURN(LinearInput input, linear_input(linear, mode));
    auto prepared = std::make_unique<ReferenceLinear>();
    prepared->rows = linear.matrix.rows;
    prepared->cols = linear.matrix.cols;
    prepared->matrix.assign(linear.matrix);
    prepared->input = std::move(input);
    prepared->bias = linear.bias;
    // The quantised product is summed without any scalar; alpha holds the global scale.
    if (prepared->input.quantized) prepared->matrix.view.global_scale = 1.0F;
    return std::unique_ptr<PreparedLinear>(std::move(prepared));
  }

  Result<std::unique_ptr<PreparedHeads>> prepare_heads(std::span<const float> weights,
                                                       std::int64_t num_heads,
                                                       std::int64_t rows,
                                                       std::int64_t cols) const override {
    auto prepared = std::make_unique<ReferenceHeads>();
    prepared->num_heads = num_heads;
    prepared->rows = rows;
    prepared->cols = cols;
    prepared->weights.assign(weights.begin(), weights.end());
    return std::unique_ptr<PreparedHeads>(std::move(prepared));
  }

  Result<std::unique_ptr<PreparedEmbedding>> prepare_embedding(
      const LoadedLinear& table) const override {
    auto prepared = std::make_unique<ReferenceEmbedding>();
    prepared->rows = table.matrix.rows;
    prepared->cols = table.matrix.cols;
    prepared->matrix.assign(table.matrix);
    return std::unique_ptr<PreparedEmbedding>(std::move(prepared));
  }

  void embed(const PreparedEmbedding& table,
             std::span<const std::int32_t> token_ids,
             Rows y) override {
    const auto& embedding = static_cast<const ReferenceEmbedding&>(table);
    for (std::int64_t t = 0; t < y.rows; ++t) {
      float* row = y.data + t * y.row_stride;
      embed_row(embedding.matrix.view, token_ids[static_cast<std::size_t>(t)], round_bf16_, row);
    }
  }

  void linear(const PreparedLinear& weight, Rows x, Rows y) override {
    run_linear(static_cast<const ReferenceLinear&>(weight), x, y, round_bf16_);
  }

  void linear_f32(const PreparedLinear& weight, Rows x, Rows y) override {
    run_linear(static_cast<const ReferenceLinear&>(weight), x, y, false);
  }

  void linear_per_head(const PreparedHeads& weight, Heads x, Heads y) override {
    const auto& heads = static_cast<const ReferenceHeads&>(weight);
    for (std::int64_t t = 0; t < x.num_tokens; ++t) {
      for (std::int64_t h = 0; h < x.num_heads; ++h) {
        const float* matrix = heads.weights.data() + h * heads.rows * heads.cols;
        const float* src = x.data + t * x.token_stride + h * x.head_stride;
        float* dst = y.data + t * y.token_stride + h * y.head_stride;
        for (std::int64_t r = 0; r < heads.rows; ++r)
          dst[r] = dot_f64(matrix + r * heads.cols, src, heads.cols);
      }
    }
  }

  void copy_heads(Heads x, Heads y) override {
    for (std::int64_t t = 0; t < x.num_tokens; ++t)
      copy_heads_of_token(t, x, y);
  }

  void rms_norm(Rows x, std::span<const float> weight, float epsilon, Rows y) override {
    for (std::int64_t i = 0; i < x.rows; ++i) {
      reference::rms_norm(x.data + i * x.row_stride, weight.data(), epsilon, 1, x.cols, round_bf16_,
                          y.data + i * y.row_stride);
    }
  }

  void rope(const RopeTable& table, const StepView& step, Heads x) override {
    for (std::int64_t t = 0; t < x.num_tokens; ++t)
      rope_token(table, step, t, x);
  }

  void append(const StepView& step, Rows x, const KvPool& pool) override {
    for (std::int64_t t = 0; t < x.rows; ++t)
      store_row(pool, step.cache_rows[static_cast<std::size_t>(t)], x.data + t * x.row_stride);
  }

  void attention(const StepView& step, const AttentionCall& call) override {
    for (std::int64_t t = 0; t < call.q.num_tokens; ++t) {
      for (std::int64_t group = 0; group < call.num_kv_heads; ++group)
        attend_group(step, call, t, group);
    }
  }

  void activate(const ActivationSpec& activation, Rows gate, Rows up, Rows h) override {
    activate_range(activation, gate.data, up.data, gate.rows * gate.cols, round_bf16_, h.data);
  }

  void add(Rows x, Rows y) override {
    for (std::int64_t i = 0; i < x.rows; ++i)
      add_row(x.data + i * x.row_stride, y.data + i * y.row_stride, x.cols, round_bf16_);
  }

 private:
  static float dot_f64(const float* a, const float* b, std::int64_t count) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < count; ++i)
      sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return static_cast<float>(sum);
  }

  void run_linear(const ReferenceLinear& weight, Rows x, Rows y, bool round) {
    if (!weight.input.is_x_itself()) {
      input_.reserve(x.rows, x.cols);
      x = transform_input(weight.input, x, round_bf16_, input_);
    }
    reference::linear(weight.matrix.view, nullptr, x.data, x.rows, y.data);
    if (weight.input.quantized) scale_rows(y, weight.input.alpha);
    for (std::int64_t t = 0; t < x.rows; ++t)
      finish_row(y.data + t * y.row_stride, y.cols, weight.bias, round);
  }

  // The query heads of one token that share key head `group`.
  void attend_group(const StepView& step,
                    const AttentionCall& call,
                    std::int64_t token,
                    std::int64_t group) {
    const std::int64_t num_keys = step.positions[static_cast<std::size_t>(token)] + 1;
    gather(step, call.cache.keys, token, num_keys, group * call.q.width, call.q.width, keys_);
    gather(step, call.cache.values, token, num_keys, group * call.out.width, call.out.width,
           values_);
    const std::int64_t heads_per_group = call.q.num_heads / call.num_kv_heads;
    for (std::int64_t i = 0; i < heads_per_group; ++i) {
      const std::int64_t h = group * heads_per_group + i;
      reference::attend(call.q.data + token * call.q.token_stride + h * call.q.head_stride,
                        keys_.row_pointers.data(), values_.row_pointers.data(), num_keys,
                        call.q.width, call.out.width, call.scale,
                        call.out.data + token * call.out.token_stride + h * call.out.head_stride);
    }
  }

  struct Gathered {
    std::vector<float> rows;
    std::vector<const float*> row_pointers;
  };

  static void gather(const StepView& step,
                     const KvPool& pool,
                     std::int64_t token,
                     std::int64_t num_keys,
                     std::int64_t column,
                     std::int64_t width,
                     Gathered& dst) {
    dst.rows.resize(static_cast<std::size_t>(num_keys * width));
    dst.row_pointers.resize(static_cast<std::size_t>(num_keys));
    const SequenceSlice& sequence = step.sequence_of(token);
    for (std::int64_t key = 0; key < num_keys; ++key) {
      float* row = dst.rows.data() + key * width;
      read_row(pool, cache_row_of(sequence, key), column, width, row);
      dst.row_pointers[static_cast<std::size_t>(key)] = row;
    }
  }

  bool round_bf16_;
  InputScratch input_;
  Gathered keys_;
  Gathered values_;
};

}  // namespace

std::unique_ptr<DenseOps> make_reference_ops(const OpsOptions& options) {
  return std::make_unique<ReferenceOps>(options);
}

}  // namespace halfbyte
