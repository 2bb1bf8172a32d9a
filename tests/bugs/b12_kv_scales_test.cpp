// SPDX-License-Identifier: Apache-2.0
//
// B12: KV-cache scales, one of the pair, none, or bad; the table is the report's.
#include "loader_bugs.h"

namespace halfbyte {
namespace {

using Scales = std::optional<float>;

Result<std::pair<float, float>> kv_scales_of(Scales key,
                                             Scales value,
                                             std::vector<std::string>& notices) {
  test::TinyCheckpoint checkpoint = test::tiny_checkpoint();
  const std::string path = "model.layers.1.self_attn.";
  if (key) put(checkpoint.tensors, test::f32_tensor(path + "k_proj.k_scale", {}, {*key}));
  if (value) put(checkpoint.tensors, test::f32_tensor(path + "v_proj.v_scale", {}, {*value}));
  checkpoint.config["quantization_config"]["kv_cache_scheme"] = "FP8";
  test::OpenedCheckpoint opened(checkpoint);
  EXPECT_TRUE(opened.weights.ok()) << opened.error();
  auto scales = (*opened).kv_scales(1);
  notices = opened.notices;
  return scales;
}

TEST(KvScales, PairOneNoneAndBad) {
  std::vector<std::string> notices;
  EXPECT_EQ(kv_scales_of(0.05F, 0.08F, notices).value(), std::pair(0.05F, 0.08F));
  EXPECT_EQ(kv_scales_of(0.05F, {}, notices).value(), std::pair(0.05F, 0.05F));
  EXPECT_THAT(notices, testing::Contains(testing::HasSubstr("only one of k_scale and v_scale")));
  EXPECT_EQ(kv_scales_of({}, 0.05F, notices).value(), std::pair(0.05F, 0.05F));
  EXPECT_EQ(kv_scales_of({}, {}, notices).value(), std::pair(1.0F, 1.0F));
  EXPECT_THAT(notices, testing::Contains(testing::HasSubstr("promises an FP8 KV cache")));
  for (const float bad : {0.0F, -1.0F, std::nanf("")}) {
    EXPECT_EQ(kv_scales_of(bad, 0.08F, notices).status().code(), StatusCode::kCorruptData);
    EXPECT_EQ(kv_scales_of(0.05F, bad, notices).status().code(), StatusCode::kCorruptData);
  }
}

}  // namespace
}  // namespace halfbyte
