// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"

#include "kernels/cuda/sm90/token_tiles.h"
#include "quantized_case.h"

namespace halfbyte::sm90 {
namespace {

using test::DeviceArray;
using test::LayerCase;
using test::LayerStep;
using test::QuantizedStep;
using test::Spread;

struct Outputs {
  std::vector<std::uint16_t> h;
  std::vector<std::byte> rows;
  bool operator==(const Outputs&) const = default;
};

/// gather_tokens, GEMM1 with activation, GEMM2. With a scale h is quantised.
class Prefill {
 public:
  Prefill(const LayerCase& c,
          const LayerStep& step,
          int tile_tokens,
          DType row_dtype,
          const cuda::QuantizeScale* h_scale = nullptr)
      : c_(c), step_(step), row_dtype_(row_dtype), h_scale_(h_scale) {
    const device::Properties limits = device::read_properties(0).value();
    up_shape_ = {step.gate_up.layout,
                 h_scale == nullptr ? GemmOutput::kActivated : GemmOutput::kQuantized};
    down_shape_ = {step.down.layout, GemmOutput::kRows, row_dtype};
    up_config = make_config(up_shape_, tile_tokens, limits);
    x_tiles_ = {tile_tokens, step.gate_up.layout.padded_cols()};
    h_tiles_ = {tile_tokens, up_shape_.output_cols()};
    const std::int64_t tiles = x_tiles_.max_tiles(step.num_routes(), c.num_experts);
    x_ = {static_cast<std::size_t>(tiles * x_tiles_.tile_bytes() / 2), step.stream};
    h_ = {static_cast<std::size_t>(tiles * h_tiles_.tile_bytes() / 2), step.stream};
    const auto routes = static_cast<std::size_t>(step.num_routes());
    rows_ = {routes * static_cast<std::size_t>(c.hidden_size) * (row_dtype == DType::kF32 ? 4 : 2),
             step.stream};
  }

  Outputs run(int poison) {
    x_.poison(poison), h_.poison(poison), rows_.poison(poison);
    gather();
    GroupedGemmArgs args = gemm_args(x_.data(), step_.gate_up);
    args.alpha[0] = c_.activation.gated() ? step_.alpha_gate.data() : step_.alpha_up.data();
    args.alpha[1] = step_.alpha_up.data();
    args.activation = c_.activation;
    args.output = h_.data();
    args.h_scale = h_scale_;
    multiply(up_shape_, args);
    args = gemm_args(h_.data(), step_.down);
    args.alpha[0] = step_.alpha_down.data();
    args.output = rows_.data();
    multiply(down_shape_, args);
    return {plain_h(), rows_.download()};
  }

  /// After run(): the rows again, from alphas of the rows.
  std::vector<std::byte> run_scaled_rows() {
    std::vector<float> alpha;
    for (const std::int32_t expert : step_.routes.route_expert)
      alpha.push_back(step_.alpha_down_host[static_cast<std::size_t>(expert)]);
    const DeviceArray<float> row_alpha(alpha, step_.stream);
    rows_.poison(0xFF);
    GroupedGemmArgs args = gemm_args(h_.data(), step_.down);
    args.row_alpha = row_alpha.data();
    args.output = rows_.data();
    multiply({step_.down.layout, GemmOutput::kScaledRows, row_dtype_}, args);
    return rows_.download();
  }

  /// The sums of gate and up [routes, columns], no alpha applied.
  std::vector<float> run_sums() {
    const GroupedGemmShape shape = {step_.gate_up.layout, GemmOutput::kRows, DType::kF32};
    const DeviceArray<float> sums(
        static_cast<std::size_t>(step_.num_routes() * shape.output_cols()), step_.stream);
    x_.poison(0xFF), sums.poison(0xFF);
    gather();
    GroupedGemmArgs args = gemm_args(x_.data(), step_.gate_up);
    args.output = sums.data();
    multiply(shape, args);
    return sums.download();
  }

  /// h [routes, h_cols] out of its tiles.
  std::vector<std::uint16_t> plain_h() {
    const std::vector<std::uint16_t> tiles = h_.download();
    const std::int64_t cols = step_.h_cols();
    std::vector<std::uint16_t> plain(static_cast<std::size_t>(step_.num_routes() * cols), 0);
    test::for_each_tile_row(
        h_tiles_, step_.routes, [&](std::int64_t tile, int token, std::int64_t route) {
          for (std::int64_t col = 0; col < h_tiles_.cols; ++col) {
            const std::uint16_t value =
                tiles[static_cast<std::size_t>(h_tiles_.offset(tile, token, col) / 2)];
            if (route >= 0)
              plain[static_cast<std::size_t>(route * cols + col)] = value;
            else
              num_not_zero_ += value == 0 ? 0 : 1;
          }
        });
    EXPECT_EQ(num_not_zero_, 0) << "in the rows that make tiles as wide as products";
    return plain;
  }

  std::vector<float> rows_f32(const std::vector<std::byte>& bytes) const {
    return test::rows_as_f32(bytes, row_dtype_);
  }

  GroupedGemmConfig up_config;

 private:
  void gather() const {
    const GatherTokensArgs gather = {step_.x.data(), step_.route_row.data(),
                                     step_.expert_offset.data(), step_.expert_count.data(),
                                     x_.data()};
    EXPECT_TRUE(launch_gather_tokens(c_.num_experts, step_.num_routes(), c_.hidden_size,
                                     x_tiles_.tile_tokens, gather, step_.stream.handle())
                    .ok());
  }
  GroupedGemmArgs gemm_args(const void* tokens, const test::ExpertMatrix& weights) const {
    GroupedGemmArgs args;
    args.tokens = tokens;
    args.expert_offset = step_.expert_offset.data();
    args.expert_count = step_.expert_count.data();
    args.weights = weights.prepared.data();
    return args;
  }
  void multiply(const GroupedGemmShape& shape, const GroupedGemmArgs& args) const {
    const GroupedGemmConfig config =
        make_config(shape, x_tiles_.tile_tokens, device::read_properties(0).value());
    const Status status = launch(shape, config, args, step_.stream.handle());
    EXPECT_TRUE(status.ok()) << status.to_string();
  }

  LayerCase c_;
  const LayerStep& step_;
  DType row_dtype_;
  const cuda::QuantizeScale* h_scale_;
  std::int64_t num_not_zero_ = 0;
  GroupedGemmShape up_shape_, down_shape_;
  TokenTiles x_tiles_, h_tiles_;
  DeviceArray<std::uint16_t> x_, h_;
  DeviceArray<std::byte> rows_;
};

void expect_layer(const LayerCase& c) {
  const unsigned seed = std::random_device()();
  LayerStep step(c, seed);
  for (const int tile_tokens : list_tile_tokens(GemmOutput::kActivated)) {
    for (const DType row_dtype : {DType::kF32, DType::kBf16}) {
      Prefill prefill(c, step, tile_tokens, row_dtype);
      SCOPED_TRACE(testing::Message() << prefill.up_config.to_string() << ", seed " << seed);
      const Outputs first = prefill.run(0xFF);
      const DeviceArray<std::uint16_t> h(first.h, step.stream);
      step.expect_h(h);
      step.expect_rows(h, prefill.rows_f32(first.rows), row_dtype == DType::kBf16);
      for (const int poison : {0x00, 0x7F, 0xFF})
        EXPECT_TRUE(first == prefill.run(poison));
    }
  }
}

/// Sums of every stored row of gate_up against the exact ones; those of padding are zero.
void expect_sums(const LayerStep& step, const std::vector<float>& got) {
  const test::CanonicalOnDevice weights = step.gate_up.canonical();
  const WeightLayout& layout = step.gate_up.layout;
  const auto size = static_cast<std::size_t>(std::int64_t{step.num_routes()} * weights.rows);
  const DeviceArray<double> sum(size, step.stream), magnitude(size, step.stream);
  test::reference_gemm(weights, step.x.data(), weights.cols, step.route_row.data(),
                       step.route_expert.data(), step.num_routes(), sum.data(), magnitude.data(),
                       step.stream);
  const std::vector<double> sums = sum.download(), magnitudes = magnitude.download();
  const std::int64_t cols = std::ssize(got) / step.num_routes();
  std::vector<double> error(got.begin(), got.end());
  for (std::int64_t route = 0; route < step.num_routes(); ++route) {
    for (std::int64_t row = 0; row < weights.rows; ++row) {
      const std::int64_t half = row / layout.shape.half_rows;
      const std::int64_t col =
          stored_row(layout.shape.num_halves, static_cast<int>(half), row % layout.shape.half_rows);
      const auto at = static_cast<std::size_t>(route * weights.rows + row);
      const double bound =
          test::gemm_bound(weights.cols, magnitudes[at]) + 0x1p-23 * magnitudes[at];
      double& e = error[static_cast<std::size_t>(route * cols + col)];
      e = std::abs(e - sums[at]) <= bound ? 0 : 1;
    }
  }
  EXPECT_EQ(std::count(error.begin(), error.end(), 0.0), std::ssize(error));
}

void expect_quantized_layer(const LayerCase& c, double min_exact) {
  const unsigned seed = std::random_device()();
  QuantizedStep step(c, seed);
  for (const int tile_tokens : list_tile_tokens(GemmOutput::kQuantized)) {
    Prefill prefill(c, step, tile_tokens, DType::kF32, step.h_scale.data());
    SCOPED_TRACE(testing::Message() << prefill.up_config.to_string() << ", seed " << seed);
    const Outputs first = prefill.run(0xFF);
    step.expect_grid_h(first.h, min_exact);
    const DeviceArray<std::uint16_t> h(first.h, step.stream);
    step.expect_rows(h, prefill.rows_f32(first.rows), false);
    for (const int poison : {0x00, 0x7F})
      EXPECT_TRUE(first == prefill.run(poison));
  }
}

TEST(GroupedGemm, MeetsTheBoundForEveryDistributionOfRows) {
  HALFBYTE_NEED_HOPPER();
  test::for_each_distribution(expect_layer);
}

TEST(GroupedGemm, MeetsTheBoundForEveryActivationAndTail) {
  HALFBYTE_NEED_HOPPER();
  test::for_each_activation_and_tail(expect_layer);
}

// Mode w4a4: h on the NVFP4 grid, bit for bit where the sums are exact.
TEST(GroupedGemm, QuantizesHForEveryDistributionOfRows) {
  HALFBYTE_NEED_HOPPER();
  for (const Spread spread : {Spread::kRandom, Spread::kOneExpert, Spread::kMissing}) {
    for (const std::int64_t tokens : {1, 40, 333}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, spread " << static_cast<int>(spread));
      expect_quantized_layer({.num_experts = 7,
                              .hidden_size = 192,
                              .intermediate_size = 192,
                              .num_tokens = tokens,
                              .top_k = 3,
                              .spread = spread},
                             0.9);
    }
  }
}

TEST(GroupedGemm, QuantizesHOfEveryActivationAndTail) {
  HALFBYTE_NEED_HOPPER();
  for (const ActivationSpec& activation : test::kActivations) {
    for (const auto& [hidden, intermediate] :
         {std::pair{144, 96}, std::pair{2880, 240}, std::pair{16, 16}, std::pair{208, 704}}) {
      SCOPED_TRACE(testing::Message() << "H " << hidden << " I " << intermediate << " activation "
                                      << static_cast<int>(activation.function));
      expect_quantized_layer({.num_experts = 3,
                              .hidden_size = hidden,
                              .intermediate_size = intermediate,
                              .activation = activation,
                              .num_tokens = 70,
                              .top_k = 2},
                             hidden <= 256 ? 0.9 : 0);
    }
  }
}

// Mode w4a4_dynamic: the second product with an alpha for every row.
TEST(GroupedGemm, ScaledRowsHaveTheBitsOfRows) {
  HALFBYTE_NEED_HOPPER();
  const LayerCase c = {.num_experts = 7,
                       .hidden_size = 528,
                       .intermediate_size = 192,
                       .num_tokens = 333,
                       .top_k = 3,
                       .awkward = true};
  const LayerStep step(c, std::random_device()());
  for (const int tile_tokens : list_tile_tokens(GemmOutput::kScaledRows)) {
    for (const DType row_dtype : {DType::kF32, DType::kBf16}) {
      Prefill prefill(c, step, tile_tokens, row_dtype);
      const Outputs want = prefill.run(0x00);
      EXPECT_TRUE(want.rows == prefill.run_scaled_rows()) << tile_tokens;
    }
  }
}

// And its first product, whose sums lie in the order of the stored rows.
TEST(GroupedGemm, SumsOfGateAndUpMeetTheBound) {
  HALFBYTE_NEED_HOPPER();
  for (const ActivationSpec& activation : {test::kActivations[0], test::kActivations[2]}) {
    const LayerCase c = {.num_experts = 7,
                         .hidden_size = 528,
                         .intermediate_size = 208,
                         .activation = activation,
                         .num_tokens = 333,
                         .top_k = 3,
                         .awkward = true};
    const LayerStep step(c, std::random_device()());
    for (const int tile_tokens : list_tile_tokens(GemmOutput::kScaledRows)) {
      SCOPED_TRACE(tile_tokens);
      expect_sums(step, Prefill(c, step, tile_tokens, DType::kF32).run_sums());
    }
  }
}

TEST(GroupedGemm, MeetsTheBoundForManyTiles) {
  HALFBYTE_NEED_HOPPER();
  expect_layer(test::many_tiles());
}

}  // namespace
}  // namespace halfbyte::sm90
