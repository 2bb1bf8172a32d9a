// SPDX-License-Identifier: Apache-2.0
//
// Kernels of instruction sets that this machine may not have, over emulated intrinsics: their
// algorithm has the bits of plain C++. What is left untested here is the compiler's translation of
// the intrinsics; cpu_integer_test runs that where the instructions are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/kernel_table.h"

namespace halfbyte::cpu {

void split15_dot_avx512_emulated(const std::uint8_t* panel,
                                 std::int64_t num_superblocks,
                                 const Split15Record* const* x,
                                 int num_x,
                                 float* sums);
void int8_dot_avx512_emulated(const std::uint8_t* panel,
                              std::int64_t num_superblocks,
                              const Int8Record* const* x,
                              int num_x,
                              float* sums);
void split15_dot_amx_emulated(const std::uint8_t* panel,
                              std::int64_t num_superblocks,
                              const Split15Record* const* x,
                              int num_x,
                              float* sums);
void int8_dot_amx_emulated(const std::uint8_t* panel,
                           std::int64_t num_superblocks,
                           const Int8Record* const* x,
                           int num_x,
                           float* sums);
void split15_dot_avx_vnni_emulated(const std::uint8_t* panel,
                                   std::int64_t num_superblocks,
                                   const Split15Record* const* x,
                                   int num_x,
                                   float* sums);
void int8_dot_avx_vnni_emulated(const std::uint8_t* panel,
                                std::int64_t num_superblocks,
                                const Int8Record* const* x,
                                int num_x,
                                float* sums);

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kMaxRows = 49;

// Random bytes are a panel: scales are UE5M3 of E4M3 values, zero now and then.
std::vector<std::uint8_t> random_panel(std::int64_t num_superblocks, std::mt19937& rng) {
  std::vector<std::uint8_t> panel(static_cast<std::size_t>(num_superblocks * kSuperblockBytes));
  for (std::size_t i = 0; i < panel.size(); ++i) {
    const bool scale = i % static_cast<std::size_t>(kSuperblockBytes) < 64;
    panel[i] = scale ? e4m3_to_ue5m3(static_cast<std::uint8_t>(rng() % 0x7FU))
                     : static_cast<std::uint8_t>(rng() & 0xFFU);
  }
  return panel;
}

template <typename Record>
using Dot = void (*)(const std::uint8_t*, std::int64_t, const Record* const*, int, float*);

// Groups that differ by many powers of two; now and then a row of zeros, or a value that is not
// finite.
std::vector<float> random_row(int t, std::int64_t cols, std::mt19937& rng) {
  std::vector<float> x(static_cast<std::size_t>(cols));
  if (t % 7 == 3) return x;
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(normal(rng), static_cast<int>(i / 64 % 7) * 9 - 30);
  if (t % 5 == 4) x[rng() % x.size()] = t % 2 == 0 ? kInfinity : kNan;
  return x;
}

template <typename Record>
void expect_same_bits(Dot<Record> kernel,
                      Dot<Record> plain,
                      const std::vector<std::uint8_t>& panel,
                      const std::vector<const Record*>& x,
                      int num_x) {
  const std::int64_t num_superblocks = std::ssize(panel) / kSuperblockBytes;
  std::vector<float> got(static_cast<std::size_t>(num_x * 16), -7.0F);
  std::vector<float> want = got;
  kernel(panel.data(), num_superblocks, x.data(), num_x, got.data());
  plain(panel.data(), num_superblocks, x.data(), num_x, want.data());
  ASSERT_EQ(0, std::memcmp(got.data(), want.data(), got.size() * sizeof(float)))
      << num_superblocks << " superblocks, " << num_x << " rows";
}

// 5, 9 and 12 superblocks, and up to 49 rows: whole tiles and chunks, and what is left of them.
template <typename Record>
void expect_bits_of_random_rows(Dot<Record> kernel,
                                Dot<Record> plain,
                                void (*quantize)(const float*, std::int64_t, Record*)) {
  std::mt19937 rng(1);
  for (const std::int64_t cols : {16, 64, 272, 576, 720}) {
    const std::int64_t per_row = num_records(cols);
    const std::vector<std::uint8_t> panel = random_panel(per_row, rng);
    std::vector<Record> rows(static_cast<std::size_t>(kMaxRows * per_row));
    std::vector<const Record*> x;
    for (int t = 0; t < kMaxRows; ++t) {
      quantize(random_row(t, cols, rng).data(), cols, rows.data() + t * per_row);
      x.push_back(rows.data() + t * per_row);
    }
    for (int num_x = 1; num_x <= kMaxRows; ++num_x)
      expect_same_bits(kernel, plain, panel, x, num_x);
  }
}

// Every code 6 or -6, every activation at its group's largest.
template <typename Record>
void expect_bits_of_the_largest_sums(Dot<Record> kernel,
                                     Dot<Record> plain,
                                     void (*quantize)(const float*, std::int64_t, Record*)) {
  for (const int codes : {0x77, 0xFF}) {
    std::vector<std::uint8_t> panel(static_cast<std::size_t>(kSuperblockBytes),
                                    static_cast<std::uint8_t>(codes));
    std::fill_n(panel.begin(), 64, e4m3_to_ue5m3(0x7E));
    for (const float value : {1.0F, -1.0F}) {
      Record row;
      quantize(std::vector<float>(64, value).data(), 64, &row);
      for (const int num_x : {1, 9})
        expect_same_bits(kernel, plain, panel, std::vector<const Record*>(9, &row), num_x);
    }
  }
}

template <typename Record>
void expect_bits_of_plain_cpp(Dot<Record> kernel,
                              Dot<Record> plain,
                              void (*quantize)(const float*, std::int64_t, Record*)) {
  expect_bits_of_random_rows(kernel, plain, quantize);
  expect_bits_of_the_largest_sums(kernel, plain, quantize);
}

TEST(EmulatedKernels, OfAvx512HaveTheBitsOfPlainCpp) {
  expect_bits_of_plain_cpp<Split15Record>(split15_dot_avx512_emulated, split15_dot_portable,
                                          quantize_split15);
  expect_bits_of_plain_cpp<Int8Record>(int8_dot_avx512_emulated, int8_dot_portable, quantize_int8);
}

TEST(EmulatedKernels, OfAmxHaveTheBitsOfPlainCpp) {
  expect_bits_of_plain_cpp<Split15Record>(split15_dot_amx_emulated, split15_dot_portable,
                                          quantize_split15);
  expect_bits_of_plain_cpp<Int8Record>(int8_dot_amx_emulated, int8_dot_portable, quantize_int8);
}

TEST(EmulatedKernels, OfAvxVnniHaveTheBitsOfPlainCpp) {
  if (!missing_feature(kAvx2Kernels).empty()) GTEST_SKIP() << missing_feature(kAvx2Kernels);
  expect_bits_of_plain_cpp<Split15Record>(split15_dot_avx_vnni_emulated, split15_dot_portable,
                                          quantize_split15);
  expect_bits_of_plain_cpp<Int8Record>(int8_dot_avx_vnni_emulated, int8_dot_portable,
                                       quantize_int8);
}

}  // namespace
}  // namespace halfbyte::cpu
