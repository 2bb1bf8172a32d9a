// SPDX-License-Identifier: Apache-2.0
//
// The whole layer, real NVFP4 experts included, over ranks: the same bits as one rank. What one
// rank gives is held to its oracle elsewhere.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "formats/nvfp4.h"
#include "halfbyte/moe.h"
#include "support/rank_threads.h"

namespace halfbyte::test {
namespace {

constexpr std::int64_t kExperts = 32;
constexpr std::int64_t kTopK = 4;
constexpr std::int64_t kHidden = 32;
constexpr std::int64_t kIntermediate = 64;
constexpr std::int64_t kTokens = 8;

struct OwnedMatrix {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> block_scale;
  CanonicalMatrix view;
};

OwnedMatrix make_matrix(std::int64_t rows, std::int64_t cols, std::mt19937& rng) {
  std::normal_distribution<float> normal(0.0F, 0.3F);
  std::vector<float> w(static_cast<std::size_t>(rows * cols));
  for (float& value : w)
    value = normal(rng);
  OwnedMatrix matrix;
  matrix.codes.resize(w.size() / 2);
  matrix.block_scale.resize(w.size() / 16);
  matrix.view.rows = rows;
  matrix.view.cols = cols;
  matrix.view.global_scale = weight_global_scale(w);
  const Status status =
      quantize_weights(w, rows, cols, matrix.view.global_scale, matrix.codes, matrix.block_scale);
  EXPECT_TRUE(status.ok()) << status.to_string();
  matrix.view.codes = matrix.codes;
  matrix.view.block_scale = matrix.block_scale;
  return matrix;
}

// Experts and tokens that every case shares.
struct Model {
  std::vector<OwnedMatrix> gate, up, down;
  std::vector<float> x;
  std::vector<std::int32_t> topk_idx;
  std::vector<float> topk_weights;
};

const Model& model() {
  static const Model shared = [] {
    std::mt19937 rng(42);
    Model made;
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      made.gate.push_back(make_matrix(kIntermediate, kHidden, rng));
      made.up.push_back(make_matrix(kIntermediate, kHidden, rng));
      made.down.push_back(make_matrix(kHidden, kIntermediate, rng));
    }
    std::normal_distribution<float> normal(0.0F, 1.0F);
    std::uniform_int_distribution<std::int32_t> expert(-1, kExperts - 1);
    std::uniform_real_distribution<float> weight(0.1F, 1.0F);
    for (std::int64_t i = 0; i < kTokens * kHidden; ++i)
      made.x.push_back(normal(rng));
    for (std::int64_t i = 0; i < kTokens * kTopK; ++i) {
      made.topk_idx.push_back(expert(rng));
      made.topk_weights.push_back(weight(rng));
    }
    return made;
  }();
  return shared;
}

struct Split {
  std::string a2a = "none";
  int tp = 1, ep = 1, dp = 1;
};

MoeOptions options_of(const Split& split, ActivationMode mode) {
  MoeOptions options;
  options.runner_backend = "reference";
  options.a2a_backend = split.a2a;
  options.activation_mode = mode;
  options.combine_dtype = DType::kF32;
  options.tp_size = split.tp;
  options.ep_size = split.ep;
  options.dp_size = split.dp;
  options.enable_dp_attention = split.dp > 1;
  options.capacity_tokens = kTokens;
  return options;
}

Status load_all(MoeLayer& layer) {
  for (std::size_t expert = 0; expert < kExperts; ++expert) {
    const CanonicalExpert views = {model().gate[expert].view, model().up[expert].view,
                                   model().down[expert].view};
    HALFBYTE_RETURN_IF_ERROR(layer.load_expert(static_cast<std::int64_t>(expert), views));
  }
  return layer.finish_loading();
}

// Tokens of data-parallel group `group`, run twice through a layer on this rank.
Status run_rank(const Split& split,
                ActivationMode mode,
                Transport* transport,
                std::int64_t group,
                std::vector<float>& y) {
  MoeSpec spec;
  spec.hidden_size = kHidden;
  spec.intermediate_size = kIntermediate;
  spec.num_experts = kExperts;
  spec.top_k = kTopK;
  spec.x_dtype = spec.y_dtype = DType::kF32;
  HALFBYTE_ASSIGN_OR_RETURN(const auto layer,
                            MoeLayer::create(spec, options_of(split, mode), {}, transport));
  HALFBYTE_RETURN_IF_ERROR(load_all(*layer));
  const std::int64_t tokens = kTokens / split.dp;
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(split.dp), tokens);
  const auto slots = static_cast<std::size_t>(tokens * kTopK);
  const auto first_slot = static_cast<std::size_t>(group) * slots;
  const Routing routing = {std::span(model().topk_idx).subspan(first_slot, slots),
                           std::span(model().topk_weights).subspan(first_slot, slots)};
  const ConstMatrixView x(model().x.data() + group * tokens * kHidden, DType::kF32, tokens,
                          kHidden);
  y.resize(static_cast<std::size_t>(tokens * kHidden));
  const MatrixView out(y.data(), DType::kF32, tokens, kHidden);
  HALFBYTE_RETURN_IF_ERROR(layer->run(x, routing, {}, out, counts));
  return layer->run(x, routing, {}, out, counts);
}

std::vector<float> one_rank(ActivationMode mode) {
  std::vector<float> y;
  const Status status = run_rank({}, mode, nullptr, 0, y);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return y;
}

void expect_equal_to_one_rank(const Split& split, ActivationMode mode) {
  std::vector<std::vector<float>> y(static_cast<std::size_t>(split.tp));
  const int group_size = split.tp / split.dp;
  const RankOutcome outcome = run_ranks(split.tp, [&](int rank, Transport& transport) {
    return run_rank(split, mode, &transport, rank / group_size, y[static_cast<std::size_t>(rank)]);
  });
  for (const Status& status : outcome.status)
    ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(outcome.equal_collectives());
  const std::vector<float> want = one_rank(mode);
  for (std::size_t rank = 0; rank < y.size(); ++rank) {
    const auto group = static_cast<std::ptrdiff_t>(rank) / group_size;
    const auto size = static_cast<std::ptrdiff_t>(y[rank].size());
    const auto begin = want.begin() + group * size;
    EXPECT_EQ(y[rank], std::vector<float>(begin, begin + size)) << "rank " << rank;
  }
}

TEST(LayerOverRanks, StandardGivesTheBitsOfOneRank) {
  for (const int ep : {2, 4, 8})
    expect_equal_to_one_rank({"none", ep, ep, 1}, ActivationMode::kW4a16);
}

TEST(LayerOverRanks, GatheredTokensGiveTheBitsOfOneRank) {
  expect_equal_to_one_rank({"none", 4, 4, 4}, ActivationMode::kW4a16);
  expect_equal_to_one_rank({"none", 4, 4, 2}, ActivationMode::kW4a16);
}

TEST(LayerOverRanks, AllToAllGivesTheBitsOfOneRank) {
  for (const int ep : {2, 4}) {
    expect_equal_to_one_rank({"all_to_all", ep, ep, ep}, ActivationMode::kW4a16);
    // NVFP4 payload by default
    expect_equal_to_one_rank({"all_to_all", ep, ep, ep}, ActivationMode::kW4a4Dynamic);
  }
}

}  // namespace
}  // namespace halfbyte::test
