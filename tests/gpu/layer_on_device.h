// SPDX-License-Identifier: Apache-2.0
//
// A MoeLayer on the first CUDA device, with a step's memory there.
#ifndef HALFBYTE_TESTS_GPU_LAYER_ON_DEVICE_H_
#define HALFBYTE_TESTS_GPU_LAYER_ON_DEVICE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "device/graph.h"
#include "device_data.h"
#include "formats/convert.h"
#include "halfbyte/moe.h"
#include "layer_oracle.h"
#include "moe/workspace.h"

namespace halfbyte::test {

inline constexpr Device kGpu = {DeviceKind::kCuda, 0};

inline unsigned fresh_seed() {
  return std::random_device()();
}

inline void expect_ok(const Status& status) {
  EXPECT_TRUE(status.ok()) << status.to_string();
}

/// Ids of random_tokens() (some of them -1) and weights that differ.
inline LayerInput random_input(const MoeSpec& spec, std::int64_t num_tokens, unsigned seed) {
  LayerInput input;
  input.tokens = test::random_tokens(spec, num_tokens, seed);
  std::mt19937 random(seed + 1);
  for (std::size_t i = 0; i < input.tokens.topk_idx.size(); ++i)
    input.weights.push_back(static_cast<float>(1 + random() % 1000) / 1000.0F);
  return input;
}

/// Every mode that runs on Hopper.
inline constexpr ActivationMode kModes[] = {ActivationMode::kW4a16, ActivationMode::kW4a4,
                                            ActivationMode::kW4a4Dynamic, ActivationMode::kW4a8};

inline ExpertInputScales input_scales_of(const test::TestLayer& layer) {
  return {{{}, {layer.s1}}, {{}, {layer.s2}}};
}

class DeviceLayer {
 public:
  DeviceLayer(const test::TestLayer& layer,
              std::int64_t capacity_tokens,
              std::shared_ptr<MoeWorkspace> workspace = nullptr,
              ActivationMode mode = ActivationMode::kW4a16,
              const std::string& cache_directory = "")
      : spec(layer.spec), workspace_(workspace ? std::move(workspace) : make_moe_workspace()) {
    MoeOptions options;
    options.device = kGpu;
    options.capacity_tokens = capacity_tokens;
    options.workspace = workspace_;
    options.activation_mode = mode;
    // Measured where the test is about that: then with a place to keep it.
    options.autotune = !cache_directory.empty();
    options.cache_directory = cache_directory;
    auto created = MoeLayer::create(spec, options, input_scales_of(layer));
    EXPECT_TRUE(created.ok()) << (created.ok() ? "" : created.status().to_string());
    if (created.ok()) layer_ = std::move(created).value();
    expect_ok(layer_->set_stream(stream.handle()));
    load(layer);
  }

  MoeLayer* operator->() { return layer_.get(); }
  MoeLayer& operator*() { return *layer_; }

  void load(const test::TestLayer& layer) {
    for (std::size_t e = 0; e < layer.experts.size(); ++e)
      expect_ok(layer_->load_expert(static_cast<std::int64_t>(e), layer.experts[e].expert()));
    expect_ok(layer_->finish_loading());
  }
  void poison_workspace(int byte) {
    const Workspace all = workspace_->view();
    expect_ok(device::fill_bytes(all.data, static_cast<std::byte>(byte), all.bytes, stream));
  }
  DType row_dtype() const { return spec.y_dtype == DType::kBf16 ? DType::kBf16 : DType::kF32; }

  device::Stream stream = device::Stream::create().value();
  MoeSpec spec;

 private:
  std::shared_ptr<MoeWorkspace> workspace_;
  std::unique_ptr<MoeLayer> layer_;
};

/// The memory of steps of up to `max_tokens`; its addresses stay while what it holds changes.
class DeviceStep {
 public:
  DeviceStep(DeviceLayer& layer, std::int64_t max_tokens)
      : layer_(layer),
        x_(bytes(max_tokens, layer.spec.x_dtype), layer.stream),
        y_(bytes(max_tokens, layer.spec.y_dtype), layer.stream),
        idx_(slots(max_tokens), layer.stream),
        weights_(slots(max_tokens), layer.stream),
        shared_(slots(max_tokens) / static_cast<std::size_t>(layer.spec.top_k) *
                    static_cast<std::size_t>(layer.spec.hidden_size),
                layer.stream),
        num_valid_(1, layer.stream) {}

  void set(const LayerInput& input) {
    num_tokens_ = input.tokens.num_tokens;
    has_shared_ = !input.shared.empty();
    put(x_, input.tokens.x);
    put(idx_, input.tokens.topk_idx);
    put(weights_, input.weights);
    put(shared_, input.shared);
    has_valid_ = input.num_valid < num_tokens_;
    put(num_valid_, std::vector<std::int32_t>{static_cast<std::int32_t>(input.num_valid)});
    y_.poison(0xFF);
    expect_ok(layer_.stream.synchronize());
  }

  Status enqueue(bool in_place = false) {
    const auto count = static_cast<std::size_t>(num_tokens_ * layer_.spec.top_k);
    Routing routing;
    routing.topk_idx = {idx_.data(), count};
    routing.topk_weights = {weights_.data(), count};
    if (has_valid_ || always_valid) routing.num_valid_tokens = num_valid_.data();
    SharedExpert shared;
    if (has_shared_) {
      shared.kind = SharedExpert::Kind::kReplicated;
      shared.rows = {shared_.data(), DType::kF32, num_tokens_, layer_.spec.hidden_size, kGpu};
    }
    return layer_->run({x_.data(), layer_.spec.x_dtype, num_tokens_, layer_.spec.hidden_size, kGpu},
                       routing, shared,
                       {in_place ? x_.data() : y_.data(), layer_.spec.y_dtype, num_tokens_,
                        layer_.spec.hidden_size, kGpu});
  }

  /// Rows of y (or of x, when the step ran in place), widened.
  std::vector<float> rows(bool in_place = false) {
    const std::vector<std::uint8_t> raw = (in_place ? x_ : y_).download();
    std::vector<float> values(static_cast<std::size_t>(num_tokens_ * layer_.spec.hidden_size));
    widen_to_f32(layer_.spec.y_dtype, raw.data(), std::ssize(values), values.data());
    return values;
  }

  std::vector<float> run(const LayerInput& input) {
    set(input);
    expect_ok(enqueue());
    return rows();
  }

  bool always_valid = false;  // hand over the valid-token count even when it cuts nothing

 private:
  std::size_t bytes(std::int64_t tokens, DType dtype) const {
    return static_cast<std::size_t>(tokens * layer_.spec.hidden_size * dtype_bytes(dtype));
  }
  std::size_t slots(std::int64_t tokens) const {
    return static_cast<std::size_t>(tokens * layer_.spec.top_k);
  }
  template <typename T>
  void put(const DeviceArray<T>& array, const std::vector<T>& values) {
    array.upload(values);
  }

  DeviceLayer& layer_;
  std::int64_t num_tokens_ = 0;
  bool has_shared_ = false;
  bool has_valid_ = false;
  DeviceArray<std::uint8_t> x_, y_;
  DeviceArray<std::int32_t> idx_;
  DeviceArray<float> weights_, shared_;
  DeviceArray<std::int32_t> num_valid_;
};

/// Every element of some tokens' rows within its bound; padding exactly zero.
inline void expect_tokens(const test::TestLayer& layer,
                          const LayerInput& input,
                          const std::vector<float>& got,
                          DType row_dtype,
                          std::int64_t stride = 1) {
  const auto hidden = static_cast<std::size_t>(layer.spec.hidden_size);
  ASSERT_EQ(got.size(), static_cast<std::size_t>(input.tokens.num_tokens) * hidden);
  EXPECT_EQ(std::count_if(got.begin(), got.end(), [](float v) { return std::isnan(v); }), 0);
  int wrong = 0;
  double worst = 0;
  for (std::int64_t t = 0; t < input.tokens.num_tokens; t += stride) {
    const auto token = static_cast<std::size_t>(t);
    const Bounded want = token_row(layer, input, token, row_dtype, layer.spec.y_dtype);
    for (std::size_t n = 0; n < hidden; ++n) {
      const double error = std::abs(static_cast<double>(got[token * hidden + n]) - want.value[n]);
      if (!(error <= want.bound[n])) ++wrong;
      if (want.bound[n] > 0) worst = std::max(worst, error / want.bound[n]);
    }
  }
  EXPECT_EQ(wrong, 0) << "worst error over bound " << worst;
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_GPU_LAYER_ON_DEVICE_H_
