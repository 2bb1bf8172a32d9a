// SPDX-License-Identifier: Apache-2.0
//
// Promises of Model::forward, on the tiny models of tests/golden.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "golden/model_support.h"

namespace halfbyte {
namespace {

const char* const kModels[] = {"tiny/qwen_yarn_tied", "tiny/deepseek_groups"};

std::vector<std::int32_t> tokens_of(const std::string& model) {
  return read_golden(golden_path(model + "/golden")).at("tokens").i32;
}

// Two sequences in one batch: 12 tokens of the golden prompt, then `other` tokens.
std::vector<float> score_beside(Model& model,
                                const std::vector<std::int32_t>& ids,
                                const std::vector<std::int32_t>& other) {
  const std::vector<std::int32_t> first_blocks = {9};
  const std::vector<std::int32_t> second_blocks = {4, 11, 2};
  const auto count = static_cast<std::int64_t>(ids.size());
  const auto other_count = static_cast<std::int64_t>(other.size());
  const std::vector<SequenceSlice> slices = {{0, other_count, 0, second_blocks},
                                             {other_count, count, 0, first_blocks}};
  std::vector<std::int32_t> all = other;
  all.insert(all.end(), ids.begin(), ids.end());
  std::vector<std::int32_t> rows;
  for (std::int64_t i = 0; i < count; ++i)
    rows.push_back(static_cast<std::int32_t>(other_count + i));
  Batch batch;
  batch.token_ids = all;
  batch.sequences = slices;
  batch.logit_rows = rows;
  std::vector<float> logits(rows.size() * static_cast<std::size_t>(model.config().vocab_size));
  const Status status = model.forward(batch, logits);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return logits;
}

TEST(Decoder, LogitsDoNotDependOnTheRestOfTheBatch) {
  for (const char* name : kModels) {
    for (const char* backend : {"reference", "cpu"}) {
      const auto model = load_one_rank(golden_path(name), float32_options(backend));
      ASSERT_NE(model, nullptr);
      const std::vector<std::int32_t> all = tokens_of(name);
      const std::vector<std::int32_t> ids(all.begin(), all.begin() + 12);
      const std::vector<float> alone = score(*model, ids);
      EXPECT_EQ(score_beside(*model, ids, all), alone) << name << " " << backend;
      EXPECT_EQ(score_beside(*model, ids, {5}), alone) << name << " " << backend;
    }
  }
}

TEST(Decoder, KeepsTheBitsInBfloat16AndWithAnFp8Cache) {
  for (const char* name : kModels) {
    ModelOptions options = float32_options("cpu");
    options.dtype = ComputeDtype::kBfloat16;
    options.kv_cache_dtype = KvCacheDtype::kFp8;
    const auto model = load_one_rank(golden_path(name), options);
    ASSERT_NE(model, nullptr);
    const std::vector<std::int32_t> ids = tokens_of(name);
    EXPECT_EQ(score(*model, ids, 11), score(*model, ids)) << name;
  }
}

TEST(Decoder, RunsAnEmptyBatch) {
  const auto model = load_one_rank(golden_path(kModels[0]), float32_options("cpu"));
  ASSERT_NE(model, nullptr);
  EXPECT_TRUE(model->forward(Batch{}, {}).ok());
}

TEST(Decoder, SaysHowManyLogitsItWants) {
  const auto model = load_one_rank(golden_path(kModels[0]), float32_options("cpu"));
  ASSERT_NE(model, nullptr);
  std::vector<float> logits(5);
  EXPECT_EQ(model->forward(Batch{}, logits).message(),
            "logits: room for 5 values, want 0 rows of 96");
}

TEST(Decoder, DescribesItselfAndCountsItsRoutes) {
  const auto model = load_one_rank(golden_path("tiny/deepseek_groups"), float32_options("cpu"));
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->backend_name(), "cpu");
  EXPECT_NE(model->describe_plan().find("DeepseekV3ForCausalLM: 3 layers"), std::string::npos);
  score(*model, {1, 2, 3, 4});
  const std::vector<ExpertLoad> load = model->expert_load();
  ASSERT_EQ(load.size(), 2U);  // the first layer is dense
  EXPECT_EQ(load[1].layer_idx, 2);
  std::int64_t routes = 0;
  for (const std::int64_t tokens : load[1].counters.tokens_per_expert)
    routes += tokens;
  EXPECT_EQ(routes, 4 * 3);
}

TEST(LoadModel, CountsBytesOfTheCache) {
  ModelConfig config;
  config.num_hidden_layers = 61;
  config.kv_lora_rank = 512;
  config.qk_rope_head_dim = 64;
  // checkpoints.md 13.2: 1152 bytes a token and layer, 70 KB over 61 layers.
  EXPECT_EQ(kv_bytes_per_block(config, KvCacheDtype::kAuto), 16 * 61 * 1152);
  config.kv_lora_rank = 0;
  config.num_hidden_layers = 48;
  config.num_key_value_heads = 4;
  config.head_dim = 128;
  EXPECT_EQ(kv_bytes_per_block(config, KvCacheDtype::kFp8), 16 * 48 * 2 * 512);
}

TEST(LoadModel, RefusesLinearModesThatNoLinearHas) {
  ModelOptions options = float32_options("cpu");
  options.linear_activation_mode = ActivationMode::kW4a8;
  const auto models = load_test_model(golden_path(kModels[0]), options);
  EXPECT_EQ(models.status().code(), StatusCode::kInvalidArgument);
}

// Runs every rank of a group on a thread of its own and returns rank 0's logits.
std::vector<float> score_on_ranks(const std::string& name, int num_ranks, MoeOptions moe) {
  ModelOptions options = float32_options("cpu");
  moe.runner_backend = "cpu";
  moe.activation_mode = ActivationMode::kW4a16;
  moe.capacity_tokens = options.moe.capacity_tokens;
  moe.num_threads = 1;
  moe.exact_float32 = true;
  moe.tp_size = num_ranks;
  moe.ep_size = num_ranks;
  moe.dp_size = 1;
  options.moe = moe;
  const auto transports = make_in_process_transports(num_ranks);
  auto models = load_test_model(golden_path(name), options, transports);
  EXPECT_TRUE(models.ok()) << (models.ok() ? "" : models.status().to_string());
  if (!models.ok()) return {};
  const std::vector<std::int32_t> ids = tokens_of(name);
  std::vector<std::vector<float>> logits(static_cast<std::size_t>(num_ranks));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < logits.size(); ++r)
    threads.emplace_back([&, r] { logits[r] = score(*(*models)[r], ids, 16); });
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& rank : logits)
    EXPECT_EQ(rank, logits.front());
  return logits.front();
}

// Attention is replicated, experts are spread; the ordered combine keeps the bits (nvfp4-moe 9.5:
// 16 must divide the number of experts, so 8 experts are held to the bound of 8.3).
TEST(Decoder, GivesTheSameAnswerOnSeveralRanks) {
  for (const char* name : kModels) {
    const auto model = load_one_rank(golden_path(name), float32_options("cpu"));
    ASSERT_NE(model, nullptr);
    const std::vector<float> one = score(*model, tokens_of(name), 16);
    for (const int num_ranks : {2, 3})
      EXPECT_LE(relative_max(score_on_ranks(name, num_ranks, {}), one), 2e-6) << name;
  }
}

// One step of a rank: all of `ids`, logits of all.
std::vector<float> score_step(Model& model,
                              const std::vector<std::int32_t>& ids,
                              const std::vector<std::int64_t>& tokens_per_rank) {
  const std::vector<std::int32_t> blocks = {3, 1};
  const SequenceSlice slice = {0, static_cast<std::int64_t>(ids.size()), 0, blocks};
  std::vector<std::int32_t> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  Batch batch;
  batch.token_ids = ids;
  if (!ids.empty()) batch.sequences = {&slice, 1};
  batch.logit_rows = rows;
  batch.tokens_per_rank = tokens_per_rank;
  std::vector<float> logits(ids.size() * static_cast<std::size_t>(model.config().vocab_size));
  const Status status = model.forward(batch, logits);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return logits;
}

// Data-parallel attention: each rank has requests of its own and its own cache, also none at all;
// the experts see all of them. nvfp4-moe 9.3: the same numbers as on one rank.
TEST(Decoder, RanksWithRequestsOfTheirOwnAgreeWithOneRank) {
  for (const char* a2a_backend : {"none", "all_to_all"}) {
    for (const char* name : kModels) {
      ModelOptions options = float32_options("cpu");
      const auto model = load_one_rank(golden_path(name), options);
      ASSERT_NE(model, nullptr);
      const std::vector<std::int32_t> all = tokens_of(name);
      const std::vector<std::vector<std::int32_t>> ids = {
          {all.begin(), all.begin() + 9}, {}, {all.begin() + 9, all.begin() + 30}};
      options.moe.a2a_backend = a2a_backend;
      options.moe.enable_dp_attention = true;
      options.moe.num_threads = 1;
      options.moe.tp_size = options.moe.ep_size = options.moe.dp_size = 3;
      const auto transports = make_in_process_transports(3);
      const auto models = load_test_model(golden_path(name), options, transports);
      ASSERT_TRUE(models.ok()) << models.status().to_string();
      const std::vector<std::int64_t> tokens_per_rank = {9, 0, 21};
      std::vector<std::vector<float>> logits(3);
      std::vector<std::thread> threads;
      for (std::size_t r = 0; r < 3; ++r) {
        threads.emplace_back(
            [&, r] { logits[r] = score_step(*(*models)[r], ids[r], tokens_per_rank); });
      }
      for (std::thread& thread : threads)
        thread.join();
      for (const std::size_t r : {0U, 2U})
        EXPECT_LE(relative_max(logits[r], score(*model, ids[r])), 2e-6) << name << a2a_backend;
    }
  }
}

}  // namespace
}  // namespace halfbyte
