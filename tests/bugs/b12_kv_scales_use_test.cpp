// SPDX-License-Identifier: Apache-2.0
//
// B12: of a pair of KV-cache scales one was lost, or a bf16 cache was scaled. What the files say is
// b12_kv_scales_test.cpp; this is what the cache does with it.
#include <gtest/gtest.h>

#include "model/kv_cache.h"

namespace halfbyte {
namespace {

ModelConfig two_layers() {
  ModelConfig config;
  config.num_hidden_layers = 2;
  config.num_key_value_heads = 1;
  config.head_dim = 16;
  return config;
}

TEST(B12, KeysAndValuesOfEachLayerKeepTheirOwnScale) {
  const std::vector<std::pair<float, float>> scales = {{0.05F, 0.08F}, {1.0F, 2.0F}};
  const auto cache = KvCache::allocate(two_layers(), KvCacheDtype::kFp8, 1, scales);
  ASSERT_TRUE(cache.ok());
  EXPECT_EQ(cache->layer(0).keys.scale, 0.05F);
  EXPECT_EQ(cache->layer(0).values.scale, 0.08F);
  EXPECT_EQ(cache->layer(1).keys.scale, 1.0F);
  EXPECT_EQ(cache->layer(1).values.scale, 2.0F);
}

TEST(B12, OnlyAnFp8CacheIsScaled) {
  const std::vector<std::pair<float, float>> scales = {{0.05F, 0.08F}, {1.0F, 2.0F}};
  const auto cache = KvCache::allocate(two_layers(), KvCacheDtype::kBfloat16, 1, scales);
  ASSERT_TRUE(cache.ok());
  EXPECT_EQ(cache->layer(0).keys.scale, 1.0F);
  EXPECT_EQ(cache->layer(0).values.scale, 1.0F);
}

// Latent attention keeps one pool: its rows serve as keys and as values under one scale.
TEST(B12, LatentRowsHaveOneScale) {
  ModelConfig config = two_layers();
  config.kv_lora_rank = 32;
  config.qk_rope_head_dim = 16;
  const std::vector<std::pair<float, float>> scales = {{0.05F, 0.08F}, {1.0F, 2.0F}};
  const auto cache = KvCache::allocate(config, KvCacheDtype::kFp8, 1, scales);
  ASSERT_TRUE(cache.ok());
  EXPECT_EQ(cache->layer(0).values.data, cache->layer(0).keys.data);
  EXPECT_EQ(cache->layer(0).values.scale, 0.05F);
  EXPECT_EQ(cache->layer(0).keys.row_width, 48);
}

}  // namespace
}  // namespace halfbyte
