// SPDX-License-Identifier: Apache-2.0
//
// nvfp4-moe 12.3 on the host: a batch that is padded gives its valid rows the bits that they have
// without padding, and zeros behind them.
#include <gmock/gmock.h>

#include <cmath>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "halfbyte/moe.h"
#include "halfbyte/transport.h"
#include "unit/moe/layer_fixture.h"

namespace halfbyte {
namespace {

using test::random_experts;
using test::random_rows;

constexpr std::int64_t kRows = 8;

MoeSpec spec_with(std::int64_t top_k) {
  MoeSpec spec;
  spec.hidden_size = 64;
  spec.intermediate_size = 48;
  spec.num_experts = 6;
  spec.top_k = top_k;
  spec.x_dtype = DType::kF32;
  spec.y_dtype = DType::kF32;
  return spec;
}

// Rows from `num_valid` on hold NaN, and ids that look right.
struct PaddedBatch {
  std::vector<float> x, weights, shared;
  std::vector<std::int32_t> idx;
  std::int32_t num_valid = 0;

  PaddedBatch(const MoeSpec& spec, std::int32_t valid, unsigned seed)
      : x(random_rows(kRows * spec.hidden_size, seed)),
        weights(random_rows(kRows * spec.top_k, seed + 1)),
        shared(random_rows(kRows * spec.hidden_size, seed + 2)),
        num_valid(valid) {
    for (std::int64_t i = 0; i < kRows * spec.top_k; ++i)
      idx.push_back(i % 5 == 4 ? -1 : static_cast<std::int32_t>((i + seed) % 6));
    const std::int64_t kept = std::min<std::int64_t>(std::max(valid, 0), kRows);
    std::fill(x.begin() + kept * spec.hidden_size, x.end(), NAN);
    std::fill(shared.begin() + kept * spec.hidden_size, shared.end(), NAN);
    std::fill(weights.begin() + kept * spec.top_k, weights.end(), NAN);
  }

  // The first `rows` rows, with or without the count.
  Status run(MoeLayer& layer,
             const MoeSpec& spec,
             std::int64_t rows,
             bool with_count,
             std::vector<float>& y,
             std::span<const std::int64_t> tokens_per_rank = {}) const {
    const auto slots = static_cast<std::size_t>(rows * spec.top_k);
    y.assign(static_cast<std::size_t>(rows * spec.hidden_size), -7.0F);
    Routing routing = {{idx.data(), slots}, {weights.data(), slots}};
    if (with_count) routing.num_valid_tokens = &num_valid;
    const SharedExpert extra = {SharedExpert::Kind::kReplicated,
                                {shared.data(), DType::kF32, rows, spec.hidden_size}};
    return layer.run({x.data(), DType::kF32, rows, spec.hidden_size}, routing, extra,
                     {y.data(), DType::kF32, rows, spec.hidden_size}, tokens_per_rank);
  }
};

Result<std::unique_ptr<MoeLayer>> loaded_layer(const MoeSpec& spec,
                                               MoeOptions options,
                                               Transport* transport = nullptr) {
  options.runner_backend = "reference";
  options.activation_mode = ActivationMode::kW4a16;
  options.capacity_tokens = kRows;
  HALFBYTE_ASSIGN_OR_RETURN(auto layer, MoeLayer::create(spec, options, {}, transport));
  const auto experts = random_experts(spec, 1);
  for (std::size_t e = 0; e < experts.size(); ++e) {
    HALFBYTE_RETURN_IF_ERROR(layer->load_expert(static_cast<std::int64_t>(e), experts[e]->view()));
  }
  HALFBYTE_RETURN_IF_ERROR(layer->finish_loading());
  return layer;
}

void expect_padded(const std::vector<float>& padded, const std::vector<float>& valid) {
  const auto kept = static_cast<std::ptrdiff_t>(valid.size());
  EXPECT_EQ(std::vector<float>(padded.begin(), padded.begin() + kept), valid);
  const std::vector<float> rest(padded.begin() + kept, padded.end());
  EXPECT_EQ(rest, std::vector<float>(rest.size(), 0.0F));
}

TEST(ValidTokens, PaddingGivesZerosAndChangesNoOtherRow) {
  for (const std::int64_t top_k : {1, 2}) {
    MoeSpec spec = spec_with(top_k);
    spec.apply_router_weight_on_input = top_k == 1;
    const auto layer = loaded_layer(spec, {});
    ASSERT_TRUE(layer.ok()) << layer.status().to_string();
    const PaddedBatch batch(spec, 5, 3);
    std::vector<float> padded, valid;
    ASSERT_TRUE(batch.run(**layer, spec, kRows, true, padded).ok());
    ASSERT_TRUE(batch.run(**layer, spec, 5, false, valid).ok());
    expect_padded(padded, valid);
  }
}

TEST(ValidTokens, PaddingCountsInNoStatistic) {
  const MoeSpec spec = spec_with(2);
  const auto padded_layer = loaded_layer(spec, {});
  const auto plain_layer = loaded_layer(spec, {});
  const PaddedBatch batch(spec, 5, 3);
  std::vector<float> y;
  ASSERT_TRUE(batch.run(**padded_layer, spec, kRows, true, y).ok());
  ASSERT_TRUE(batch.run(**plain_layer, spec, 5, false, y).ok());
  const MoeCounters& got = (*padded_layer)->counters();
  const MoeCounters& want = (*plain_layer)->counters();
  EXPECT_EQ(got.tokens_per_expert, want.tokens_per_expert);
  EXPECT_EQ(got.dropped_routes, want.dropped_routes);
  EXPECT_GT(want.dropped_routes, 0);
  EXPECT_EQ(got.expert_bytes_read, want.expert_bytes_read);
}

TEST(ValidTokens, ACountOutsideTheBatchIsTheNearestInside) {
  const MoeSpec spec = spec_with(2);
  const auto layer = loaded_layer(spec, {});
  std::vector<float> y, valid;
  ASSERT_TRUE(PaddedBatch(spec, -3, 3).run(**layer, spec, kRows, true, y).ok());
  expect_padded(y, {});
  const PaddedBatch all(spec, 1000, 3);
  ASSERT_TRUE(all.run(**layer, spec, kRows, true, y).ok());
  ASSERT_TRUE(all.run(**layer, spec, kRows, false, valid).ok());
  expect_padded(y, valid);
}

// Each rank pads its own batch; both schemes, with ranks from the installed header.
TEST(ValidTokens, RanksPadTheirOwnBatches) {
  const MoeSpec spec = spec_with(2);
  const auto alone = loaded_layer(spec, {});
  for (const char* scheme : {"none", "all_to_all"}) {
    MoeOptions options;
    options.a2a_backend = scheme;
    options.tp_size = options.ep_size = options.dp_size = 2;
    options.combine_dtype = DType::kF32;
    const auto ranks = make_in_process_ranks(2);
    ASSERT_TRUE(ranks.ok());
    std::vector<Status> status(2);
    std::vector<std::vector<float>> y(2);
    const auto run_rank = [&](std::size_t rank) -> Status {
      Transport* transport = (*ranks)[rank].get();
      HALFBYTE_ASSIGN_OR_RETURN(const auto layer, loaded_layer(spec, options, transport));
      const PaddedBatch batch(spec, rank == 0 ? 5 : 2, 10 * static_cast<unsigned>(rank));
      const std::vector<std::int64_t> rows = {kRows / 2 + 2, kRows / 2 + 2};
      return batch.run(*layer, spec, rows[rank], true, y[rank], rows);
    };
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        status[rank] = run_rank(rank);
        if (!status[rank].ok()) abort_ranks(*(*ranks)[rank], status[rank]);
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    for (std::size_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(status[rank].ok()) << scheme << " " << status[rank].to_string();
      const std::int32_t kept = rank == 0 ? 5 : 2;
      std::vector<float> valid;
      const PaddedBatch batch(spec, kept, 10 * static_cast<unsigned>(rank));
      ASSERT_TRUE(batch.run(**alone, spec, kept, false, valid).ok());
      // Six experts are no multiple of 16: partial sums of ranks may differ in the last bits.
      ASSERT_EQ(y[rank].size(), static_cast<std::size_t>(6 * spec.hidden_size));
      for (std::size_t i = 0; i < y[rank].size(); ++i)
        EXPECT_NEAR(y[rank][i], i < valid.size() ? valid[i] : 0.0F, 1e-4F) << scheme << " " << i;
      const std::vector<float> rest(y[rank].begin() + std::ssize(valid), y[rank].end());
      EXPECT_EQ(rest, std::vector<float>(rest.size(), 0.0F));
    }
  }
}

TEST(InProcessRanks, SayWhatTheyCannotBe) {
  EXPECT_EQ(make_in_process_ranks(0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(make_in_process_ranks(2, std::chrono::milliseconds(0)).status().code(),
            StatusCode::kInvalidArgument);
}

// A rank that is alone too long says whom it waited for, after the deadline it was given.
TEST(InProcessRanks, TheDeadlineIsTheOneGiven) {
  const auto ranks = make_in_process_ranks(2, std::chrono::milliseconds(20));
  ASSERT_TRUE(ranks.ok());
  MoeOptions options;
  options.tp_size = options.ep_size = 2;
  const MoeSpec spec = spec_with(2);
  const auto layer = loaded_layer(spec, options, (*ranks)[0].get());
  ASSERT_TRUE(layer.ok()) << layer.status().to_string();
  std::vector<float> y;
  const Status status = PaddedBatch(spec, 8, 1).run(**layer, spec, kRows, false, y);
  EXPECT_EQ(status.code(), StatusCode::kTransportError) << status.to_string();
}

TEST(InProcessRanks, AnAbortReachesEveryRank) {
  const auto ranks = make_in_process_ranks(2);
  ASSERT_TRUE(ranks.ok());
  abort_ranks(*(*ranks)[1], Status(StatusCode::kCancelled, "rank 1 has stopped"));
  MoeOptions options;
  options.tp_size = options.ep_size = 2;
  const MoeSpec spec = spec_with(2);
  const auto layer = loaded_layer(spec, options, (*ranks)[0].get());
  std::vector<float> y;
  const Status status =
      layer.ok() ? PaddedBatch(spec, 8, 1).run(**layer, spec, kRows, false, y) : Status();
  const std::string text = layer.ok() ? status.to_string() : layer.status().to_string();
  EXPECT_THAT(text, testing::HasSubstr("rank 1 has stopped"));
}

}  // namespace
}  // namespace halfbyte
