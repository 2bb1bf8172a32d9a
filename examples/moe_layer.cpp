// SPDX-License-Identifier: Apache-2.0
//
// One NVFP4 MoE layer from plain arrays: describe it, load it, run it.
#include <halfbyte/moe.h>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

int fail(const halfbyte::Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}

}  // namespace

int main() {
  halfbyte::MoeSpec spec;
  spec.hidden_size = 64;
  spec.intermediate_size = 32;
  spec.num_experts = 4;
  spec.top_k = 2;
  spec.x_dtype = spec.y_dtype = halfbyte::DType::kF32;
  halfbyte::MoeOptions options;
  options.capacity_tokens = 8;
  auto created = halfbyte::MoeLayer::create(spec, options);
  if (!created.ok()) return fail(created.status());
  halfbyte::MoeLayer& layer = **created;

  // Code 0x2 is 1.0, block scale 0x38 is 1.0: every weight is its global scale. Expert e answers
  // twice as much as expert e - 1.
  const std::vector<std::uint8_t> gate_up(4 * 64 * 64 / 2, 0x22), gate_up_scale(4 * 64 * 4, 0x38);
  const std::vector<std::uint8_t> down(4 * 64 * 32 / 2, 0x22), down_scale(4 * 64 * 2, 0x38);
  halfbyte::ExpertArrays arrays;
  arrays.num_experts = 4;
  arrays.gate_up_codes = gate_up;
  arrays.gate_up_block_scale = gate_up_scale;
  arrays.gate_up_global_scale = {{}, {1.0F / 64}};
  arrays.down_codes = down;
  arrays.down_block_scale = down_scale;
  arrays.down_global_scale = {{4}, {1.0F / 32, 2.0F / 32, 4.0F / 32, 8.0F / 32}};
  if (auto status = layer.load_arrays(arrays); !status.ok()) return fail(status);

  const std::vector<float> x(2 * 64, 1.0F);
  const std::vector<std::int32_t> topk_idx = {0, 1, 3, -1};  // -1: no second expert
  const std::vector<float> topk_weights = {0.5F, 0.5F, 1.0F, 0.0F};
  std::vector<float> y(x.size());
  const auto status = layer.run({x.data(), halfbyte::DType::kF32, 2, 64}, {topk_idx, topk_weights},
                                {}, {y.data(), halfbyte::DType::kF32, 2, 64});
  if (!status.ok()) return fail(status);
  std::printf("%s: token 0 gives %g, token 1 gives %g\n", std::string(layer.backend_name()).c_str(),
              y[0], y[64]);
}
