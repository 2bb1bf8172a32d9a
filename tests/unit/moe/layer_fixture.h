// SPDX-License-Identifier: Apache-2.0
//
// A small layer with random experts, and what the reference says of one token.
#ifndef HALFBYTE_TESTS_UNIT_MOE_LAYER_FIXTURE_H_
#define HALFBYTE_TESTS_UNIT_MOE_LAYER_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "halfbyte/moe.h"
#include "kernels/reference/combine.h"
#include "kernels/reference/expert.h"

namespace halfbyte::test {

struct RandomMatrix {
  CanonicalMatrix view;
  std::vector<std::uint8_t> codes, block_scale;

  RandomMatrix() = default;
  RandomMatrix(RandomMatrix&&) = default;  // the views follow the moved bytes
  RandomMatrix& operator=(RandomMatrix&&) = default;
  RandomMatrix(std::int64_t rows, std::int64_t cols, float global_scale, std::mt19937& rng)
      : codes(static_cast<std::size_t>(rows * cols / 2)),
        block_scale(static_cast<std::size_t>(rows * cols / 16)) {
    for (std::uint8_t& byte : codes)
      byte = static_cast<std::uint8_t>(rng());
    // 0x20 .. 0x3F: block scales from 2^-3 to nearly 2.
    for (std::uint8_t& byte : block_scale)
      byte = static_cast<std::uint8_t>(0x20 + rng() % 0x20);
    view.rows = rows;
    view.cols = cols;
    view.codes = codes;
    view.block_scale = block_scale;
    view.global_scale = global_scale;
  }
};

struct RandomExpert {
  RandomMatrix gate, up, down;
  CanonicalExpert view() const { return {gate.view, up.view, down.view}; }
};

/// Experts whose three global scales all differ.
inline std::vector<std::unique_ptr<RandomExpert>> random_experts(const MoeSpec& spec,
                                                                 unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<std::unique_ptr<RandomExpert>> experts;
  for (std::int64_t e = 0; e < spec.num_experts; ++e) {
    const float scale = 0.01F * static_cast<float>(static_cast<unsigned>(e) + 1 + rng() % 3);
    auto expert = std::make_unique<RandomExpert>();
    const std::int64_t h = spec.hidden_size;
    const std::int64_t i = spec.intermediate_size;
    if (spec.activation.gated()) expert->gate = RandomMatrix(i, h, scale, rng);
    expert->up = RandomMatrix(i, h, scale * 1.5F, rng);
    expert->down = RandomMatrix(h, i, scale * 0.75F, rng);
    experts.push_back(std::move(expert));
  }
  return experts;
}

inline std::vector<float> random_rows(std::int64_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> rows(static_cast<std::size_t>(count));
  for (float& value : rows)
    value = normal(rng);
  return rows;
}

/// nvfp4-moe 8.1 for one token, from the operations of kernels/reference.
inline std::vector<float> reference_token(const MoeSpec& spec,
                                          ActivationMode mode,
                                          const std::vector<std::unique_ptr<RandomExpert>>& experts,
                                          float s1,
                                          float s2,
                                          const float* x,
                                          std::span<const std::int32_t> idx,
                                          std::span<const float> weights) {
  const auto h = static_cast<std::size_t>(spec.hidden_size);
  std::vector<std::vector<float>> rows(idx.size());
  std::vector<const float*> pointers(idx.size(), nullptr);
  for (std::size_t s = 0; s < idx.size(); ++s) {
    if (idx[s] < 0 || idx[s] >= spec.num_experts) continue;
    const CanonicalExpert expert = experts[static_cast<std::size_t>(idx[s])]->view();
    const reference::ExpertScalars scalars = {expert.gate.global_scale, expert.up.global_scale,
                                              expert.down.global_scale, s1, s2};
    rows[s].resize(h);
    reference::run_expert_row(expert, spec.activation, mode, scalars, x, rows[s].data());
    pointers[s] = rows[s].data();
  }
  std::vector<float> scratch(h * reference::kNumCombineGroups);
  std::vector<float> y(h, 0.0F);
  reference::combine_token(idx, weights, pointers, spec.num_experts, spec.hidden_size,
                           scratch.data(), y.data());
  return y;
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_UNIT_MOE_LAYER_FIXTURE_H_
