// SPDX-License-Identifier: Apache-2.0
//
// Paged attention against fp64 sums, and the same bits on every instruction set and for every way
// to cut queries into tasks.
#include "kernels/cpu/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "kernels/cpu/kernel_table.h"

namespace halfbyte::cpu {
namespace {

constexpr std::int64_t kBlockTokens = 16;
constexpr std::int64_t kNumTokens = 5;
constexpr std::int64_t kNumHeads = 3;

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = normal(rng);
  return values;
}

using Attend = void (*)(const AttendTask&, float*);

// kNumTokens queries of kNumHeads heads, of which the first sees `num_keys` keys.
struct Case {
  Case(std::int64_t num_keys_seen, std::int64_t width_of_key, std::int64_t width_of_value)
      : num_keys(num_keys_seen),
        key_width(width_of_key),
        value_width(width_of_value),
        q(random_values(kNumTokens * kNumHeads * key_width, 1)) {
    const std::int64_t num_blocks = (num_keys + kNumTokens + kBlockTokens - 1) / kBlockTokens;
    blocks.resize(static_cast<std::size_t>(num_blocks));
    std::iota(blocks.rbegin(), blocks.rend(), 0);  // last block first: the table must be used
    keys = random_values(num_blocks * kBlockTokens * key_width, 2);
    values = random_values(num_blocks * kBlockTokens * value_width, 3);
  }

  PagedRows rows(const std::vector<float>& data, std::int64_t width) const {
    return {reinterpret_cast<const std::byte*>(data.data()),
            DType::kF32,
            1.0F,
            width,
            0,
            width,
            kBlockTokens,
            blocks};
  }

  // Tokens [first, first + count) as one task.
  void attend(Attend function, std::int64_t first, std::int64_t count, float* out) const {
    AttendTask task;
    task.q = q.data() + first * kNumHeads * key_width;
    task.q_token_stride = kNumHeads * key_width;
    task.q_head_stride = key_width;
    task.out = out + first * kNumHeads * value_width;
    task.out_token_stride = kNumHeads * value_width;
    task.out_head_stride = value_width;
    task.num_tokens = count;
    task.num_heads = kNumHeads;
    task.num_keys = num_keys + first;
    task.scale = 0.3F;
    task.keys = rows(keys, key_width);
    task.values = rows(values, value_width);
    std::vector<float> scratch(
        static_cast<std::size_t>(attend_scratch_floats(
            count * kNumHeads, task.most_keys(), kBlockTokens, std::max(key_width, value_width))),
        std::nanf(""));
    function(task, scratch.data());
  }

  std::vector<float> run(Attend function, std::int64_t tokens_per_task) const {
    std::vector<float> out(static_cast<std::size_t>(kNumTokens * kNumHeads * value_width),
                           std::nanf(""));
    for (std::int64_t first = 0; first < kNumTokens; first += tokens_per_task)
      attend(function, first, std::min(tokens_per_task, kNumTokens - first), out.data());
    return out;
  }

  const float* row(const std::vector<float>& data, std::int64_t key, std::int64_t width) const {
    const auto block = blocks[static_cast<std::size_t>(key / kBlockTokens)];
    return data.data() + (block * kBlockTokens + key % kBlockTokens) * width;
  }

  // In fp64: out, and the largest |value| a query sees.
  std::vector<double> exact(std::int64_t token, std::int64_t head, double& largest) const {
    const float* query = q.data() + (token * kNumHeads + head) * key_width;
    std::vector<double> weights;
    for (std::int64_t key = 0; key < num_keys + token; ++key) {
      const float* k = row(keys, key, key_width);
      weights.push_back(0.3F * std::inner_product(query, query + key_width, k, 0.0));
    }
    const double top = *std::max_element(weights.begin(), weights.end());
    double sum = 0.0;
    for (double& weight : weights)
      sum += weight = std::exp(weight - top);
    std::vector<double> out(static_cast<std::size_t>(value_width));
    for (std::size_t key = 0; key < weights.size(); ++key) {
      const float* v = row(values, static_cast<std::int64_t>(key), value_width);
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] += weights[key] / sum * v[i];
        largest = std::max(largest, std::abs(double{v[i]}));
      }
    }
    return out;
  }

  std::int64_t num_keys, key_width, value_width;
  std::vector<std::int32_t> blocks;
  std::vector<float> q, keys, values;
};

const Case& cases(int idx) {
  // Widths and counts that fill no vector, no block and no group of keys; and a head of a real
  // size.
  static const Case list[] = {{1, 3, 5}, {13, 24, 40}, {61, 33, 7}, {200, 128, 128}};
  return list[idx];
}

class Attention : public testing::TestWithParam<int> {};

// |score| stays below 30 here: fp32 sums move it by at most 30 * 2^-20, e^score and so the result
// by as much, relative to the largest value; the other roundings are smaller.
TEST_P(Attention, IsWithinTheRoundingsOfItsSums) {
  const Case& c = cases(GetParam());
  const std::vector<float> got = c.run(attend_portable, kNumTokens);
  for (std::int64_t t = 0; t < kNumTokens; ++t) {
    for (std::int64_t h = 0; h < kNumHeads; ++h) {
      double largest = 0.0;
      const std::vector<double> want = c.exact(t, h, largest);
      const float* row = got.data() + (t * kNumHeads + h) * c.value_width;
      for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(row[i], want[i], 3e-5 * largest) << t << " " << h << " " << i;
    }
  }
}

TEST_P(Attention, HasTheSameBitsHoweverQueriesAreCut) {
  const std::vector<float> whole = cases(GetParam()).run(attend_portable, kNumTokens);
  EXPECT_EQ(cases(GetParam()).run(attend_portable, 1), whole);
  EXPECT_EQ(cases(GetParam()).run(attend_portable, 2), whole);
}

TEST_P(Attention, HasTheSameBitsWithAvx2) {
  if (!missing_feature(kAvx2Kernels).empty()) GTEST_SKIP() << missing_feature(kAvx2Kernels);
  EXPECT_EQ(cases(GetParam()).run(attend_avx2, 2),
            cases(GetParam()).run(attend_portable, kNumTokens));
}

INSTANTIATE_TEST_SUITE_P(Cases, Attention, testing::Range(0, 4));

// A key far below the rest must weigh nothing, and one that is not a number must show.
TEST(AttentionScores, KeepInfinityAndNaNApart) {
  Case c(4, 8, 8);
  std::fill(c.q.begin(), c.q.end(), 1.0F);
  std::fill(c.keys.begin(), c.keys.end(), 1.0F);
  std::fill_n(const_cast<float*>(c.row(c.keys, 1, 8)), 8, -3e38F);  // its score overflows to -inf
  std::fill(c.values.begin(), c.values.end(), 1.0F);
  std::fill_n(const_cast<float*>(c.row(c.values, 1, 8)), 8, 1e30F);
  EXPECT_NEAR(c.run(attend_portable, 1).front(), 1.0F, 1e-6F);
  *const_cast<float*>(c.row(c.keys, 2, 8)) = std::nanf("");
  EXPECT_TRUE(std::isnan(c.run(attend_portable, 1).front()));
}

}  // namespace
}  // namespace halfbyte::cpu
