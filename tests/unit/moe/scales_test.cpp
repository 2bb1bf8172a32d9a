// SPDX-License-Identifier: Apache-2.0
//
// Expected values: nvfp4-moe 4.1 (accepted shapes), 4.2 (scalars), 4.3 (alphas).
#include "moe/scales.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace halfbyte {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<float> input_scale(const ScaleTensor& scale, bool two_columns, std::int64_t num_experts) {
  NoticeSink notices;
  return resolve_input_scale(scale, "gate_up.input_scale", two_columns, num_experts, num_experts,
                             nullptr, notices);
}

Result<std::vector<std::vector<float>>> global_scale(const ScaleTensor& scale, int num_columns) {
  const ExpertShard second_half = {2, 2, 0, 16};
  return resolve_global_scale(scale, "gate_up.global_scale", num_columns, 4, second_half);
}

TEST(InputScale, AScalarIsTheScaleOfAllExperts) {
  EXPECT_EQ(*input_scale({{}, {0.5F}}, true, 4), 0.5F);
  EXPECT_EQ(*input_scale({{1}, {0.25F}}, true, 4), 0.25F);
}

TEST(InputScale, OneValuePerExpertGivesTheMaximum) {
  EXPECT_EQ(*input_scale({{4}, {1.0F, 4.0F, 2.0F, 3.0F}}, false, 4), 4.0F);
  EXPECT_EQ(*input_scale({{4, 1}, {1.0F, 2.0F, 8.0F, 3.0F}}, false, 4), 8.0F);
}

// The example of 4.2: a1 = 25, from s1 = 0.04 in a gate column.
TEST(InputScale, BothColumnsOfGateAndUpCount) {
  const ScaleTensor scale = {{4, 2}, {.01F, .02F, .04F, .01F, .005F, .005F, .02F, .03F}};
  const float s1 = *input_scale(scale, true, 4);
  EXPECT_EQ(s1, .04F);
  EXPECT_EQ(1.0F / s1, 25.0F);
}

TEST(InputScale, AnEmptyScaleIsOneWithOneNotice) {
  std::vector<std::string> lines;
  NoticeSink notices([&](std::string_view line) { lines.emplace_back(line); });
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(*resolve_input_scale({{0}, {}}, "down.input_scale", false, 4, 4, nullptr, notices),
              1.0F);
  }
  EXPECT_EQ(lines.size(), 1U);
}

TEST(InputScale, ReducingSeveralValuesIsNoticedOnce) {
  std::vector<std::string> lines;
  NoticeSink notices([&](std::string_view line) { lines.emplace_back(line); });
  const ScaleTensor same = {{3}, {2.0F, 2.0F, 2.0F}};
  const ScaleTensor spread = {{3}, {2.0F, 0.5F, 1.0F}};
  ASSERT_TRUE(resolve_input_scale(same, "down.input_scale", false, 3, 3, nullptr, notices).ok());
  EXPECT_TRUE(lines.empty());
  ASSERT_TRUE(resolve_input_scale(spread, "down.input_scale", false, 3, 3, nullptr, notices).ok());
  ASSERT_TRUE(resolve_input_scale(spread, "down.input_scale", false, 3, 3, nullptr, notices).ok());
  EXPECT_THAT(lines, ElementsAre(HasSubstr("3 values, 3 of them distinct, from 0.5 to 2")));
}

TEST(InputScale, OtherShapesAreRefusedNamingAllAccepted) {
  for (const ScaleTensor& scale : std::vector<ScaleTensor>{{{3}, {1, 1, 1}},
                                                           {{2, 2}, {1, 1, 1, 1}},
                                                           {{4, 3}, std::vector<float>(12, 1.0F)},
                                                           {{1, 4}, {1, 1, 1, 1}},
                                                           {{4, 1, 1}, {1, 1, 1, 1}}}) {
    auto result = input_scale(scale, true, 4);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()),
                HasSubstr("want [], [1], [4], [4, 1], [4, 2]"));
  }
  // Two columns are gate and up: down has one.
  EXPECT_FALSE(input_scale({{4, 2}, std::vector<float>(8, 1.0F)}, false, 4).ok());
}

TEST(InputScale, AShapeThatDoesNotMatchItsValuesIsRefused) {
  EXPECT_FALSE(input_scale({{4}, {1.0F, 2.0F}}, false, 4).ok());
  EXPECT_FALSE(input_scale({{-1}, {}}, false, 4).ok());
  EXPECT_FALSE(input_scale({{}, {1.0F, 2.0F}}, false, 4).ok());
}

// 2.2: finite, > 0, at most 1e12, for every expert; a maximum must not hide a NaN.
TEST(InputScale, EveryBadValueIsNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, inf, -inf, 0.0F, -0.0F, -1.0F, 1.1e12F}) {
    auto result = input_scale({{4}, {bad, 1.0F, 2.0F, bad}}, false, 4);
    ASSERT_FALSE(result.ok()) << bad;
    EXPECT_EQ(result.status().code(), StatusCode::kCorruptData);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("expert 0 is"));
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("expert 3 is"));
  }
  auto columns = input_scale({{2, 2}, {1.0F, nan, 1.0F, 1.0F}}, true, 2);
  EXPECT_THAT(std::string(columns.status().message()), HasSubstr("expert 0 up is nan"));
}

TEST(InputScale, MoreThanSixteenFindingsAreCounted) {
  auto result = input_scale({{20}, std::vector<float>(20, 0.0F)}, false, 20);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("expert 15 is 0 and 4 more"));
}

// 4.2: subnormal values are legal; the reciprocal of the maximum alone is formed.
TEST(InputScale, ADeadExpertsTinyScaleDoesNotCount) {
  EXPECT_EQ(*input_scale({{2}, {1.4e-45F, 0.5F}}, false, 2), 0.5F);
  auto all_tiny = input_scale({{2}, {1.4e-45F, 1.4e-45F}}, false, 2);
  ASSERT_FALSE(all_tiny.ok());  // RN(1 / s_max) must be finite
  EXPECT_EQ(all_tiny.status().code(), StatusCode::kCorruptData);
  EXPECT_TRUE(input_scale({{}, {1e12F}}, false, 2).ok());
}

TEST(InputScale, LocalValuesNeedATransport) {
  NoticeSink notices;
  auto result =
      resolve_input_scale({{2}, {1.0F, 2.0F}}, "down.input_scale", false, 4, 2, nullptr, notices);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("transport"));
}

// Each rank of two gives its own experts; both get the maximum of all.
std::vector<Result<float>> reduce_over_two_ranks(const ScaleTensor& rank0,
                                                 const ScaleTensor& rank1) {
  auto transports = make_in_process_transports(2);
  std::vector<Result<float>> results;
  results.emplace_back(0.0F);
  results.emplace_back(0.0F);
  const auto resolve = [&](std::size_t rank, const ScaleTensor& scale) {
    NoticeSink notices;
    results[rank] = resolve_input_scale(scale, "gate_up.input_scale", true, 6, 3,
                                        transports[rank].get(), notices);
  };
  std::thread other([&] { resolve(1, rank1); });
  resolve(0, rank0);
  other.join();
  return results;
}

TEST(InputScale, LocalValuesAreReducedOverRanks) {
  const auto results = reduce_over_two_ranks({{3}, {1, 2, 3}}, {{3, 2}, {1, 1, 1, 7, 1, 1}});
  EXPECT_EQ(*results[0], 7.0F);
  EXPECT_EQ(*results[1], 7.0F);
}

// 2.2: ranks exchange the outcome, so all stop together.
TEST(InputScale, ABadLocalValueStopsEveryRank) {
  const auto results = reduce_over_two_ranks({{3}, {1, 2, 3}}, {{3}, {1, -1, 1}});
  ASSERT_FALSE(results[0].ok());
  EXPECT_EQ(results[0].status().code(), StatusCode::kCorruptData);
  ASSERT_FALSE(results[1].ok());
  EXPECT_THAT(std::string(results[1].status().message()), HasSubstr("expert 1 is -1"));
}

TEST(GlobalScale, AScalarIsEveryExperts) {
  EXPECT_THAT(*global_scale({{}, {0.5F}}, 1), ElementsAre(ElementsAre(0.5F, 0.5F)));
  EXPECT_THAT(*global_scale({{1}, {0.5F}}, 2),
              ElementsAre(ElementsAre(0.5F, 0.5F), ElementsAre(0.5F, 0.5F)));
}

// Experts 2 and 3 of four: a slice from 0 would give 1 and 2.
TEST(GlobalScale, AllExpertsAreSlicedToTheRank) {
  EXPECT_THAT(*global_scale({{4}, {1, 2, 3, 4}}, 1), ElementsAre(ElementsAre(3, 4)));
  EXPECT_THAT(*global_scale({{4, 1}, {1, 2, 3, 4}}, 2),
              ElementsAre(ElementsAre(3, 4), ElementsAre(3, 4)));
}

TEST(GlobalScale, ColumnZeroIsGateAndOneIsUp) {
  EXPECT_THAT(*global_scale({{4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}}, 2),
              ElementsAre(ElementsAre(5, 7), ElementsAre(6, 8)));
}

TEST(GlobalScale, LocalValuesAreUsedAsTheyAre) {
  EXPECT_THAT(*global_scale({{2}, {8, 9}}, 1), ElementsAre(ElementsAre(8, 9)));
  EXPECT_THAT(*global_scale({{2, 2}, {1, 2, 3, 4}}, 2),
              ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4)));
}

TEST(GlobalScale, EmptyAndOtherShapesAreRefused) {
  EXPECT_EQ(global_scale({{0}, {}}, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(global_scale({{3}, {1, 2, 3}}, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(global_scale({{4, 2}, std::vector<float>(8, 1.0F)}, 1).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(GlobalScale, ABadValueIsCorruptDataAndNamed) {
  auto result = global_scale({{2}, {1.0F, -1.0F}}, 1);
  EXPECT_EQ(result.status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("expert 3 is -1"));
}

ExpertScales scales_with(float s1, float s2) {
  ExpertScales scales;
  scales.s1 = s1;
  scales.s2 = s2;
  scales.gate_global_scale = {0.03125F};
  scales.up_global_scale = {0.25F};
  scales.down_global_scale = {3.0F};
  return scales;
}

TEST(Alphas, AreTheGlobalScalesWhereActivationsAreNotQuantised) {
  for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a8}) {
    ExpertScales scales = scales_with(0.04F, 0.5F);
    derive_alphas(mode, scales);
    EXPECT_THAT(scales.gate_alpha, ElementsAre(0.03125F));
    EXPECT_THAT(scales.up_alpha, ElementsAre(0.25F));
    EXPECT_THAT(scales.down_alpha, ElementsAre(3.0F));
  }
}

TEST(Alphas, DivideByTheEncodeScaleInW4a4) {
  ExpertScales scales = scales_with(0.04F, 1.0F);
  derive_alphas(ActivationMode::kW4a4, scales);
  EXPECT_EQ(scales.a1, 25.0F);
  EXPECT_EQ(scales.a2, 1.0F);
  EXPECT_THAT(scales.gate_alpha, ElementsAre(0.03125F / 25.0F));
  EXPECT_THAT(scales.up_alpha, ElementsAre(0.25F / 25.0F));
  EXPECT_THAT(scales.down_alpha, ElementsAre(3.0F));
}

// The floor guards direct use: s = 1e30 would divide by 1e-30.
TEST(Alphas, TheEncodeScaleHasAFloor) {
  ExpertScales scales = scales_with(1e30F, 1e30F);
  derive_alphas(ActivationMode::kW4a4, scales);
  EXPECT_THAT(scales.up_alpha, ElementsAre(0.25F / 1e-12F));
}

}  // namespace
}  // namespace halfbyte
