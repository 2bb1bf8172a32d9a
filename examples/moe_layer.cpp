// SPDX-License-Identifier: Apache-2.0
//
// One NVFP4 MoE layer from plain arrays: describe it, load it, run it.
#include <halfbyte/moe.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kHidden = 64;        // multiples of 16
constexpr std::int64_t kIntermediate = 32;  // of one expert
constexpr std::int64_t kExperts = 4;
constexpr std::int64_t kTokens = 2;

int fail(const halfbyte::Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}

// Every weight of a projection of all experts, with `rows` rows of `cols`: code 0x2 is 1.0 and two
// codes fill a byte; block scale 0x38 is 1.0 for 16 columns. So each weight is its global scale.
struct Ones {
  Ones(std::int64_t rows, std::int64_t cols)
      : codes(static_cast<std::size_t>(kExperts * rows * cols / 2), 0x22),
        block_scale(static_cast<std::size_t>(kExperts * rows * cols / 16), 0x38) {}
  std::vector<std::uint8_t> codes, block_scale;
};

halfbyte::Status load(halfbyte::MoeLayer& layer) {
  const Ones gate_up(2 * kIntermediate, kHidden), down(kHidden, kIntermediate);
  halfbyte::ExpertArrays arrays;
  arrays.num_experts = kExperts;
  arrays.gate_up_codes = gate_up.codes;
  arrays.gate_up_block_scale = gate_up.block_scale;
  arrays.gate_up_global_scale = {{}, {1.0F / kHidden}};  // one scale for all
  arrays.down_codes = down.codes;
  arrays.down_block_scale = down.block_scale;
  // One scale per expert: each answers twice as much as the one before.
  const float one = 1.0F / kIntermediate;
  arrays.down_global_scale = {{kExperts}, {one, 2 * one, 4 * one, 8 * one}};
  return layer.load_arrays(arrays);
}

}  // namespace

int main() {
  halfbyte::MoeSpec spec;
  spec.hidden_size = kHidden;
  spec.intermediate_size = kIntermediate;
  spec.num_experts = kExperts;
  spec.top_k = 2;
  spec.x_dtype = spec.y_dtype = halfbyte::DType::kF32;
  halfbyte::MoeOptions options;
  options.capacity_tokens = kTokens;
  auto created = halfbyte::MoeLayer::create(spec, options);
  if (!created.ok()) return fail(created.status());
  halfbyte::MoeLayer& layer = **created;
  if (const auto status = load(layer); !status.ok()) return fail(status);

  const std::vector<float> x(kTokens * kHidden, 1.0F);
  const std::vector<std::int32_t> topk_idx = {0, 1, 3, -1};  // -1: token 1 has no second expert
  const std::vector<float> topk_weights = {0.5F, 0.5F, 1.0F, 0.0F};
  std::vector<float> y(x.size());
  const auto status =
      layer.run({x.data(), spec.x_dtype, kTokens, kHidden}, {topk_idx, topk_weights}, /*shared=*/{},
                {y.data(), spec.y_dtype, kTokens, kHidden});
  if (!status.ok()) return fail(status);
  std::printf("%s: token 0 gives %g, token 1 gives %g\n", std::string(layer.backend_name()).c_str(),
              y[0], y[kHidden]);
}
