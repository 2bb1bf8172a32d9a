// SPDX-License-Identifier: Apache-2.0
//
// Tactics that are measured on the device: nvfp4-moe 12.4 to 12.8.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "layer_on_device.h"
#include "moe/device_limits.h"
#include "moe/registry.h"

namespace halfbyte::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kCapacity = 700;  // of 8 experts, 2 a token: decode and prefill

TestLayer tuned_layer(unsigned seed) {
  TestLayer layer =
      random_layer({.hidden_size = 272, .intermediate_size = 144, .num_experts = 8}, seed);
  layer.spec.y_dtype = DType::kBf16;
  return layer;
}

class CacheFolder {
 public:
  ~CacheFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::ptrdiff_t num_files() const {
    return std::distance(std::filesystem::directory_iterator(path_),
                         std::filesystem::directory_iterator());
  }

 private:
  std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                ("halfbyte_layer_tuning_" + std::to_string(getpid()));
};

// Measured once, told by the plan, kept in a file, and the same for the next layer of this size.
TEST(LayerTuning, MeasuresOnceAndEveryStepIsWithinItsBound) {
  HALFBYTE_NEED_HOPPER();
  const CacheFolder cache;
  const TestLayer layer = tuned_layer(fresh_seed());
  DeviceLayer first(layer, kCapacity, nullptr, ActivationMode::kW4a16, cache.path());
  const std::string plan = first->describe_plan();
  EXPECT_THAT(plan, HasSubstr("tactics: up to 1 tokens: decode "));
  EXPECT_THAT(plan, HasSubstr("tactics: up to 700 tokens: "));
  EXPECT_EQ(cache.num_files(), 1);
  DeviceStep step(first, kCapacity);
  for (const std::int64_t tokens : {1, 2, 17, 64, 192, 512, 513, 700}) {
    const LayerInput input = random_input(layer.spec, tokens, fresh_seed());
    expect_tokens(layer, input, step.run(input), first.row_dtype(), 1 + tokens / 8);
  }
  DeviceLayer second(layer, kCapacity, nullptr, ActivationMode::kW4a16, cache.path());
  EXPECT_EQ(second->describe_plan(), plan);
  DeviceStep other(second, kCapacity);
  const LayerInput input = random_input(layer.spec, 300, fresh_seed());
  EXPECT_EQ(other.run(input), step.run(input));
}

// Tuning reads the weights and writes nothing of the layer: the answers before and after are those
// of a layer that never measured, where both take the same tactics.
TEST(LayerTuning, LoadingAgainKeepsTheTactics) {
  HALFBYTE_NEED_HOPPER();
  const CacheFolder cache;
  const TestLayer a = tuned_layer(1);
  const TestLayer b = tuned_layer(2);
  DeviceLayer reloaded(a, kCapacity, nullptr, ActivationMode::kW4a16, cache.path());
  DeviceLayer fresh(b, kCapacity, nullptr, ActivationMode::kW4a16, cache.path());
  const std::string plan = reloaded->describe_plan();
  reloaded.load(b);
  EXPECT_EQ(reloaded->describe_plan(), plan);
  DeviceStep left(reloaded, kCapacity);
  DeviceStep right(fresh, kCapacity);
  for (const std::int64_t tokens : {1, 64, 700}) {
    const LayerInput input = random_input(b.spec, tokens, fresh_seed());
    EXPECT_EQ(left.run(input), right.run(input)) << tokens;
  }
}

TEST(LayerTuning, IsOffWhereItWasTurnedOff) {
  HALFBYTE_NEED_HOPPER();
  DeviceLayer layer(tuned_layer(3), kCapacity);
  EXPECT_THAT(layer->describe_plan(), Not(HasSubstr("tactics: ")));
}

// Each tactic of each bucket answers as the default does, and takes some time.
TEST(LayerTuning, EveryTacticPassesItsCheck) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer = tuned_layer(fresh_seed());
  for (const ActivationMode mode : kModes) {
    const auto backend = find_backend("cuda_sm90").value();
    device::Stream stream = device::Stream::create().value();
    ExpertPlan request;
    request.spec = layer.spec;
    request.mode = mode;
    request.shard = {.num_local_experts = layer.spec.num_experts,
                     .intermediate_size = layer.spec.intermediate_size};
    request.limits = read_device_limits(kGpu, 1).value();
    request.capacity_tokens = kCapacity;
    request.autotune = true;
    const ExpertPlan plan = backend->plan(request).value();
    const auto prepared = backend->allocate(plan).value();
    for (std::size_t e = 0; e < layer.experts.size(); ++e)
      expect_ok(backend->prepare(plan, static_cast<std::int64_t>(e), layer.experts[e].expert(),
                                 *prepared, &stream));
    expect_ok(backend->set_scales(plan, layer.scales(mode), *prepared, &stream));
    const auto timer = backend->make_tactic_timer(plan, *prepared, &stream).value();
    for (const TacticList& list : backend->list_tactics(plan)) {
      expect_ok(timer->set_step(list.num_tokens, list.names.front()));
      for (const std::string& name : list.names) {
        EXPECT_TRUE(timer->check(name).ok()) << name << " of " << list.num_tokens << " tokens";
        EXPECT_GT(timer->microseconds(name).value(), 0) << name;
      }
    }
  }
}

}  // namespace
}  // namespace halfbyte::test
