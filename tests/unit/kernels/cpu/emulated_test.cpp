// SPDX-License-Identifier: Apache-2.0
//
// Kernels of instruction sets that this machine may not have, over emulated intrinsics: their
// algorithm has the bits of plain C++. What is left untested here is the compiler's translation of
// the intrinsics; cpu_integer_test runs that where the instructions are.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
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

template <typename Record>
void expect_bits_of_plain_cpp(Dot<Record> kernel,
                              Dot<Record> plain,
                              void (*quantize)(const float*, std::int64_t, Record*)) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (const std::int64_t cols : {16, 64, 720}) {
    const std::int64_t per_row = num_records(cols);
    const std::vector<std::uint8_t> panel = random_panel(per_row, rng);
    for (int num_x = 1; num_x <= 35; num_x += num_x < 18 ? 1 : 7) {
      std::vector<Record> rows(static_cast<std::size_t>(num_x * per_row));
      std::vector<const Record*> pointers;
      std::vector<float> x(static_cast<std::size_t>(cols));
      for (int t = 0; t < num_x; ++t) {
        for (std::size_t i = 0; i < x.size(); ++i)
          x[i] = std::ldexp(normal(rng), static_cast<int>(i / 64 % 7) * 9 - 30);
        quantize(x.data(), cols, rows.data() + t * per_row);
        pointers.push_back(rows.data() + t * per_row);
      }
      std::vector<float> got(static_cast<std::size_t>(num_x * 16), -7.0F);
      std::vector<float> want = got;
      kernel(panel.data(), per_row, pointers.data(), num_x, got.data());
      plain(panel.data(), per_row, pointers.data(), num_x, want.data());
      ASSERT_EQ(0, std::memcmp(got.data(), want.data(), got.size() * sizeof(float)))
          << cols << " columns, " << num_x << " rows";
    }
  }
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
