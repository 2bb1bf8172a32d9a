// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"

#include <cstring>

#include "kernels/cuda/sm90/token_tiles.h"
#include "layer_case.h"

namespace halfbyte::sm90 {
namespace {

using test::DeviceArray;
using test::LayerCase;
using test::LayerStep;
using test::Spread;

struct Outputs {
  std::vector<std::uint16_t> h;
  std::vector<std::byte> rows;
  bool operator==(const Outputs&) const = default;
};

/// gather_tokens, GEMM1 with activation, GEMM2.
class Prefill {
 public:
  Prefill(const LayerCase& c, const LayerStep& step, int tile_tokens, DType row_dtype)
      : c_(c), step_(step), row_dtype_(row_dtype) {
    const device::Properties limits = device::read_properties(0).value();
    up_shape_ = {step.gate_up.layout, GemmOutput::kActivated};
    down_shape_ = {step.down.layout, GemmOutput::kRows, row_dtype};
    up_config = make_config(up_shape_, tile_tokens, limits);
    down_config_ = make_config(down_shape_, tile_tokens, limits);
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
    const GatherTokensArgs gather = {step_.x.data(), step_.route_row.data(),
                                     step_.expert_offset.data(), step_.expert_count.data(),
                                     x_.data()};
    EXPECT_TRUE(launch_gather_tokens(c_.num_experts, step_.num_routes(), c_.hidden_size,
                                     x_tiles_.tile_tokens, gather, step_.stream.handle())
                    .ok());
    GroupedGemmArgs args;
    args.tokens = x_.data();
    args.expert_offset = step_.expert_offset.data();
    args.expert_count = step_.expert_count.data();
    args.weights = step_.gate_up.prepared.data();
    args.alpha[0] = c_.activation.gated() ? step_.alpha_gate.data() : step_.alpha_up.data();
    args.alpha[1] = step_.alpha_up.data();
    args.activation = c_.activation;
    args.output = h_.data();
    Status status = launch(up_shape_, up_config, args, step_.stream.handle());
    EXPECT_TRUE(status.ok()) << status.to_string();
    args.tokens = h_.data();
    args.weights = step_.down.prepared.data();
    args.alpha[0] = step_.alpha_down.data();
    args.output = rows_.data();
    status = launch(down_shape_, down_config_, args, step_.stream.handle());
    EXPECT_TRUE(status.ok()) << status.to_string();
    return {plain_h(), rows_.download()};
  }

  /// h [routes, h_cols] out of its tiles.
  std::vector<std::uint16_t> plain_h() const {
    const std::vector<std::uint16_t> tiles = h_.download();
    const auto cols = static_cast<std::size_t>(step_.h_cols());
    std::vector<std::uint16_t> plain(static_cast<std::size_t>(step_.num_routes()) * cols, 0);
    std::int64_t tile_start = 0;
    for (std::size_t e = 0; e < step_.routes.expert_count.size(); ++e) {
      const std::int32_t count = step_.routes.expert_count[e];
      const std::int32_t num_tiles = (count + h_tiles_.tile_tokens - 1) / h_tiles_.tile_tokens;
      const std::int32_t rows =
          num_tiles == 0 ? 1 : ((count + num_tiles - 1) / num_tiles + 7) / 8 * 8;
      for (std::int32_t i = 0; i < count; ++i) {
        const auto route = static_cast<std::size_t>(step_.routes.expert_offset[e] + i);
        for (std::int64_t col = 0; col < h_tiles_.cols; ++col) {
          const std::int64_t byte = h_tiles_.offset(tile_start + i / rows, i % rows, col);
          plain[route * cols + static_cast<std::size_t>(col)] =
              tiles[static_cast<std::size_t>(byte / 2)];
        }
      }
      tile_start += num_tiles;
    }
    return plain;
  }

  std::vector<float> rows_f32(const std::vector<std::byte>& bytes) const {
    std::vector<float> values(bytes.size() / (row_dtype_ == DType::kF32 ? 4 : 2));
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t bits = 0;
      if (row_dtype_ == DType::kF32) {
        std::memcpy(&values[i], bytes.data() + 4 * i, 4);
      } else {
        std::memcpy(&bits, bytes.data() + 2 * i, 2);
        values[i] = bf16_to_f32(bits);
      }
    }
    return values;
  }

  GroupedGemmConfig up_config;

 private:
  LayerCase c_;
  const LayerStep& step_;
  DType row_dtype_;
  GroupedGemmShape up_shape_, down_shape_;
  GroupedGemmConfig down_config_;
  TokenTiles x_tiles_, h_tiles_;
  DeviceArray<std::uint16_t> x_, h_;
  DeviceArray<std::byte> rows_;
};

void expect_layer(const LayerCase& c) {
  const unsigned seed = std::random_device()();
  LayerStep step(c, seed);
  for (const int tile_tokens : list_tile_tokens()) {
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

TEST(GroupedGemm, MeetsTheBoundForEveryDistributionOfRows) {
  HALFBYTE_NEED_HOPPER();
  for (const Spread spread : {Spread::kRandom, Spread::kOneExpert, Spread::kMissing,
                              Spread::kDuplicates, Spread::kSkewed}) {
    for (const std::int64_t tokens : {1, 40, 333}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, spread " << static_cast<int>(spread));
      expect_layer({.num_experts = 7,
                    .hidden_size = 512,
                    .intermediate_size = 256,
                    .num_tokens = tokens,
                    .top_k = 3,
                    .spread = spread});
    }
  }
}

TEST(GroupedGemm, MeetsTheBoundForEveryActivationAndTail) {
  HALFBYTE_NEED_HOPPER();
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {528, 96}, {2880, 240}, {16, 16}, {640, 704}};
  const ActivationSpec activations[] = {{},
                                        {ActivationFunction::kSwigluClamped, 1.702F, 1.0F, 0.75F},
                                        {ActivationFunction::kRelu2},
                                        {ActivationFunction::kGegluTanh}};
  for (const ActivationSpec& activation : activations) {
    for (const auto& [hidden, intermediate] : sizes) {
      SCOPED_TRACE(testing::Message() << "H " << hidden << " I " << intermediate << " activation "
                                      << static_cast<int>(activation.function));
      expect_layer({.num_experts = 3,
                    .hidden_size = hidden,
                    .intermediate_size = intermediate,
                    .activation = activation,
                    .num_tokens = 70,
                    .top_k = 2,
                    .awkward = true});
    }
  }
}

TEST(GroupedGemm, MeetsTheBoundForManyTiles) {
  HALFBYTE_NEED_HOPPER();
  expect_layer({.num_experts = 40,
                .hidden_size = 1024,
                .intermediate_size = 512,
                .num_tokens = 1500,
                .top_k = 2,
                .awkward = true});
}

}  // namespace
}  // namespace halfbyte::sm90
