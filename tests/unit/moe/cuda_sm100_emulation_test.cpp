// SPDX-License-Identifier: Apache-2.0
//
// A step of cuda_sm100 in plain loops: the experts as they are packed, the operands as the kernels
// write them, and a grouped GEMM that finds every code and scale where group_operands and the
// formats' index functions say. Its rows have the bits of the reference.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "kernels/reference/expert.h"
#include "moe/backends/cuda_sm100_plan.h"
#include "moe/backends/cuda_sm100_weights.h"
#include "support/moe_case.h"
#include "support/nvfp4_rows_on_host.h"

namespace halfbyte {
namespace {

constexpr DeviceLimits kB200 = {{DeviceKind::kCuda, 0}, 100, 148, 227 * 1024, 0};
constexpr std::int64_t kCapacity = 200;

using Bytes = std::vector<std::uint8_t>;

Bytes poisoned(std::int64_t size) {
  return Bytes(static_cast<std::size_t>(size), 0x7F);
}

Result<ExpertPlan> plan_of(const test::TestLayer& layer, ActivationMode mode) {
  ExpertPlan request;
  request.spec = layer.spec;
  request.mode = mode;
  request.shard = {.num_local_experts = layer.spec.num_experts,
                   .intermediate_size = layer.spec.intermediate_size};
  request.limits = kB200;
  request.capacity_tokens = kCapacity;
  return plan_sm100(request);
}

// All experts, each behind the one before.
struct Prepared {
  Bytes gate_up_codes, gate_up_scale, down_codes, down_scale;
  std::vector<float> scalars;
};

Prepared prepare(const ExpertPlan& plan, const test::TestLayer& layer) {
  Prepared prepared;
  Bytes packed_bytes = poisoned(static_cast<std::int64_t>(sm100_packed_bytes(plan)));
  const auto append = [](std::span<const std::uint8_t> part, Bytes& dst) {
    dst.insert(dst.end(), part.begin(), part.end());
  };
  for (const test::TestExpert& expert : layer.experts) {
    const Sm100Packed packed = pack_sm100_expert(plan, expert.expert(), packed_bytes);
    append(packed.gate_up_codes, prepared.gate_up_codes);
    append(packed.gate_up_scale, prepared.gate_up_scale);
    append(packed.down_codes, prepared.down_codes);
    append(packed.down_scale, prepared.down_scale);
  }
  prepared.scalars = sm100_scalars(plan, layer.scales(plan.mode));
  return prepared;
}

// A row of codes and blocked scales, decoded; exact.
std::vector<double> decode_row(const std::uint8_t* codes,
                               const std::uint8_t* block_scale,
                               std::int64_t row,
                               std::int64_t cols,
                               std::int64_t scale_cols) {
  std::vector<double> values;
  for (std::int64_t col = 0; col < cols; ++col) {
    const std::uint8_t scale = block_scale[blocked_128x4_offset(row, col / 16, scale_cols / 4)];
    values.push_back(static_cast<double>(e2m1_to_f32(e2m1_code_at(codes + row * (cols / 2), col))) *
                     static_cast<double>(e4m3_to_f32(scale)));
  }
  return values;
}

// What CUTLASS is asked for: the products of one expert are multiples of 2^-20 and their sums exact
// in fp64.
void multiply_expert(const WeightLayout& weights,
                     const sm100::GroupedGemmArgs& args,
                     const sm100::GroupOperands& at,
                     int expert) {
  const float alpha = args.alpha == nullptr ? 1.0F : args.alpha[expert];
  const cuda::Nvfp4Operand operand = cuda::operand_of(weights);
  for (int token = 0; token < at.tokens; ++token) {
    const std::vector<double> x =
        decode_row(args.token_codes + at.token_codes, args.token_scale + at.token_scale, token,
                   at.cols, operand.scale_cols);
    for (int row = 0; row < at.rows; ++row) {
      const std::vector<double> w =
          decode_row(args.weight_codes + at.weight_codes, args.weight_scale + at.weight_scale, row,
                     at.cols, weights.scale_cols);
      double sum = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        sum += x[i] * w[i];
      args.sums[at.sums / 4 + std::int64_t{token} * at.rows + row] =
          static_cast<float>(sum) * alpha;
    }
  }
}

void multiply(const WeightLayout& weights,
              const sm100::GroupedGemmArgs& args,
              const cuda::RouteTable& routes) {
  for (int e = 0; e < routes.num_experts; ++e) {
    multiply_expert(weights, args,
                    sm100::group_operands(weights, e, routes.expert_offset[e],
                                          routes.expert_count[e], routes.first_block[e]),
                    e);
  }
}

// One step's buffers, full of what a step must not read.
struct Buffers {
  Bytes x_codes, x_scale, route_codes, route_scale, h_codes, h_scale;
  std::vector<float> x_row_scale, sums, h_row_scale, rows;

  Buffers(const ExpertPlan& plan, std::int64_t num_routes) {
    const cuda::Nvfp4Operand x = cuda::operand_of(sm100_gate_up(plan));
    const cuda::Nvfp4Operand h = cuda::operand_of(sm100_down(plan));
    const std::int64_t blocks = cuda::max_scale_blocks(num_routes, plan.shard.num_local_experts);
    const auto routes = static_cast<std::size_t>(num_routes);
    x_codes = poisoned(kCapacity * x.cols / 2);
    x_scale = poisoned(kCapacity * x.cols / 16);
    route_codes = poisoned(num_routes * x.row_bytes());
    route_scale = poisoned(blocks * x.block_bytes());
    h_codes = poisoned(num_routes * h.row_bytes());
    h_scale = poisoned(blocks * h.block_bytes());
    x_row_scale.assign(kCapacity, std::nanf(""));
    h_row_scale.assign(routes, std::nanf(""));
    sums.assign(routes * static_cast<std::size_t>(sm100_gate_up(plan).code_rows()), std::nanf(""));
    rows.assign(routes * static_cast<std::size_t>(plan.spec.hidden_size), std::nanf(""));
  }
};

// One step on the host: the backend's launches, in its order.
class Step {
 public:
  Step(const ExpertPlan& plan,
       const Prepared& prepared,
       const test::TestTokens& tokens,
       const test::TestRoutes& routes)
      : plan_(plan),
        prepared_(prepared),
        tokens_(tokens),
        first_block_(test::first_blocks(routes.expert_count)),
        routes_{routes.expert_offset.data(),
                routes.expert_count.data(),
                first_block_.data(),
                routes.route_row.data(),
                static_cast<int>(routes.expert_count.size()),
                std::ssize(routes.route_row)},
        buffers_(plan, std::ssize(routes.route_row)) {}

  std::vector<float> run() {
    quantize();
    gather();
    multiply(
        sm100_gate_up(plan_),
        {prepared_.gate_up_codes.data(), prepared_.gate_up_scale.data(),
         buffers_.route_codes.data(), buffers_.route_scale.data(), nullptr, buffers_.sums.data()},
        routes_);
    activate();
    multiply(
        sm100_down(plan_),
        {prepared_.down_codes.data(), prepared_.down_scale.data(), buffers_.h_codes.data(),
         buffers_.h_scale.data(), dynamic() ? nullptr : of_projection(2), buffers_.rows.data()},
        routes_);
    if (dynamic())
      test::scale_rows_on_host(
          plan_.spec.hidden_size,
          {routes_, buffers_.rows.data(), of_projection(2), buffers_.h_row_scale.data()});
    return buffers_.rows;
  }

 private:
  bool dynamic() const { return plan_.mode == ActivationMode::kW4a4Dynamic; }
  const float* of_projection(std::int64_t projection) const {
    return prepared_.scalars.data() + projection * plan_.shard.num_local_experts;
  }
  const float* activation_scale(std::int64_t operand) const {
    return dynamic() ? nullptr : of_projection(3) + operand;
  }

  void quantize() {
    test::quantize_rows_on_host(tokens_.num_tokens, plan_.spec.hidden_size,
                                {tokens_.x.data(), activation_scale(0), buffers_.x_codes.data(),
                                 buffers_.x_scale.data(), buffers_.x_row_scale.data()});
  }
  void gather() {
    test::gather_rows_on_host(cuda::operand_of(sm100_gate_up(plan_)),
                              {routes_, buffers_.x_codes.data(), buffers_.x_scale.data(),
                               buffers_.route_codes.data(), buffers_.route_scale.data()});
  }
  void activate() {
    cuda::ActivateRowsArgs args;
    args.routes = routes_;
    args.sums = buffers_.sums.data();
    args.sum_cols = sm100_gate_up(plan_).code_rows();
    args.activation = plan_.spec.activation;
    if (plan_.spec.activation.gated()) args.gate_scale = of_projection(0);
    args.up_scale = of_projection(1);
    if (dynamic()) args.row_scale = buffers_.x_row_scale.data();
    args.h_scale = activation_scale(1);
    args.codes = buffers_.h_codes.data();
    args.block_scale = buffers_.h_scale.data();
    args.h_row_scale = buffers_.h_row_scale.data();
    test::activate_rows_on_host(cuda::operand_of(sm100_down(plan_)), args);
  }

  const ExpertPlan& plan_;
  const Prepared& prepared_;
  const test::TestTokens& tokens_;
  std::vector<std::int32_t> first_block_;
  cuda::RouteTable routes_;
  Buffers buffers_;
};

std::vector<float> emulate(const ExpertPlan& plan,
                           const test::TestLayer& layer,
                           const test::TestTokens& tokens,
                           const test::TestRoutes& routes) {
  const Prepared prepared = prepare(plan, layer);
  return Step(plan, prepared, tokens, routes).run();
}

std::vector<float> reference_rows(const test::TestLayer& layer,
                                  ActivationMode mode,
                                  const test::TestTokens& tokens,
                                  const test::TestRoutes& routes) {
  const auto hidden = static_cast<std::size_t>(layer.spec.hidden_size);
  std::vector<float> rows(routes.route_row.size() * hidden);
  for (std::size_t route = 0; route < routes.route_row.size(); ++route) {
    const auto expert = static_cast<std::size_t>(routes.route_expert[route]);
    reference::run_expert_row(
        layer.experts[expert].expert(), layer.spec.activation, mode, layer.scalars(expert),
        tokens.x_f32.data() + static_cast<std::size_t>(routes.route_row[route]) * hidden,
        rows.data() + route * hidden);
  }
  return rows;
}

void expect_equal(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  std::size_t num_different = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool both_nan = std::isnan(got[i]) && std::isnan(want[i]);
    if (!both_nan && std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(want[i]))
      ++num_different;
  }
  EXPECT_EQ(num_different, 0U) << "of " << got.size();
}

std::vector<test::LayerShape> shapes() {
  test::LayerShape relu2 = {.hidden_size = 48, .intermediate_size = 80, .num_experts = 3};
  relu2.activation.function = ActivationFunction::kRelu2;
  test::LayerShape clamped = {.hidden_size = 64, .intermediate_size = 64};
  clamped.activation = {ActivationFunction::kSwigluClamped, 1.702F, 1.0F, 7.0F};
  return {{.hidden_size = 64, .intermediate_size = 32},
          {.hidden_size = 144, .intermediate_size = 96, .num_experts = 5, .top_k = 3},
          {.hidden_size = 16, .intermediate_size = 16},
          relu2,
          clamped};
}

// Sums in fp64 rounded once, as the reference has them: so every other operation, every byte's
// place and every scalar is the backend's own, and none differs.
TEST(CudaSm100Emulation, HasTheBitsOfTheReference) {
  for (const test::LayerShape& shape : shapes()) {
    const test::TestLayer layer = test::random_layer(shape, 1);
    const test::TestTokens tokens = test::random_tokens(layer.spec, 9, 2);
    const test::TestRoutes routes(layer.spec, tokens);
    for (const ActivationMode mode : {ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
      SCOPED_TRACE(testing::Message() << shape.hidden_size << " x " << shape.intermediate_size
                                      << " " << activation_mode_name(mode));
      const auto plan = plan_of(layer, mode);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      expect_equal(emulate(*plan, layer, tokens, routes),
                   reference_rows(layer, mode, tokens, routes));
    }
  }
}

// An expert with more rows than a block of scales holds, beside one with none.
TEST(CudaSm100Emulation, ScalesOfManyRowsGoIntoSeveralBlocks) {
  const test::TestLayer layer = test::random_layer({.hidden_size = 32, .intermediate_size = 16}, 3);
  test::TestTokens tokens = test::random_tokens(layer.spec, 150, 4);
  for (std::size_t i = 0; i < tokens.topk_idx.size(); i += 2) {
    tokens.topk_idx[i] = 1;
    tokens.topk_idx[i + 1] = i % 3 == 0 ? 3 : -1;
  }
  const test::TestRoutes routes(layer.spec, tokens);
  ASSERT_GT(routes.expert_count[1], 128);
  const auto plan = plan_of(layer, ActivationMode::kW4a4Dynamic);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  expect_equal(emulate(*plan, layer, tokens, routes),
               reference_rows(layer, ActivationMode::kW4a4Dynamic, tokens, routes));
}

// nvfp4-moe 5.2: NaN makes its token's rows NaN and changes no other; so do a row of zeros and one
// below 2^-100 in w4a4_dynamic.
TEST(CudaSm100Emulation, RowsThatAreNotNumbersOrEmptyStayAlone) {
  const test::TestLayer layer = test::random_layer({}, 5);
  test::TestTokens tokens = test::random_tokens(layer.spec, 5, 6);
  std::vector<float> x = tokens.x_f32;
  const auto hidden = static_cast<std::size_t>(layer.spec.hidden_size);
  x[3] = std::nanf("");
  std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(hidden), hidden, 0.0F);
  std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(2 * hidden), hidden, 0x1p-110F);
  test::set_rows(tokens, layer.spec, x);
  const test::TestRoutes routes(layer.spec, tokens);
  for (const ActivationMode mode : {ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
    const auto plan = plan_of(layer, mode);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    expect_equal(emulate(*plan, layer, tokens, routes),
                 reference_rows(layer, mode, tokens, routes));
  }
}

}  // namespace
}  // namespace halfbyte
