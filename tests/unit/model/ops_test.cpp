// SPDX-License-Identifier: Apache-2.0
//
// The cpu ops against the reference ones: bounded by the fp32 sums' roundings (docs/numerics.md).
#include "model/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "formats/convert.h"
#include "model/ops_rows.h"

namespace halfbyte {
namespace {

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values)
    v = normal(rng);
  return values;
}

OpsOptions small_options(ComputeDtype dtype) {
  OpsOptions options;
  options.dtype = dtype;
  options.num_threads = 2;
  options.max_linear_cols = 64;
  options.max_context_tokens = 64;
  options.max_cache_row = 64;
  return options;
}

std::unique_ptr<DenseOps> make_ops(const std::string& name,
                                   ComputeDtype dtype = ComputeDtype::kFloat32) {
  auto ops = make_dense_ops(name, small_options(dtype));
  EXPECT_TRUE(ops.ok());
  return std::move(ops).value();
}

// One sequence of `tokens` tokens, of which the first `context` are in the cache already.
struct Step {
  Step(std::int64_t context, std::int64_t tokens) : slice{0, tokens, context, blocks} {
    for (std::int64_t i = 0; i < tokens; ++i) {
      positions.push_back(context + i);
      rows.push_back(cache_row_of(slice, context + i));
      sequence.push_back(0);
    }
    view.sequences = {&slice, 1};
    view.sequence_idx = sequence;
    view.positions = positions;
    view.cache_rows = rows;
  }
  std::vector<std::int32_t> blocks = {2, 0, 3, 1};
  SequenceSlice slice;
  std::vector<std::int64_t> positions, rows;
  std::vector<std::int32_t> sequence;
  StepView view;
};

struct Cache {
  explicit Cache(DType dtype, float scale = 1.0F)
      : memory(static_cast<std::size_t>(64 * kWidth * 4)),
        pool{memory.data(), dtype, scale, kWidth} {}
  static constexpr std::int64_t kWidth = 64;
  std::vector<std::byte> memory;
  KvPool pool;
};

// 4 query heads of width 32 on 2 key heads, 40 tokens.
std::vector<float> attend(const std::string& name, DType dtype, std::int64_t chunk) {
  const auto ops = make_ops(name);
  Cache keys(dtype, 0.05F);
  Cache values(dtype, 0.08F);
  constexpr std::int64_t kTokens = 40;
  std::vector<float> q = random_values(kTokens * 128, 1);
  std::vector<float> k = random_values(kTokens * 64, 2);
  std::vector<float> v = random_values(kTokens * 64, 3);
  std::vector<float> out(q.size());
  for (std::int64_t first = 0; first < kTokens; first += chunk) {
    const Step step(first, std::min(chunk, kTokens - first));
    const std::int64_t count = step.slice.num_tokens;
    ops->append(step.view, Rows(k.data() + first * 64, count, 64), keys.pool);
    ops->append(step.view, Rows(v.data() + first * 64, count, 64), values.pool);
    AttentionCall call;
    call.q = {q.data() + first * 128, count, 4, 32, 128, 32};
    call.out = {out.data() + first * 128, count, 4, 32, 128, 32};
    call.num_kv_heads = 2;
    call.scale = 0.2F;
    call.cache = {keys.pool, values.pool};
    ops->attention(step.view, call);
  }
  return out;
}

class AttentionOps : public testing::TestWithParam<DType> {};

// The bound: docs/numerics.md, "Alarms".
TEST_P(AttentionOps, CpuAgreesWithTheReference) {
  const std::vector<float> want = attend("reference", GetParam(), 40);
  const std::vector<float> got = attend("cpu", GetParam(), 40);
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 2e-6F) << i;
}

TEST_P(AttentionOps, ChunksDoNotChangeABit) {
  for (const char* name : {"reference", "cpu"}) {
    const std::vector<float> whole = attend(name, GetParam(), 40);
    EXPECT_EQ(attend(name, GetParam(), 1), whole) << name;
    EXPECT_EQ(attend(name, GetParam(), 9), whole) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Caches,
                         AttentionOps,
                         testing::Values(DType::kF32, DType::kBf16, DType::kF8E4m3));

// Two keys that score alike: the mean of their values, by hand.
TEST(AttentionOpsByHand, EqualScoresAverageTheValues) {
  for (const char* name : {"reference", "cpu"}) {
    const auto ops = make_ops(name);
    Cache cache(DType::kF32);
    std::vector<float> rows(2 * 64, 0.0F);
    rows[1] = 1.0F;       // column 1 of key 0
    rows[64 + 1] = 3.0F;  // of key 1
    const Step both(0, 2);
    ops->append(both.view, Rows(rows.data(), 2, 64), cache.pool);
    std::vector<float> q(2 * 64, 0.0F);
    std::vector<float> out(2 * 64);
    AttentionCall call;
    call.q = {q.data(), 2, 1, 64, 64, 64};
    call.out = {out.data(), 2, 1, 64, 64, 64};
    call.cache = {cache.pool, cache.pool};
    ops->attention(both.view, call);
    EXPECT_EQ(out[1], 1.0F) << name;       // token 0 sees itself only
    EXPECT_EQ(out[64 + 1], 2.0F) << name;  // token 1 sees both
  }
}

// KV scales are used where the cache is fp8: 22.4 = 448 * 0.05 is the largest value it holds.
TEST(KvPools, Fp8StoresValuesDividedByTheScale) {
  Cache cache(DType::kF8E4m3, 0.05F);
  std::vector<float> row(64, 0.0F);
  row[0] = 22.4F;
  row[1] = -100.0F;
  row[2] = 0.05F;
  store_row(cache.pool, 3, row.data());
  std::vector<float> back(3);
  read_row(cache.pool, 3, 0, 3, back.data());
  EXPECT_FLOAT_EQ(back[0], 22.4F);
  EXPECT_FLOAT_EQ(back[1], -22.4F);  // saturates
  EXPECT_FLOAT_EQ(back[2], 0.05F);
}

LoadedLinear bf16_linear(const std::vector<float>& weights,
                         std::int64_t rows,
                         std::int64_t cols,
                         std::vector<std::uint8_t>& bytes) {
  bytes.resize(weights.size() * 2);
  narrow_from_f32(DType::kBf16, weights.data(), rows * cols, bytes.data());
  LoadedLinear linear;
  linear.matrix.format = WeightFormat::kBf16;
  linear.matrix.rows = rows;
  linear.matrix.cols = cols;
  linear.matrix.codes = bytes;
  return linear;
}

TEST(LinearOps, AddTheBiasOnceAndRoundLast) {
  std::vector<std::uint8_t> bytes;
  LoadedLinear linear = bf16_linear(std::vector<float>(16 * 16, 1.0F), 16, 16, bytes);
  linear.bias.assign(16, 0.25F);
  std::vector<float> x(16, 0.0F);
  x[0] = 256.0F;
  std::vector<float> y(16);
  for (const char* name : {"reference", "cpu"}) {
    const auto ops = make_ops(name, ComputeDtype::kBfloat16);
    const auto prepared = ops->prepare_linear(linear, ActivationMode::kW4a16);
    ASSERT_TRUE(prepared.ok());
    ops->linear_f32(**prepared, Rows(x.data(), 1, 16), Rows(y.data(), 1, 16));
    EXPECT_EQ(y[0], 256.25F) << name;
    ops->linear(**prepared, Rows(x.data(), 1, 16), Rows(y.data(), 1, 16));
    EXPECT_EQ(y[0], 256.0F) << name;  // bf16 has steps of 2 here
  }
}

TEST(LinearOps, PerHeadMatricesAgree) {
  const std::vector<float> weights = random_values(3 * 10 * 24, 5);
  const std::vector<float> x = random_values(2 * 3 * 24, 6);
  std::vector<float> results[2];
  for (int i = 0; i < 2; ++i) {
    const auto ops = make_ops(i == 0 ? "reference" : "cpu");
    const auto prepared = ops->prepare_heads(weights, 3, 10, 24);
    ASSERT_TRUE(prepared.ok());
    results[i].resize(2 * 3 * 10);
    std::vector<float> input = x;
    ops->linear_per_head(**prepared, {input.data(), 2, 3, 24, 72, 24},
                         {results[i].data(), 2, 3, 10, 30, 10});
  }
  // docs/numerics.md, section 6: at most 24 roundings in a sum, and one of the reference.
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    const float* w = weights.data() + i % 30 * 24;
    const float* row = x.data() + i / 10 * 24;
    const double magnitude =
        std::inner_product(w, w + 24, row, 0.0, std::plus<>(),
                           [](float a, float b) { return std::abs(static_cast<double>(a) * b); });
    EXPECT_NEAR(results[1][i], results[0][i], 25 * 0x1p-24 * magnitude) << i;
  }
}

// checkpoints.md 2.1: x is multiplied by pre_quant_scale, column by column, before all else. With
// powers of two that is the weights times them, exactly, in the wide modes.
TEST(LinearOps, MultiplyTheColumnsOfXByThePreQuantScale) {
  const std::vector<float> weights = random_values(16 * 32, 7);
  std::vector<float> scaled = weights;
  std::vector<float> scale(32);
  for (std::size_t i = 0; i < scale.size(); ++i)
    scale[i] = std::ldexp(1.0F, static_cast<int>(i % 7) - 3);
  for (std::size_t i = 0; i < scaled.size(); ++i)
    scaled[i] *= scale[i % 32];
  std::vector<std::uint8_t> bytes, scaled_bytes;
  LoadedLinear awq = bf16_linear(weights, 16, 32, bytes);
  awq.pre_quant_scale = scale;
  const LoadedLinear plain = bf16_linear(scaled, 16, 32, scaled_bytes);
  std::vector<float> x = random_values(70 * 32, 8);  // more rows than are transformed at a time
  for (const char* name : {"reference", "cpu"}) {
    const auto ops = make_ops(name);
    const auto want = ops->prepare_linear(plain, ActivationMode::kW4a16);
    const auto got = ops->prepare_linear(awq, ActivationMode::kW4a16);
    ASSERT_TRUE(want.ok() && got.ok());
    std::vector<float> y_want(70 * 16), y_got(70 * 16);
    ops->linear(**want, Rows(x.data(), 70, 32), Rows(y_want.data(), 70, 16));
    ops->linear(**got, Rows(x.data(), 70, 32), Rows(y_got.data(), 70, 16));
    EXPECT_EQ(y_got, y_want) << name;
  }
}

// Scaled first, quantised after: the codes are those of x * pre_quant_scale.
TEST(LinearOps, QuantiseWhatThePreQuantScaleLeaves) {
  std::vector<float> x = random_values(2 * 32, 9);
  const std::vector<float> scale(32, 3.0F);
  std::vector<float> scaled = x;
  for (float& value : scaled)
    value *= 3.0F;
  LinearInput input;
  input.quantized = true;
  input.input_scale = 0.25F;
  InputScratch want, got;
  want.reserve(2, 32);
  got.reserve(2, 32);
  transform_input(input, Rows(scaled.data(), 2, 32), false, want);
  input.pre_quant_scale = scale;
  transform_input(input, Rows(x.data(), 2, 32), false, got);
  EXPECT_EQ(got.values, want.values);
  EXPECT_EQ(got.codes, want.codes);
}

// nvfp4-moe 3: a w4a4 linear quantises with its own input scale, and says so when there is none.
TEST(LinearOps, RefuseW4a4WithoutAnInputScale) {
  LoadedLinear linear;
  linear.linear_class = LinearClass::kNvfp4;
  const auto input = linear_input(linear, ActivationMode::kW4a4);
  EXPECT_EQ(input.status().code(), StatusCode::kNotFound);
  EXPECT_NE(input.status().message().find("--linear-activation-mode w4a16"), std::string::npos);
}

TEST(LinearOps, TakeAlphaFromTheInputScale) {
  LoadedLinear linear;
  linear.input_scale = 0.25F;
  linear.matrix.global_scale = 0.5F;
  const auto input = linear_input(linear, ActivationMode::kW4a4);
  ASSERT_TRUE(input.ok());
  EXPECT_TRUE(input->quantized);
  EXPECT_EQ(input->alpha, 0.125F);  // 0.5 / (1 / 0.25)
}

}  // namespace
}  // namespace halfbyte
