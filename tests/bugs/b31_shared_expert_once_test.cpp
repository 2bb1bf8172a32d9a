// SPDX-License-Identifier: Apache-2.0
//
// B31: a shared expert that every rank holds was summed once per rank. A model with two shared
// experts gives the same logits on 1, 2 and 4 ranks; summed per rank they would be far off.
#include <gtest/gtest.h>

#include <thread>

#include "golden/model_support.h"

namespace halfbyte {
namespace {

std::vector<float> score_on(int num_ranks, const std::vector<std::int32_t>& ids) {
  ModelOptions options = float32_options("cpu");
  options.moe.num_threads = 1;
  options.moe.tp_size = num_ranks;
  options.moe.ep_size = num_ranks;
  options.moe.dp_size = 1;
  std::vector<std::unique_ptr<Transport>> transports;
  if (num_ranks > 1) transports = make_in_process_transports(num_ranks);
  auto models = load_test_model(golden_path("tiny/deepseek_mscale"), options, transports);
  EXPECT_TRUE(models.ok()) << (models.ok() ? "" : models.status().to_string());
  if (!models.ok()) return {};
  std::vector<std::vector<float>> logits(models->size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < models->size(); ++r)
    threads.emplace_back([&, r] { logits[r] = score(*(*models)[r], ids); });
  for (std::thread& thread : threads)
    thread.join();
  return logits.front();
}

TEST(B31, ReplicatedSharedExpertsCountOnce) {
  const auto golden = read_golden(golden_path("tiny/deepseek_mscale/golden"));
  const std::vector<std::int32_t>& ids = golden.at("tokens").i32;
  for (const int num_ranks : {1, 2, 4})
    EXPECT_LE(relative_max(score_on(num_ranks, ids), golden.at("logits").f32), 2e-5) << num_ranks;
}

}  // namespace
}  // namespace halfbyte
