// SPDX-License-Identifier: Apache-2.0
//
// Plans of the sm_90 kernels: plain C++, tested without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/cuda/common/route_rows.h"
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"
#include "kernels/cuda/sm90/grouped_gemm_fp8_nvfp4.h"
#include "kernels/cuda/sm90/moe_decode_nvfp4.h"
#include "kernels/cuda/sm90/token_tiles.h"

namespace halfbyte::sm90 {
namespace {

device::Properties h200() {
  return {"NVIDIA H200", 90, 132, 227 * 1024, 60 << 20, std::int64_t{139} << 30};
}

MoeDecodeShape deepseek(double rows, double experts) {
  return {256, 7168, 2048, true, DType::kF32, rows, experts};
}

// Two CTAs share the 228 KB of a multiprocessor, each with 1 KB of the system's.
TEST(MoeDecodeConfig, TwoCtasFitAMultiprocessor) {
  for (const MoeDecodeTile& tile : list_moe_decode_tiles()) {
    for (const int experts : {1, 128, 256, 512}) {
      const MoeDecodeShape shape = {experts, 7168, 2048};
      EXPECT_LE(2 * (make_config(shape, tile, h200()).shared_bytes + 1024 + 1024), 228 * 1024)
          << make_config(shape, tile, h200()).to_string();
      EXPECT_GE(tile.num_stages, 2);
    }
  }
}

TEST(MoeDecodeConfig, TakesSmallTilesForFewExperts) {
  EXPECT_EQ(select_config(deepseek(1, 1), h200()).tile.row_groups, 1);
  EXPECT_EQ(select_config(deepseek(4, 4), h200()).tile.row_groups, 2);
  EXPECT_EQ(select_config(deepseek(8, 8), h200()).tile.row_groups, 4);
  EXPECT_EQ(select_config(deepseek(64, 58), h200()).tile.row_groups, 4);
  EXPECT_EQ(select_config(deepseek(512, 218), h200()).tile.token_blocks, 1);
  EXPECT_EQ(select_config(deepseek(2048, 256), h200()).tile.token_blocks, 2);
  EXPECT_EQ(select_config(deepseek(8, 8), h200()), select_config(deepseek(8, 8), h200()));
}

TEST(MoeDecodeConfig, SaysWhatItCannotRun) {
  device::Properties ampere = h200();
  ampere.compute_capability = 80;
  EXPECT_EQ(can_run(deepseek(8, 8), ampere).message(),
            "moe_decode_nvfp4: compute capability 80, want 90 (Hopper)");
  EXPECT_TRUE(can_run(deepseek(8, 8), h200()).ok());
  EXPECT_EQ(can_run(MoeDecodeShape{8, 7160, 2048}, h200()).code(), StatusCode::kUnsupported);
  EXPECT_EQ(can_run(MoeDecodeShape{513, 7168, 2048}, h200()).code(), StatusCode::kUnsupported);
}

constexpr GemmOutput kOutputs[] = {GemmOutput::kActivated, GemmOutput::kRows,
                                   GemmOutput::kQuantized, GemmOutput::kScaledRows};

TEST(GroupedGemmConfig, FitsSharedMemory) {
  for (const GemmOutput output : kOutputs) {
    for (const int tokens : list_tile_tokens(output)) {
      const GroupedGemmShape shape = {{{384, 2, 2048, 7168}}, output};
      const GroupedGemmConfig config = make_config(shape, tokens, h200());
      EXPECT_LE(config.shared_bytes, h200().shared_memory_bytes) << config.to_string();
      EXPECT_GE(config.num_stages, 3);
    }
  }
}

TEST(GroupedGemmConfig, ChoosesWhatIsCompiled) {
  for (const GemmOutput output : kOutputs) {
    for (const double rows : {1.0, 33.0, 70.0, 128.0, 4096.0}) {
      const GroupedGemmShape shape = {{{32, 2, 2048, 7168}}, output, DType::kF32, rows};
      const auto tokens = list_tile_tokens(output);
      EXPECT_EQ(std::count(tokens.begin(), tokens.end(), select_config(shape, h200()).tile_tokens),
                1);
    }
  }
}

// Two halves lie row by row as they are stored, with their padding.
TEST(GroupedGemmShape, SumsOfTwoHalvesHaveTheColumnsOfTheStoredRows) {
  GroupedGemmShape shape = {{{4, 2, 80, 64}}, GemmOutput::kRows};
  EXPECT_EQ(shape.output_cols(), 256);
  shape.weights.shape.num_halves = 1;
  EXPECT_EQ(shape.output_cols(), 80);
  shape.output = GemmOutput::kQuantized;
  EXPECT_EQ(shape.output_cols(), 128);
}

// 128 rows an expert on average are up to 160 when the routing is random; the rows choose the
// width.
TEST(GroupedGemmConfig, TakesAWidthThatFewExpertsExceed) {
  GroupedGemmShape shape = {{{32, 2, 2048, 7168}}, GemmOutput::kActivated, DType::kBf16, 128};
  EXPECT_GE(select_config(shape, h200()).tile_tokens, 144);
  shape.rows_per_expert = 33;
  EXPECT_EQ(select_config(shape, h200()).tile_tokens, 64);
  shape.rows_per_expert = 4096;
  EXPECT_GE(select_config(shape, h200()).tile_tokens, 128);
}

TEST(GroupedGemmFp8Config, FitsSharedMemory) {
  for (const int tokens : list_fp8_tile_tokens()) {
    const GroupedGemmFp8Shape shape = {fp8_layout({384, 2, 2048, 7168}), GemmOutput::kActivated};
    const GroupedGemmFp8Config config = make_config(shape, tokens, h200());
    const int ctas = fp8_ctas_per_multiprocessor(tokens);
    EXPECT_LE(ctas * (config.shared_bytes + 1024), 228 * 1024) << config.to_string();
    EXPECT_LE(config.shared_bytes, h200().shared_memory_bytes) << config.to_string();
    EXPECT_GE(config.num_stages, 4);
    EXPECT_EQ(config.num_ctas % fp8_cluster_ctas(tokens), 0);
  }
}

// Two 4-byte parts of a lane's 16 columns go to each of the tensor core's steps.
TEST(Fp8TokenPosition, IsAPermutationThatKeepsAGroupInALane) {
  std::vector<bool> seen(128, false);
  for (int k = 0; k < 128; ++k) {
    const int position = fp8_token_position(k);
    seen[static_cast<std::size_t>(position)] = true;
    EXPECT_EQ(position % 16 / 4, k % 64 / 16);
    EXPECT_EQ(position / 32, k / 64 * 2 + k % 16 / 8);
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 128);
}

// One group a lane: columns 16q .. 16q + 15 are lane q's, in four steps.
TEST(TokenPosition, IsAPermutationThatKeepsAGroupInALane) {
  std::uint64_t seen = 0;
  for (int k = 0; k < 64; ++k) {
    const int position = token_position(k);
    seen |= std::uint64_t{1} << position;
    EXPECT_EQ(position % 8 / 2, k / 16);
    EXPECT_EQ(position / 16, k % 16 / 4);
  }
  EXPECT_EQ(seen, ~std::uint64_t{0});
}

// The narrowest multiple of 16 that holds the rows, of those that are compiled.
TEST(TokenTiles, WidthHoldsTheRows) {
  for (const int tokens : list_tile_tokens(GemmOutput::kActivated)) {
    const TokenTiles tiles = {tokens, 64};
    for (int rows = 1; rows <= tokens; ++rows) {
      EXPECT_GE(tiles.width(rows), rows);
      EXPECT_LE(tiles.width(rows), tokens);
      EXPECT_TRUE(tiles.width(rows) - rows < 16 || tiles.width(rows) == tokens / 2);
    }
  }
}

// Every element of a tile has a place of its own, and a tile is full.
TEST(TokenTiles, PlaceEveryElementOnce) {
  const TokenTiles tiles = {32, 192};
  std::vector<int> hits(static_cast<std::size_t>(2 * tiles.tile_bytes() / 2), 0);
  for (std::int64_t tile = 0; tile < 2; ++tile) {
    for (int token = 0; token < 32; ++token) {
      for (std::int64_t col = 0; col < 192; ++col)
        ++hits[static_cast<std::size_t>(tiles.offset(tile, token, col) / 2)];
    }
  }
  EXPECT_EQ(std::count(hits.begin(), hits.end(), 1), static_cast<std::ptrdiff_t>(hits.size()));
}

// nvfp4-moe 9.2: no distribution of n routes over L experts needs more tiles.
TEST(TokenTiles, BoundCoversTheWorstDistribution) {
  const TokenTiles tiles = {128, 64};
  EXPECT_EQ(tiles.max_tiles(5, 32), 5);
  EXPECT_GE(tiles.max_tiles(131072, 32), (131072 + 127 * 32) / 128);
}

TEST(RouteRows, SaysWhatItHasNoRoomFor) {
  EXPECT_TRUE(can_run(cuda::RouteRowsShape{.num_experts = 1024, .top_k = 64}).ok());
  EXPECT_EQ(can_run(cuda::RouteRowsShape{.num_experts = 512, .top_k = 65}).message(),
            "route_rows: 65 of 512 experts, want at most 64 of 1024");
  EXPECT_EQ(can_run(cuda::RouteRowsShape{.num_experts = 1025, .top_k = 8}).code(),
            StatusCode::kUnsupported);
}

}  // namespace
}  // namespace halfbyte::sm90
