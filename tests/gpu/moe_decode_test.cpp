// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/moe_decode_nvfp4.h"

#include <cstring>

#include "device/graph.h"
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

class Decode {
 public:
  /// With a scale h is quantised.
  Decode(const LayerCase& c,
         const LayerStep& step,
         const MoeDecodeTile& tile,
         DType row_dtype,
         const cuda::QuantizeScale* h_scale = nullptr)
      : step_(step) {
    shape = {c.num_experts, c.hidden_size, c.intermediate_size, c.activation.gated(), row_dtype};
    if (h_scale != nullptr) shape.tokens = DecodeTokens::kGrid;
    config = make_config(shape, tile, device::read_properties(0).value());
    const auto routes = static_cast<std::size_t>(step.num_routes());
    h = {routes * static_cast<std::size_t>(shape.h_cols()), step.stream};
    rows = {routes * static_cast<std::size_t>(c.hidden_size) * (row_dtype == DType::kF32 ? 4 : 2),
            step.stream};
    counters = {static_cast<std::size_t>(shape.num_counters()), step.stream};
    EXPECT_TRUE(reset_counters(shape, counters.data(), step.stream.handle()).ok());
    args = {step.x.data(),
            step.route_row.data(),
            step.expert_offset.data(),
            step.expert_count.data(),
            step.gate_up.prepared.data(),
            step.down.prepared.data(),
            step.alpha_gate.data(),
            step.alpha_up.data(),
            step.alpha_down.data(),
            c.activation,
            h.data(),
            rows.data(),
            counters.data(),
            h_scale};
  }

  Outputs run(int poison) {
    h.poison(poison);
    rows.poison(poison);
    const Status status = launch(shape, config, args, step_.stream.handle());
    EXPECT_TRUE(status.ok()) << status.to_string();
    return {h.download(), rows.download()};
  }

  std::vector<float> rows_f32() const {
    const std::vector<std::byte> bytes = rows.download();
    std::vector<float> values(bytes.size() / (shape.row_dtype == DType::kF32 ? 4 : 2));
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t bits = 0;
      if (shape.row_dtype == DType::kF32) {
        std::memcpy(&values[i], bytes.data() + 4 * i, 4);
      } else {
        std::memcpy(&bits, bytes.data() + 2 * i, 2);
        values[i] = bf16_to_f32(bits);
      }
    }
    return values;
  }

  MoeDecodeShape shape;
  MoeDecodeConfig config;
  MoeDecodeArgs args;
  DeviceArray<std::uint16_t> h;
  DeviceArray<std::byte> rows;
  DeviceArray<std::int32_t> counters;

 private:
  const LayerStep& step_;
};

/// The rows within the bound, the same bits over other old contents, counters at zero.
void expect_rows(LayerStep& step, Decode& decode, const Outputs& first) {
  step.expect_rows(decode.h, decode.rows_f32(), decode.shape.row_dtype == DType::kBf16);
  EXPECT_TRUE(first == decode.run(0x00));
  EXPECT_TRUE(first == decode.run(0x7F));
  const std::vector<std::int32_t> counters = decode.counters.download();
  EXPECT_EQ(std::count(counters.begin(), counters.end(), 0),
            static_cast<std::ptrdiff_t>(counters.size()));
}

void expect_layer(const LayerCase& c, unsigned seed) {
  LayerStep step(c, seed);
  for (const MoeDecodeTile& tile : list_moe_decode_tiles()) {
    for (const DType row_dtype : {DType::kF32, DType::kBf16}) {
      Decode decode(c, step, tile, row_dtype);
      SCOPED_TRACE(testing::Message() << decode.config.to_string() << ", seed " << seed);
      const Outputs first = decode.run(0xFF);
      step.expect_h(decode.h);
      expect_rows(step, decode, first);
    }
  }
}

void expect_quantized_layer(const LayerCase& c, double min_exact) {
  const unsigned seed = std::random_device()();
  QuantizedStep step(c, seed);
  for (const MoeDecodeTile& tile : list_moe_decode_tiles()) {
    Decode decode(c, step, tile, DType::kF32, step.h_scale.data());
    SCOPED_TRACE(testing::Message() << decode.config.to_string() << ", seed " << seed);
    const Outputs first = decode.run(0xFF);
    step.expect_grid_h(first.h, min_exact);
    expect_rows(step, decode, first);
  }
}

unsigned fresh_seed() {
  return std::random_device()();
}

constexpr ActivationSpec kSwiglu;
constexpr ActivationSpec kClamped = {ActivationFunction::kSwigluClamped, 1.702F, 1.0F, 0.75F};
constexpr ActivationSpec kRelu2 = {ActivationFunction::kRelu2};
constexpr ActivationSpec kGeglu = {ActivationFunction::kGegluTanh};

TEST(MoeDecode, MeetsTheBoundForEveryDistributionOfRows) {
  HALFBYTE_NEED_HOPPER();
  for (const Spread spread : {Spread::kRandom, Spread::kOneExpert, Spread::kMissing,
                              Spread::kDuplicates, Spread::kSkewed}) {
    for (const std::int64_t tokens : {1, 2, 9, 70}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, spread " << static_cast<int>(spread));
      expect_layer({.num_experts = 8,
                    .hidden_size = 512,
                    .intermediate_size = 256,
                    .activation = kSwiglu,
                    .num_tokens = tokens,
                    .top_k = 2,
                    .spread = spread},
                   fresh_seed());
    }
  }
}

TEST(MoeDecode, MeetsTheBoundForEveryActivationAndTail) {
  HALFBYTE_NEED_HOPPER();
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {528, 96}, {2880, 240}, {16, 16}, {768, 1856}};
  for (const ActivationSpec& activation : {kSwiglu, kClamped, kRelu2, kGeglu}) {
    for (const auto& [hidden, intermediate] : sizes) {
      SCOPED_TRACE(testing::Message() << "H " << hidden << " I " << intermediate << " activation "
                                      << static_cast<int>(activation.function));
      expect_layer({.num_experts = 5,
                    .hidden_size = hidden,
                    .intermediate_size = intermediate,
                    .activation = activation,
                    .num_tokens = 13,
                    .top_k = 3,
                    .spread = Spread::kRandom,
                    .awkward = true},
                   fresh_seed());
    }
  }
}

TEST(MoeDecode, MeetsTheBoundForManyExpertsAndManyTokens) {
  HALFBYTE_NEED_HOPPER();
  expect_layer({.num_experts = 300,
                .hidden_size = 256,
                .intermediate_size = 64,
                .activation = kSwiglu,
                .num_tokens = 40,
                .top_k = 4,
                .awkward = true},
               fresh_seed());
  expect_layer({.num_experts = 4,
                .hidden_size = 256,
                .intermediate_size = 128,
                .activation = kSwiglu,
                .num_tokens = 2100,
                .top_k = 2,
                .awkward = true},
               fresh_seed());
}

TEST(MoeDecode, RunsOnExpertsWithoutAnyRow) {
  HALFBYTE_NEED_HOPPER();
  expect_layer({.num_experts = 4,
                .hidden_size = 256,
                .intermediate_size = 64,
                .activation = kSwiglu,
                .num_tokens = 0,
                .top_k = 2},
               fresh_seed());
}

// Mode w4a4: h on the NVFP4 grid, bit for bit where the sums are exact.
TEST(MoeDecode, QuantizesHForEveryDistributionOfRows) {
  HALFBYTE_NEED_HOPPER();
  for (const Spread spread : {Spread::kRandom, Spread::kOneExpert, Spread::kMissing}) {
    for (const std::int64_t tokens : {1, 9, 70}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, spread " << static_cast<int>(spread));
      expect_quantized_layer({.num_experts = 8,
                              .hidden_size = 192,
                              .intermediate_size = 192,
                              .num_tokens = tokens,
                              .top_k = 2,
                              .spread = spread},
                             0.9);
    }
  }
}

TEST(MoeDecode, QuantizesHOfEveryActivationAndTail) {
  HALFBYTE_NEED_HOPPER();
  for (const ActivationSpec& activation : {kSwiglu, kClamped, kRelu2, kGeglu}) {
    for (const auto& [hidden, intermediate] :
         {std::pair{144, 96}, std::pair{2880, 240}, std::pair{16, 16}, std::pair{208, 1856}}) {
      SCOPED_TRACE(testing::Message() << "H " << hidden << " I " << intermediate << " activation "
                                      << static_cast<int>(activation.function));
      expect_quantized_layer({.num_experts = 5,
                              .hidden_size = hidden,
                              .intermediate_size = intermediate,
                              .activation = activation,
                              .num_tokens = 13,
                              .top_k = 3},
                             hidden <= 256 ? 0.9 : 0);
    }
  }
}

// A graph reads its inputs at replay: new tokens, ids' tables and alphas show, and a thousand
// replays of one input give the same bits.
TEST(MoeDecode, ReplaysGiveTheSameBits) {
  HALFBYTE_NEED_HOPPER();
  const LayerCase c = {.num_experts = 16,
                       .hidden_size = 1024,
                       .intermediate_size = 256,
                       .activation = kSwiglu,
                       .num_tokens = 24,
                       .top_k = 4};
  const LayerStep step(c, fresh_seed());
  for (const MoeDecodeTile& tile : list_moe_decode_tiles()) {
    Decode decode(c, step, tile, DType::kF32);
    const Outputs want = decode.run(0xFF);
    const device::Graph graph =
        device::Graph::capture(step.stream, [&] {
          for (int i = 0; i < 100; ++i)
            HALFBYTE_RETURN_IF_ERROR(
                launch(decode.shape, decode.config, decode.args, step.stream.handle()));
          return Status();
        }).value();
    for (int i = 0; i < 10; ++i) {
      decode.rows.poison(0x7F);
      ASSERT_TRUE(graph.launch(step.stream).ok());
      EXPECT_TRUE(want.rows == decode.rows.download());
    }
  }
}

}  // namespace
}  // namespace halfbyte::sm90
