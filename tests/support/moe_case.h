// SPDX-License-Identifier: Apache-2.0
//
// Random MoE layers for tests: every expert, row and column different, unequal power-of-two scales
// everywhere, so that a scale or an expert that is mixed up shows.
#ifndef HALFBYTE_TESTS_SUPPORT_MOE_CASE_H_
#define HALFBYTE_TESTS_SUPPORT_MOE_CASE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "formats/convert.h"
#include "formats/e4m3.h"
#include "formats/nvfp4.h"
#include "halfbyte/moe.h"
#include "kernels/reference/expert.h"
#include "moe/expert_backend.h"
#include "moe/scales.h"

namespace halfbyte::test {

/// A canonical matrix with the memory it looks at.
struct TestMatrix {
  CanonicalMatrix view;
  std::vector<std::uint8_t> codes, block_scale;
  std::vector<float> scale;

  CanonicalMatrix matrix() const {
    CanonicalMatrix m = view;
    m.codes = codes;
    m.block_scale = block_scale;
    m.scale = scale;
    return m;
  }
};

struct TestExpert {
  TestMatrix gate, up, down;
  CanonicalExpert expert() const { return {gate.matrix(), up.matrix(), down.matrix()}; }
};

/// Stores w [rows, cols] in `format`; NVFP4 with the given global scale, FP8 in 128 x 128 blocks.
inline TestMatrix store_matrix(WeightFormat format,
                               std::int64_t rows,
                               std::int64_t cols,
                               std::span<const float> w,
                               float global_scale) {
  TestMatrix m;
  m.view.format = format;
  m.view.rows = rows;
  m.view.cols = cols;
  const auto count = static_cast<std::size_t>(rows * cols);
  if (format == WeightFormat::kNvfp4) {
    m.view.global_scale = global_scale;
    m.codes.resize(count / 2);
    m.block_scale.resize(count / 16);
    const Status status = quantize_weights(w, rows, cols, global_scale, m.codes, m.block_scale);
    if (!status.ok()) m.codes.clear();  // every use of the matrix then fails on its size
  } else if (format == WeightFormat::kFp8) {
    m.view.scale_block_rows = 128;
    m.view.scale_block_cols = 128;
    const std::int64_t groups = (cols + 127) / 128;
    for (std::int64_t i = 0; i < (rows + 127) / 128 * groups; ++i)
      m.scale.push_back(std::ldexp(1.0F + 0.01F * static_cast<float>(i), -8));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        const float scale = m.scale[static_cast<std::size_t>(r / 128 * groups + c / 128)];
        m.codes.push_back(f32_to_e4m3(w[static_cast<std::size_t>(r * cols + c)] / scale));
      }
    }
  } else {
    const std::size_t bytes = format == WeightFormat::kF32 ? 4 : 2;
    m.codes.resize(count * bytes);
    const DType dtype = format == WeightFormat::kBf16  ? DType::kBf16
                        : format == WeightFormat::kF16 ? DType::kF16
                                                       : DType::kF32;
    narrow_from_f32(dtype, w.data(), rows * cols, m.codes.data());
  }
  return m;
}

inline std::vector<float> gaussian(std::int64_t count, double sigma, std::mt19937& rng) {
  std::normal_distribution<double> normal(0.0, sigma);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = static_cast<float>(normal(rng));
  return values;
}

/// Largest power of two that is at most `value`.
inline float power_of_two_below(float value) {
  return std::exp2(std::floor(std::log2(value)));
}

inline TestMatrix random_weights(
    WeightFormat format, std::int64_t rows, std::int64_t cols, int scale_shift, std::mt19937& rng) {
  const std::vector<float> w =
      gaussian(rows * cols, 1.0 / std::sqrt(static_cast<double>(cols)), rng);
  const float global_scale = power_of_two_below(weight_global_scale(w)) * 2.0F;
  return store_matrix(format, rows, cols, w, std::ldexp(global_scale, scale_shift));
}

/// A layer that one rank holds whole.
struct TestLayer {
  MoeSpec spec;
  std::vector<TestExpert> experts;
  float s1 = 0.0F;  // scales of the w4a4 mode: of X, of h
  float s2 = 0.0F;

  ExpertScales scales(ActivationMode mode) const {
    ExpertScales result;
    result.s1 = s1;
    result.s2 = s2;
    for (const TestExpert& expert : experts) {
      result.gate_global_scale.push_back(expert.gate.view.global_scale);
      result.up_global_scale.push_back(expert.up.view.global_scale);
      result.down_global_scale.push_back(expert.down.view.global_scale);
    }
    derive_alphas(mode, result);
    return result;
  }
  reference::ExpertScalars scalars(std::size_t expert_idx) const {
    const TestExpert& expert = experts[expert_idx];
    return {.gate_global_scale = expert.gate.view.global_scale,
            .up_global_scale = expert.up.view.global_scale,
            .down_global_scale = expert.down.view.global_scale,
            .s1 = s1,
            .s2 = s2};
  }
};

struct LayerShape {
  std::int64_t hidden_size = 64;
  std::int64_t intermediate_size = 32;
  std::int64_t num_experts = 4;
  std::int64_t top_k = 2;
  ActivationSpec activation = {};
  WeightFormat format = WeightFormat::kNvfp4;
  DType x_dtype = DType::kBf16;
};

inline MoeSpec spec_of(const LayerShape& shape) {
  MoeSpec spec;
  spec.hidden_size = shape.hidden_size;
  spec.intermediate_size = shape.intermediate_size;
  spec.num_experts = shape.num_experts;
  spec.top_k = shape.top_k;
  spec.expert_format = shape.format;
  spec.activation = shape.activation;
  spec.x_dtype = shape.x_dtype;
  spec.y_dtype = DType::kF32;
  return spec;
}

inline TestLayer random_layer(const LayerShape& shape, unsigned seed) {
  std::mt19937 rng(seed);
  TestLayer layer;
  layer.spec = spec_of(shape);
  const std::int64_t hidden = shape.hidden_size;
  const std::int64_t width = shape.intermediate_size;
  for (int e = 0; e < static_cast<int>(shape.num_experts); ++e) {
    TestExpert expert;
    if (shape.activation.gated())
      expert.gate = random_weights(shape.format, width, hidden, e % 3, rng);
    expert.gate.view.format = shape.format;
    expert.up = random_weights(shape.format, width, hidden, (e + 1) % 4, rng);
    expert.down = random_weights(shape.format, hidden, width, (e + 2) % 3, rng);
    layer.experts.push_back(std::move(expert));
  }
  layer.s1 = 0x1p-9F;  // amax / 2688 of Gaussian rows, as a calibration would find it
  layer.s2 = 0x1p-9F;
  return layer;
}

/// Rows of x in the layer's dtype.
struct TestTokens {
  std::vector<std::uint8_t> x;
  std::vector<float> x_f32;  // widened
  std::int64_t num_tokens = 0;
  std::vector<std::int32_t> topk_idx;  // [num_tokens, top_k]
};

inline void set_rows(TestTokens& tokens, const MoeSpec& spec, std::span<const float> rows) {
  tokens.num_tokens = std::ssize(rows) / spec.hidden_size;
  tokens.x.assign(rows.size() * static_cast<std::size_t>(dtype_bytes(spec.x_dtype)), 0);
  tokens.x_f32.resize(rows.size());
  narrow_from_f32(spec.x_dtype, rows.data(), std::ssize(rows), tokens.x.data());
  widen_to_f32(spec.x_dtype, tokens.x.data(), std::ssize(rows), tokens.x_f32.data());
}

/// Gaussian rows; distinct experts per token, and one id in eight is -1.
inline TestTokens random_tokens(const MoeSpec& spec, std::int64_t num_tokens, unsigned seed) {
  std::mt19937 rng(seed);
  TestTokens tokens;
  set_rows(tokens, spec, gaussian(num_tokens * spec.hidden_size, 1.0, rng));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(spec.num_experts));
  for (std::size_t e = 0; e < ids.size(); ++e)
    ids[e] = static_cast<std::int32_t>(e);
  for (std::int64_t t = 0; t < num_tokens; ++t) {
    std::shuffle(ids.begin(), ids.end(), rng);
    for (std::int64_t k = 0; k < spec.top_k; ++k)
      tokens.topk_idx.push_back(rng() % 8U == 0 ? -1 : ids[static_cast<std::size_t>(k)]);
  }
  return tokens;
}

/// The routes of a batch in (expert, token, slot) order, as a dispatcher groups them.
struct TestRoutes {
  std::vector<std::int32_t> route_row;
  std::vector<std::int64_t> expert_offset;
  std::vector<std::int32_t> expert_count;
  std::vector<std::int32_t> route_expert;

  TestRoutes(const MoeSpec& spec, const TestTokens& tokens) {
    for (std::int64_t e = 0; e < spec.num_experts; ++e) {
      expert_offset.push_back(std::ssize(route_row));
      for (std::size_t i = 0; i < tokens.topk_idx.size(); ++i) {
        if (tokens.topk_idx[i] != e) continue;
        route_row.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(i) / spec.top_k));
        route_expert.push_back(static_cast<std::int32_t>(e));
      }
      expert_count.push_back(
          static_cast<std::int32_t>(std::ssize(route_row) - expert_offset.back()));
    }
    expert_offset.push_back(std::ssize(route_row));
  }

  DispatchedTokens dispatched(const MoeSpec& spec, const TestTokens& tokens) const {
    DispatchedTokens d;
    d.x = {tokens.x.data(), spec.x_dtype, tokens.num_tokens, spec.hidden_size};
    d.num_rows = tokens.num_tokens;
    d.route_row = route_row.data();
    d.expert_offset = expert_offset.data();
    d.expert_count = expert_count.data();
    d.num_routes = std::ssize(route_row);
    return d;
  }
};

/// A layer prepared on one backend, with its workspace. w4a16 runs with activations in fp32, as
/// under --dtype float32, unless `exact_float32` is false.
class BackendRun {
 public:
  BackendRun(std::shared_ptr<ExpertBackend> backend,
             const TestLayer& layer,
             ActivationMode mode,
             std::int64_t capacity_tokens,
             int num_threads = 2,
             bool exact_float32 = true)
      : backend_(std::move(backend)) {
    ExpertPlan request;
    request.spec = layer.spec;
    request.mode = mode;
    request.exact_float32 = exact_float32;
    request.shard = {.num_local_experts = layer.spec.num_experts,
                     .intermediate_size = layer.spec.intermediate_size};
    request.limits.num_threads = num_threads;
    request.capacity_tokens = capacity_tokens;
    status_ = make(request, layer);
  }

  const Status& status() const { return status_; }
  const ExpertPlan& plan() const { return plan_; }
  const PreparedExpertWeights& prepared() const { return *prepared_; }
  ExpertBackend& backend() { return *backend_; }
  Workspace workspace() { return {workspace_.data(), workspace_.size()}; }
  void fill_workspace(std::uint8_t byte) {
    std::fill(workspace_.begin(), workspace_.end(), std::byte{byte});
  }

  Status load(const TestLayer& layer) {
    for (std::size_t e = 0; e < layer.experts.size(); ++e) {
      HALFBYTE_RETURN_IF_ERROR(backend_->prepare(plan_, static_cast<std::int64_t>(e),
                                                 layer.experts[e].expert(), *prepared_, nullptr));
    }
    return backend_->set_scales(plan_, layer.scales(plan_.mode), *prepared_, nullptr);
  }

  /// rows [routes, H]; `rows` keeps what it held where nothing is written.
  Status run(const DispatchedTokens& tokens, std::vector<float>& rows) {
    const std::int64_t hidden = plan_.spec.hidden_size;
    ExpertOutput output;
    output.rows = {rows.data(), DType::kF32, std::ssize(rows) / hidden, hidden};
    return backend_->run(plan_, *prepared_, tokens, output, workspace(), nullptr);
  }

 private:
  Status make(const ExpertPlan& request, const TestLayer& layer) {
    HALFBYTE_ASSIGN_OR_RETURN(plan_, backend_->plan(request));
    HALFBYTE_ASSIGN_OR_RETURN(prepared_, backend_->allocate(plan_));
    workspace_.assign(plan_.workspace.total_bytes(), std::byte{0x7F});
    HALFBYTE_RETURN_IF_ERROR(load(layer));
    return backend_->warm_up(plan_, *prepared_, workspace(), nullptr);
  }

  std::shared_ptr<ExpertBackend> backend_;
  ExpertPlan plan_;
  std::unique_ptr<PreparedExpertWeights> prepared_;
  std::vector<std::byte> workspace_;
  Status status_;
};

/// Rows of every route of `tokens`, or empty when a step failed (see run.status()).
inline std::vector<float> run_routes(BackendRun& run,
                                     const TestTokens& tokens,
                                     const TestRoutes& routes) {
  const MoeSpec& spec = run.plan().spec;
  std::vector<float> rows(static_cast<std::size_t>(std::ssize(routes.route_row) * spec.hidden_size),
                          std::nanf(""));
  if (!run.run(routes.dispatched(spec, tokens), rows).ok()) rows.clear();
  return rows;
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_SUPPORT_MOE_CASE_H_
