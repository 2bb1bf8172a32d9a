// SPDX-License-Identifier: Apache-2.0
//
// The kernels of w4a8, stage by stage: weights folded into E4M3, rows quantised, both GEMMs, by
// grouped GEMMs and by the decode kernel.
#include <algorithm>

#include "formats/e4m3.h"
#include "formats/e4m3_fold.h"
#include "formats/f16.h"
#include "grid_on_host.h"
#include "kernels/cuda/sm90/e4m3_rows.h"
#include "kernels/cuda/sm90/grouped_gemm_fp8_nvfp4.h"
#include "kernels/cuda/sm90/moe_decode_nvfp4.h"
#include "kernels/cuda/sm90/token_tiles.h"
#include "layer_case.h"

namespace halfbyte::sm90 {
namespace {

using test::DeviceArray;
using test::ExpertMatrix;
using test::LayerCase;
using test::LayerStep;
using test::Spread;

/// The same matrix of every expert, folded on the device.
struct FoldedMatrix {
  WeightLayout layout;
  DeviceArray<std::uint8_t> prepared;
  DeviceArray<float> row_factor;
  DeviceArray<unsigned long long> num_blocks_below;
};

FoldedMatrix fold_on_device(const ExpertMatrix& matrix, const device::Stream& stream) {
  const WeightShape& s = matrix.layout.shape;
  const WeightLayout layout = fp8_layout(s);
  FoldedMatrix folded = {layout,
                         {static_cast<std::size_t>(layout.bytes()), stream},
                         {static_cast<std::size_t>(s.num_experts * layout.rows()), stream},
                         {1, stream}};
  folded.prepared.poison(0xA5), folded.row_factor.poison(0xA5), folded.num_blocks_below.poison(0);
  const std::int64_t half_codes = s.half_rows * s.cols / 2;
  for (std::int64_t e = 0; e < s.num_experts; ++e) {
    PrepareFp8WeightsArgs args;
    for (int half = 0; half < s.num_halves; ++half) {
      const std::int64_t part = e * s.num_halves + half;
      args.weights.codes[half] = matrix.codes.data() + part * half_codes;
      args.weights.block_scale[half] = matrix.scales.data() + part * half_codes / 8;
    }
    args.weights.dst = folded.prepared.data();
    args.row_factor = folded.row_factor.data();
    args.num_blocks_below = folded.num_blocks_below.data();
    EXPECT_TRUE(launch(layout, e, args, stream.handle()).ok());
  }
  return folded;
}

/// What the device must have made of a matrix, by the layout's index functions; and its values.
struct FoldedOnHost {
  std::vector<std::uint8_t> prepared;
  std::vector<float> row_factor;
  std::vector<float> values;  // [experts, halves, half_rows, cols], factors included
  unsigned long long num_blocks_below = 0;
};

float table_value(std::uint8_t scale, unsigned code) {
  const Fp8Table table = fp8_table(scale);
  const std::uint32_t bytes = (code & 4U) != 0 ? table.high : table.low;
  const float magnitude = e4m3_to_f32(static_cast<std::uint8_t>(bytes >> (8 * (code & 3U))));
  return (code & 8U) != 0 ? -magnitude : magnitude;
}

void fold_row(const ExpertMatrix& matrix,
              const WeightLayout& layout,
              const Element& row,
              FoldedOnHost& out) {
  const WeightShape& s = layout.shape;
  const bool present = row.row < s.half_rows;
  const std::int64_t base =
      ((row.expert_idx * s.num_halves + row.half) * s.half_rows + row.row) * s.cols;
  std::uint8_t most = 0;
  for (std::int64_t col = 0; present && col < s.cols; col += 16)
    most = std::max(most, matrix.host_scales[static_cast<std::size_t>((base + col) / 16)]);
  const int exponent = fold_exponent(most);
  const auto stored = static_cast<std::size_t>(row.expert_idx * layout.rows() +
                                               stored_row(s.num_halves, row.half, row.row));
  out.row_factor[stored] = std::ldexp(1.0F, -exponent);
  for (std::int64_t col = 0; col < layout.padded_cols(); ++col) {
    const Element element = {row.expert_idx, row.half, row.row, col};
    const bool inside = present && col < s.cols;
    const auto at = static_cast<std::size_t>(base + col);
    const std::uint8_t e4m3 = inside ? matrix.host_scales[at / 16] : std::uint8_t{0};
    const FoldedScale scale = fold_scale(e4m3, exponent);
    out.prepared[static_cast<std::size_t>(locate_scale(layout, element))] = scale.byte;
    if (col % 16 == 0 && scale.steps_below > 0) ++out.num_blocks_below;
    if (!inside) continue;
    const unsigned code =
        e4m3 == 0 ? 0U
                  : fold_code(matrix.host_codes[at / 2] >> (col % 2 * 4) & 15U, scale.steps_below);
    out.values[at] = table_value(scale.byte, code) * out.row_factor[stored];
    const CodeWord word = locate_fp8_code(layout, element);
    const std::uint32_t bits = place_fp8_code(word.code, code);
    for (std::size_t b = 0; b < 4; ++b) {
      std::uint8_t& byte = out.prepared[static_cast<std::size_t>(word.byte) + b];
      byte = static_cast<std::uint8_t>(byte | (bits >> (8 * b) & 0xFFU));
    }
  }
}

FoldedOnHost fold_on_host(const ExpertMatrix& matrix) {
  const WeightLayout layout = fp8_layout(matrix.layout.shape);
  const WeightShape& s = layout.shape;
  FoldedOnHost out;
  out.prepared.resize(static_cast<std::size_t>(layout.bytes()));
  out.row_factor.resize(static_cast<std::size_t>(s.num_experts * layout.rows()));
  out.values.resize(static_cast<std::size_t>(s.num_experts * s.num_halves * s.half_rows * s.cols));
  for (std::int64_t e = 0; e < s.num_experts; ++e) {
    for (int half = 0; half < s.num_halves; ++half) {
      for (std::int64_t row = 0; row < layout.padded_half_rows(); ++row)
        fold_row(matrix, layout, {e, half, row, 0}, out);
    }
  }
  return out;
}

TEST(PrepareFp8Weights, EqualsTheIndexFunctions) {
  HALFBYTE_NEED_HOPPER();
  const device::Stream stream = device::Stream::create().value();
  std::mt19937 random(std::random_device{}());
  const WeightShape shapes[] = {{3, 2, 64, 128},   {2, 2, 96, 144}, {2, 1, 144, 96},
                                {1, 1, 2880, 704}, {1, 2, 16, 16},  {2, 1, 48, 2880}};
  for (const WeightShape& shape : shapes) {
    const ExpertMatrix matrix = test::make_expert_matrix({shape}, true, random, stream);
    const FoldedMatrix got = fold_on_device(matrix, stream);
    const FoldedOnHost want = fold_on_host(matrix);
    SCOPED_TRACE(testing::Message()
                 << shape.num_halves << " x " << shape.half_rows << " x " << shape.cols);
    EXPECT_EQ(got.prepared.download(), want.prepared);
    EXPECT_EQ(got.row_factor.download(), want.row_factor);
    EXPECT_EQ(got.num_blocks_below.download()[0], want.num_blocks_below);
  }
}

/// Rows [routes, cols] as codes and scales, out of the tiles that launch_quantize_tokens wrote.
class QuantizedTokens {
 public:
  QuantizedTokens(const LayerStep& step, int num_experts, std::int64_t cols, int tile_tokens)
      : step_(step), num_experts_(num_experts), cols_(cols) {
    tiles_ = {tile_tokens, (cols + kFp8BlockCols - 1) / kFp8BlockCols * kFp8BlockCols, 1};
    const std::int64_t count = tiles_.max_tiles(step.num_routes(), num_experts);
    codes = {static_cast<std::size_t>(count * tiles_.tile_bytes()), step.stream};
    scales = {static_cast<std::size_t>(count * tiles_.tile_bytes() / 128), step.stream};
  }

  void quantize(const void* x, bool f32, const std::int32_t* route_row, int poison) const {
    codes.poison(poison), scales.poison(poison);
    const QuantizeTokensArgs args = {x,
                                     f32,
                                     route_row,
                                     step_.expert_offset.data(),
                                     step_.expert_count.data(),
                                     codes.data(),
                                     scales.data()};
    EXPECT_TRUE(launch_quantize_tokens(num_experts_, step_.num_routes(), cols_, tiles_.tile_tokens,
                                       args, step_.stream.handle())
                    .ok());
  }

  /// Bit for bit the host's quantiser on the rows that `row_of(route)` points to, and zeros that
  /// make tiles as wide as products; and the rows' values.
  template <typename RowOf>
  std::vector<double> expect_equal(RowOf row_of) const {
    const auto got_codes = codes.download();
    const auto got_scales = scales.download();
    const auto size = static_cast<std::size_t>(cols_);
    std::vector<double> values(static_cast<std::size_t>(step_.num_routes()) * size);
    std::vector<std::uint8_t> want(size);
    std::vector<float> want_scales((size + 127) / 128);
    int wrong = 0;
    const auto compare = [&](std::int64_t tile, int token, std::int64_t route) {
      std::fill(want.begin(), want.end(), std::uint8_t{0});
      std::fill(want_scales.begin(), want_scales.end(), 0.0F);
      if (route >= 0) quantize_row_to_e4m3(row_of(route), cols_, want.data(), want_scales.data());
      for (std::size_t col = 0; col < size; ++col) {
        const auto c = static_cast<std::int64_t>(col);
        const std::uint8_t code =
            got_codes[static_cast<std::size_t>(tiles_.fp8_offset(tile, token, c))];
        const float scale =
            got_scales[static_cast<std::size_t>(tiles_.scale_index(tile, c / 128, token))];
        wrong += code != want[col] || scale != want_scales[col / 128] ? 1 : 0;
        if (route >= 0)
          values[static_cast<std::size_t>(route) * size + col] =
              double{e4m3_to_f32(code)} * double{scale};
      }
    };
    test::for_each_tile_row(tiles_, step_.routes, compare);
    EXPECT_EQ(wrong, 0) << "of " << values.size();
    return values;
  }

  DeviceArray<std::uint8_t> codes;
  DeviceArray<float> scales;

 private:
  const LayerStep& step_;
  int num_experts_;
  std::int64_t cols_;
  TokenTiles tiles_;
};

// Small, zero and huge rows, values that are not finite, tails: the codes and scales of the host.
TEST(QuantizeTokens, EqualsTheHostBitForBit) {
  HALFBYTE_NEED_HOPPER();
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  for (const std::int64_t cols : {std::int64_t{16}, std::int64_t{400}, std::int64_t{2048}}) {
    const LayerCase c = {.num_experts = 5,
                         .hidden_size = cols,
                         .intermediate_size = 16,
                         .num_tokens = 77,
                         .top_k = 3};
    const LayerStep step(c, seed);
    std::vector<float> x(static_cast<std::size_t>(step.num_routes()) *
                         static_cast<std::size_t>(cols));
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const int row = static_cast<int>(static_cast<std::int64_t>(i) / cols);
      x[i] = std::ldexp(normal(random), row % 9 == 0 ? -110 : row % 5 * 12 - 24);
      const float rare[] = {0.0F, INFINITY, -INFINITY, NAN, 3.4e38F, -0.0F};
      if (random() % 97 == 0) x[i] = rare[random() % 6];
    }
    const DeviceArray<float> device_x(x, step.stream);
    for (const int tile_tokens : list_fp8_tile_tokens()) {
      const QuantizedTokens tokens(step, c.num_experts, cols, tile_tokens);
      tokens.quantize(device_x.data(), true, nullptr, 0xFF);
      tokens.expect_equal([&](std::int64_t route) { return x.data() + route * cols; });
    }
  }
}

/// What a step of 32 E4M3 products and the sum so far loses, at most, of the largest of them: each
/// is cut off 13 bits below it (TensorCore.KeepsThirteenBitsBelowTheLargestProduct).
constexpr double kStepLoss = 33 * 0x1p-13;

/// Both GEMMs against fp64, from the values that they multiplied. What is not exact in `products`
/// has kStepLoss.
class Oracle {
 public:
  Oracle(const LayerCase& c, const LayerStep& step, bool exact_products)
      : c_(c), step_(step), exact_products_(exact_products) {}

  /// h [routes, cols] in fp32, zero past the features.
  void expect_h(const std::vector<double>& x,
                const std::vector<float>& got,
                std::int64_t cols) const {
    const Sums sums = reference(step_.gate_up, x);
    const auto features = static_cast<std::size_t>(c_.intermediate_size);
    const auto stride = static_cast<std::size_t>(cols);
    const std::size_t rows = features * (c_.activation.gated() ? 2 : 1);
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t route = i / stride;
      if (i % stride >= features) {
        EXPECT_EQ(got[i], 0) << "padding of h";
        continue;
      }
      const double ratio =
          step_.h_error(route, route * rows + i % stride, sums.sum, sums.magnitude, double{got[i]},
                        {.products = exact_products_ ? nullptr : &sums.loss, .h = 0x1p-24});
      worst = ratio <= worst ? worst : ratio;
    }
    EXPECT_LE(worst, 1) << "h: worst error over bound";
  }

  void expect_rows(const std::vector<double>& h,
                   const std::vector<std::byte>& rows,
                   DType row_dtype) const {
    const Sums sums = reference(step_.down, h);
    const std::vector<float> got = test::rows_as_f32(rows, row_dtype);
    const auto hidden = static_cast<std::size_t>(c_.hidden_size);
    double worst = 0;
    for (std::size_t i = 0; i < sums.sum.size(); ++i) {
      const auto e = static_cast<std::size_t>(step_.routes.route_expert[i / hidden]);
      const double alpha = step_.alpha_down_host[e];
      const double want = sums.sum[i] * alpha;
      const double loss = exact_products_ ? 0 : sums.loss[i];
      const double bound =
          (test::gemm_bound(c_.intermediate_size, sums.magnitude[i]) + loss) * alpha +
          std::abs(want) * (row_dtype == DType::kBf16 ? 0x1p-8 : 0x1p-23) + 1e-37;
      const double ratio = std::abs(double{got[i]} - want) / bound;
      worst = ratio <= worst ? worst : ratio;
    }
    EXPECT_LE(worst, 1) << "rows: worst error over bound";
  }

  /// x as the quantiser reads it: row `row` of the step's tokens.
  std::vector<float> x_f32() const {
    const std::vector<std::uint16_t> x = step_.x.download();
    std::vector<float> values(x.size());
    std::transform(x.begin(), x.end(), values.begin(), bf16_to_f32);
    return values;
  }

 private:
  struct Sums {
    std::vector<double> sum, magnitude, loss;
  };

  Sums reference(const ExpertMatrix& matrix, const std::vector<double>& values) const {
    const WeightShape& s = matrix.layout.shape;
    const auto rows = static_cast<int>(s.num_halves * s.half_rows);
    const DeviceArray<float> weights(fold_on_host(matrix).values, step_.stream);
    const DeviceArray<double> a(values, step_.stream);
    const std::size_t size = step_.routes.route_row.size() * static_cast<std::size_t>(rows);
    const DeviceArray<double> sum(size, step_.stream);
    const DeviceArray<double> magnitude(size, step_.stream);
    const DeviceArray<double> largest(size, step_.stream);
    test::reference_gemm(weights.data(), rows, static_cast<int>(s.cols), a.data(),
                         step_.route_expert.data(), step_.num_routes(), sum.data(),
                         magnitude.data(), largest.data(), step_.stream);
    Sums sums = {sum.download(), magnitude.download(), largest.download()};
    for (double& loss : sums.loss)
      loss *= kStepLoss;
    return sums;
  }

  const LayerCase& c_;
  const LayerStep& step_;
  bool exact_products_;
};

/// GEMM1 with the activation, then GEMM2 over what it made, each against fp64.
class Experts {
 public:
  Experts(const LayerCase& c, LayerStep& step, int tile_tokens, DType row_dtype)
      : c_(c),
        step_(step),
        oracle_(c_, step, false),
        row_dtype_(row_dtype),
        gate_up_(fold_on_device(step.gate_up, step.stream)),
        down_(fold_on_device(step.down, step.stream)),
        x_(step, c.num_experts, c.hidden_size, tile_tokens),
        h_tokens_(step, c.num_experts, c.intermediate_size, tile_tokens),
        h_(static_cast<std::size_t>(step.num_routes() * c.intermediate_size), step.stream),
        rows_(static_cast<std::size_t>(step.num_routes() * c.hidden_size) *
                  (row_dtype == DType::kF32 ? 4U : 2U),
              step.stream) {
    const device::Properties limits = device::read_properties(0).value();
    up_shape_ = {gate_up_.layout, GemmOutput::kActivated};
    down_shape_ = {down_.layout, GemmOutput::kRows, row_dtype};
    up_config = make_config(up_shape_, tile_tokens, limits);
    down_config_ = make_config(down_shape_, tile_tokens, limits);
  }

  void run(int poison) const {
    h_.poison(poison), rows_.poison(poison);
    x_.quantize(step_.x.data(), false, step_.route_row.data(), poison);
    GroupedGemmFp8Args args = common_args(gate_up_, x_);
    args.alpha[0] = c_.activation.gated() ? step_.alpha_gate.data() : step_.alpha_up.data();
    args.alpha[1] = step_.alpha_up.data();
    args.activation = c_.activation;
    args.output = h_.data();
    Status status = launch(up_shape_, up_config, args, step_.stream.handle());
    EXPECT_TRUE(status.ok()) << status.to_string();
    h_tokens_.quantize(h_.data(), true, nullptr, poison);
    args = common_args(down_, h_tokens_);
    args.alpha[0] = step_.alpha_down.data();
    args.output = rows_.data();
    status = launch(down_shape_, down_config_, args, step_.stream.handle());
    EXPECT_TRUE(status.ok()) << status.to_string();
  }

  std::vector<float> h() const { return h_.download(); }
  std::vector<std::byte> rows() const { return rows_.download(); }

  void expect_h() const {
    const std::vector<float> x = oracle_.x_f32();
    const auto values = x_.expect_equal([&](std::int64_t route) {
      return x.data() + step_.routes.route_row[static_cast<std::size_t>(route)] * c_.hidden_size;
    });
    oracle_.expect_h(values, h(), c_.intermediate_size);
  }

  void expect_rows() const {
    const std::vector<float> h_values = h();
    const auto values = h_tokens_.expect_equal(
        [&](std::int64_t route) { return h_values.data() + route * c_.intermediate_size; });
    oracle_.expect_rows(values, rows(), row_dtype_);
  }

  GroupedGemmFp8Config up_config;

 private:
  GroupedGemmFp8Args common_args(const FoldedMatrix& matrix, const QuantizedTokens& tokens) const {
    GroupedGemmFp8Args args;
    args.tokens = tokens.codes.data();
    args.token_scale = tokens.scales.data();
    args.expert_offset = step_.expert_offset.data();
    args.expert_count = step_.expert_count.data();
    args.weights = matrix.prepared.data();
    args.row_factor = matrix.row_factor.data();
    return args;
  }

  LayerCase c_;
  LayerStep& step_;
  Oracle oracle_;
  DType row_dtype_;
  FoldedMatrix gate_up_, down_;
  QuantizedTokens x_, h_tokens_;
  DeviceArray<float> h_;
  DeviceArray<std::byte> rows_;
  GroupedGemmFp8Shape up_shape_, down_shape_;
  GroupedGemmFp8Config down_config_;
};

/// Rows of E4M3 values in fp16 with a scale per 128 columns, as moe_decode_nvfp4 takes them.
struct E4m3Rows {
  DeviceArray<std::uint16_t> values;  // [rows, cols]
  DeviceArray<float> block_scale;

  E4m3Rows(std::int64_t rows, std::int64_t cols, const device::Stream& stream)
      : values(static_cast<std::size_t>(rows * cols), stream),
        block_scale(static_cast<std::size_t>(rows * block_scale_stride(cols)), stream),
        rows_(rows),
        cols_(cols) {}

  void poison(int byte) const { values.poison(byte), block_scale.poison(byte); }

  /// Bit for bit the host's quantiser on `source`; and the rows' values.
  std::vector<double> expect_equal(const std::vector<float>& source) const {
    const auto got = values.download();
    const auto scales = block_scale.download();
    const auto size = static_cast<std::size_t>(cols_);
    std::vector<std::uint8_t> codes(size);
    std::vector<float> want_scales((size + 127) / 128);
    std::vector<double> out;
    out.reserve(got.size());
    int wrong = 0;
    for (std::int64_t row = 0; row < rows_; ++row) {
      quantize_row_to_e4m3(source.data() + row * cols_, cols_, codes.data(), want_scales.data());
      for (std::size_t col = 0; col < size; ++col) {
        const float scale =
            scales[static_cast<std::size_t>(row * block_scale_stride(cols_)) + col / 128];
        const float value = f16_to_f32(got[static_cast<std::size_t>(row) * size + col]);
        const float want = e4m3_to_f32(codes[col]);
        const bool same = std::isnan(want)
                              ? std::isnan(value)
                              : value == want && std::signbit(value) == std::signbit(want);
        wrong += same && scale == want_scales[col / 128] ? 0 : 1;
        out.push_back(double{value} * double{scale});
      }
    }
    EXPECT_EQ(wrong, 0) << "of " << got.size();
    return out;
  }

 private:
  std::int64_t rows_, cols_;
};

// Rows far apart, values that are not finite, tails.
TEST(E4m3Rows, EqualsTheHostBitForBit) {
  HALFBYTE_NEED_HOPPER();
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const device::Stream stream = device::Stream::create().value();
  for (const std::int64_t cols : {16, 400, 2048, 7168}) {
    constexpr std::int64_t kRows = 37;
    std::vector<std::uint16_t> x(static_cast<std::size_t>(kRows * cols));
    std::vector<float> x_f32(x.size());
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const int row = static_cast<int>(static_cast<std::int64_t>(i) / cols);
      const float rare[] = {0.0F, INFINITY, -INFINITY, NAN, 3.3e38F, -0.0F};
      const float value = std::ldexp(normal(random), row % 9 == 0 ? -110 : row % 5 * 12 - 24);
      x[i] = f32_to_bf16(random() % 97 == 0 ? rare[random() % 6] : value);
      x_f32[i] = bf16_to_f32(x[i]);
    }
    const DeviceArray<std::uint16_t> device_x(x, stream);
    const E4m3Rows rows(kRows, cols, stream);
    rows.poison(0xFF);
    const E4m3RowsArgs args = {device_x.data(), rows.values.data(), rows.block_scale.data()};
    EXPECT_TRUE(launch_e4m3_rows(kRows, cols, args, stream.handle()).ok());
    rows.expect_equal(x_f32);
  }
}

/// The same by moe_decode_nvfp4.
class DecodedExperts {
 public:
  DecodedExperts(const LayerCase& c, LayerStep& step, const MoeDecodeTile& tile, DType row_dtype)
      : c_(c),
        step_(step),
        oracle_(c_, step, true),
        shape_{.num_local_experts = c.num_experts,
               .hidden_size = c.hidden_size,
               .intermediate_size = c.intermediate_size,
               .gated = c.activation.gated(),
               .row_dtype = row_dtype,
               .tokens = DecodeTokens::kE4m3},
        gate_up_(fold_on_device(step.gate_up, step.stream)),
        down_(fold_on_device(step.down, step.stream)),
        x_(c.num_tokens, c.hidden_size, step.stream),
        h_(step.num_routes(), shape_.h_cols(), step.stream),
        h_f32_(static_cast<std::size_t>(step.num_routes() * shape_.h_cols()), step.stream),
        rows_(static_cast<std::size_t>(step.num_routes() * c.hidden_size) *
                  (row_dtype == DType::kF32 ? 4U : 2U),
              step.stream),
        counters_(static_cast<std::size_t>(shape_.num_counters()), step.stream) {
    config = make_config(shape_, tile, device::read_properties(0).value());
    EXPECT_TRUE(reset_counters(shape_, counters_.data(), step.stream.handle()).ok());
  }

  void run(int poison) const {
    x_.poison(poison), h_.poison(poison), h_f32_.poison(poison), rows_.poison(poison);
    const E4m3RowsArgs x = {step_.x.data(), x_.values.data(), x_.block_scale.data()};
    EXPECT_TRUE(launch_e4m3_rows(c_.num_tokens, c_.hidden_size, x, step_.stream.handle()).ok());
    const MoeDecodeArgs args = {.x = x_.values.data(),
                                .route_row = step_.route_row.data(),
                                .expert_offset = step_.expert_offset.data(),
                                .expert_count = step_.expert_count.data(),
                                .gate_up = gate_up_.prepared.data(),
                                .down = down_.prepared.data(),
                                .alpha_gate = step_.alpha_gate.data(),
                                .alpha_up = step_.alpha_up.data(),
                                .alpha_down = step_.alpha_down.data(),
                                .activation = c_.activation,
                                .h = h_.values.data(),
                                .rows = rows_.data(),
                                .counters = counters_.data(),
                                .x_block_scale = x_.block_scale.data(),
                                .gate_up_factor = gate_up_.row_factor.data(),
                                .down_factor = down_.row_factor.data(),
                                .h_f32 = h_f32_.data(),
                                .h_block_scale = h_.block_scale.data()};
    const Status status = launch(shape_, config, args, step_.stream.handle());
    EXPECT_TRUE(status.ok()) << status.to_string();
  }

  std::vector<std::byte> rows() const { return rows_.download(); }

  /// Each stage within its bound of what the one before it made, and the counters at zero.
  void expect_stages() const {
    const auto x = x_.expect_equal(oracle_.x_f32());
    std::vector<double> of_route;
    for (const std::int32_t row : step_.routes.route_row) {
      const auto first = x.begin() + row * c_.hidden_size;
      of_route.insert(of_route.end(), first, first + c_.hidden_size);
    }
    const std::vector<float> h = h_f32_.download();
    oracle_.expect_h(of_route, h, shape_.h_cols());
    std::vector<double> features;
    const std::vector<double> quantized = h_.expect_equal(h);
    for (std::int64_t route = 0; route < step_.num_routes(); ++route) {
      const auto first = quantized.begin() + route * shape_.h_cols();
      features.insert(features.end(), first, first + c_.intermediate_size);
    }
    oracle_.expect_rows(features, rows(), shape_.row_dtype);
    for (const std::int32_t counter : counters_.download())
      EXPECT_EQ(counter, 0);
  }

  MoeDecodeConfig config;

 private:
  LayerCase c_;
  LayerStep& step_;
  Oracle oracle_;
  MoeDecodeShape shape_;
  FoldedMatrix gate_up_, down_;
  E4m3Rows x_, h_;
  DeviceArray<float> h_f32_;
  DeviceArray<std::byte> rows_;
  DeviceArray<std::int32_t> counters_;
};

/// The sum that a product of one row of ones with `tokens` (E4M3 codes of 128 columns) gives.
float sum_of(const std::vector<std::uint8_t>& tokens, const device::Stream& stream) {
  const WeightLayout layout = fp8_layout({1, 1, 16, 128});
  std::vector<std::uint8_t> prepared(static_cast<std::size_t>(layout.bytes()));
  for (std::int64_t col = 0; col < 128; ++col) {
    const CodeWord word = locate_fp8_code(layout, {0, 0, 0, col});
    for (std::size_t b = 0; b < 4; ++b) {
      std::uint8_t& byte = prepared[static_cast<std::size_t>(word.byte) + b];
      byte = static_cast<std::uint8_t>(byte | place_fp8_code(word.code, 2) >> (8 * b));
    }
    prepared[static_cast<std::size_t>(locate_scale(layout, {0, 0, 0, col}))] = 56;  // one
  }
  const TokenTiles tiles = {64, layout.padded_cols(), 1};
  std::vector<std::uint8_t> image(static_cast<std::size_t>(tiles.tile_bytes()));
  for (std::int64_t col = 0; col < 128; ++col)
    image[static_cast<std::size_t>(tiles.fp8_offset(0, 0, col))] =
        tokens[static_cast<std::size_t>(col)];
  const DeviceArray<std::uint8_t> weights(prepared, stream);
  const DeviceArray<std::uint8_t> codes(image, stream);
  const DeviceArray<float> scales(std::vector<float>(128, 1.0F), stream);
  const DeviceArray<float> ones(std::vector<float>(128, 1.0F), stream);
  const DeviceArray<std::int64_t> offset(std::vector<std::int64_t>{0, 1}, stream);
  const DeviceArray<std::int32_t> count(std::vector<std::int32_t>{1}, stream);
  const DeviceArray<float> out(16, stream);
  GroupedGemmFp8Args args;
  args.tokens = codes.data(), args.token_scale = scales.data();
  args.expert_offset = offset.data(), args.expert_count = count.data();
  args.weights = weights.data(), args.row_factor = ones.data();
  args.alpha[0] = ones.data(), args.output = out.data();
  const GroupedGemmFp8Shape shape = {layout, GemmOutput::kRows, DType::kF32};
  const GroupedGemmFp8Config config =
      make_config(shape, tiles.tile_tokens, device::read_properties(0).value());
  EXPECT_TRUE(launch(shape, config, args, stream.handle()).ok());
  return out.download()[0];
}

// What kStepLoss is made of: beside a product of 2^8, others of 2^-5 in the same step count and
// those of 2^-6 do not.
TEST(TensorCore, KeepsThirteenBitsBelowTheLargestProduct) {
  HALFBYTE_NEED_HOPPER();
  const device::Stream stream = device::Stream::create().value();
  std::vector<std::uint8_t> tokens(128, 0);
  const auto set_step = [&](float small) {
    for (std::size_t i = 0; i < 32; ++i)
      tokens[i / 8 * 16 + i % 8] = f32_to_e4m3(small);
    tokens[0] = f32_to_e4m3(256.0F);
  };
  set_step(0x1p-5F);
  EXPECT_EQ(sum_of(tokens, stream), 256.0F + 31 * 0x1p-5F);
  set_step(0x1p-6F);
  EXPECT_EQ(sum_of(tokens, stream), 256.0F);
  // In another step of the same 128 columns they meet the sum, which is cut off alike.
  std::fill(tokens.begin(), tokens.end(), std::uint8_t{0});
  tokens[0] = f32_to_e4m3(256.0F);
  tokens[8] = f32_to_e4m3(0x1p-5F);
  EXPECT_EQ(sum_of(tokens, stream), 256.0F + 0x1p-5F);
}

void expect_layer(const LayerCase& c) {
  const unsigned seed = std::random_device()();
  LayerStep step(c, seed);
  for (const int tile_tokens : list_fp8_tile_tokens()) {
    for (const DType row_dtype : {DType::kF32, DType::kBf16}) {
      const Experts experts(c, step, tile_tokens, row_dtype);
      SCOPED_TRACE(testing::Message() << experts.up_config.to_string() << ", seed " << seed);
      experts.run(0xFF);
      experts.expect_h();
      experts.expect_rows();
      const auto h = experts.h();
      const auto rows = experts.rows();
      for (const int poison : {0x00, 0x7F, 0xFF}) {
        experts.run(poison);
        EXPECT_TRUE(h == experts.h() && rows == experts.rows());
      }
    }
  }
}

void expect_decoded_layer(const LayerCase& c) {
  const unsigned seed = std::random_device()();
  LayerStep step(c, seed);
  for (const MoeDecodeTile& tile : list_moe_decode_tiles()) {
    const DType row_dtype = tile.row_groups == 4 ? DType::kBf16 : DType::kF32;
    const DecodedExperts experts(c, step, tile, row_dtype);
    SCOPED_TRACE(testing::Message() << experts.config.to_string() << ", seed " << seed);
    experts.run(0xFF);
    experts.expect_stages();
    const auto rows = experts.rows();
    for (const int poison : {0x00, 0x7F, 0xFF}) {
      experts.run(poison);
      EXPECT_TRUE(rows == experts.rows());
    }
  }
}

TEST(MoeDecodeE4m3, MeetsTheBoundForEveryDistributionOfRows) {
  HALFBYTE_NEED_HOPPER();
  test::for_each_distribution(expect_decoded_layer);
}

TEST(MoeDecodeE4m3, MeetsTheBoundForEveryActivationAndTail) {
  HALFBYTE_NEED_HOPPER();
  test::for_each_activation_and_tail(expect_decoded_layer);
}

TEST(MoeDecodeE4m3, MeetsTheBoundForManyTiles) {
  HALFBYTE_NEED_HOPPER();
  expect_decoded_layer(test::many_tiles());
}

TEST(GroupedGemmFp8, MeetsTheBoundForEveryDistributionOfRows) {
  HALFBYTE_NEED_HOPPER();
  test::for_each_distribution(expect_layer);
}

TEST(GroupedGemmFp8, MeetsTheBoundForEveryActivationAndTail) {
  HALFBYTE_NEED_HOPPER();
  test::for_each_activation_and_tail(expect_layer);
}

TEST(GroupedGemmFp8, MeetsTheBoundForManyTiles) {
  HALFBYTE_NEED_HOPPER();
  expect_layer(test::many_tiles());
}

}  // namespace
}  // namespace halfbyte::sm90
