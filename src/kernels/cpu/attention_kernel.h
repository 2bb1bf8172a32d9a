// SPDX-License-Identifier: Apache-2.0
//
// Attention in the compiler's vector type: 8 lanes on every machine, so that the order of each sum,
// and its bits, are the same whatever the unit that includes this is compiled for. Everything has
// internal linkage, so that no unit's code can be linked in for another.
#ifndef HALFBYTE_KERNELS_CPU_ATTENTION_KERNEL_H_
#define HALFBYTE_KERNELS_CPU_ATTENTION_KERNEL_H_

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/checked.h"
#include "formats/bf16.h"
#include "formats/convert.h"
#include "kernels/cpu/attention.h"

namespace halfbyte::cpu {
namespace {

constexpr std::int64_t kLanes = 8;
constexpr int kKeysPerDot = 4;        // keys that share a load of the query
constexpr int kVectorsPerColumn = 4;  // of values that share a load of the weight
using Lanes = float __attribute__((vector_size(4 * kLanes)));
using HalfBits = std::uint16_t __attribute__((vector_size(2 * kLanes)));
using WordBits = std::uint32_t __attribute__((vector_size(4 * kLanes)));
using Integers = std::int32_t __attribute__((vector_size(4 * kLanes)));

inline void load(const float* src, Lanes& dst) {
  std::memcpy(&dst, src, sizeof(dst));
}

inline void load(const std::uint16_t* bf16, Lanes& dst) {
  HalfBits halves;
  std::memcpy(&halves, bf16, sizeof(halves));
  const WordBits words = __builtin_convertvector(halves, WordBits) << 16;
  std::memcpy(&dst, &words, sizeof(dst));
}

inline void store(const Lanes& src, float* dst) {
  std::memcpy(dst, &src, sizeof(src));
}

inline float widen(float value) {
  return value;
}
inline float widen(std::uint16_t bits) {
  return bf16_to_f32(bits);
}

inline float sum_lanes(const Lanes& v) {
  return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}

// sums[n] = x . row n, for kNumRows rows `stride` apart. Two vectors of partial sums a row hide the
// latency of an addition; their order does not depend on kNumRows.
template <int kNumRows, typename Weight>
void dot(const Weight* rows, std::int64_t stride, const float* x, std::int64_t count, float* sums) {
  Lanes partial[2][unsigned{kNumRows}] = {};
  Lanes a;
  Lanes b;
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    for (int half = 0; half < 2; ++half) {
      load(x + i + half * kLanes, b);
      for (int n = 0; n < kNumRows; ++n) {
        load(rows + n * stride + i + half * kLanes, a);
        partial[half][n] += a * b;
      }
    }
  }
  for (int n = 0; n < kNumRows; ++n) {
    float tail = 0.0F;
    for (std::int64_t t = i; t < count; ++t)
      tail += widen(rows[n * stride + t]) * x[t];
    partial[0][n] += partial[1][n];
    sums[n] = sum_lanes(partial[0][n]) + tail;
  }
}

// y[0 .. kNumVectors * 8) += weights[0] * row 0 + weights[1] * row 1 + .., one after the other.
template <int kNumVectors>
void accumulate_columns(
    const float* weights, std::int64_t num_rows, const float* rows, std::int64_t stride, float* y) {
  Lanes sums[unsigned{kNumVectors}];
  for (int v = 0; v < kNumVectors; ++v)
    load(y + v * kLanes, sums[v]);
  Lanes value;
  for (std::int64_t n = 0; n < num_rows; ++n) {
    for (int v = 0; v < kNumVectors; ++v) {
      load(rows + n * stride + v * kLanes, value);
      sums[v] += weights[n] * value;
    }
  }
  for (int v = 0; v < kNumVectors; ++v)
    store(sums[v], y + v * kLanes);
}

struct Block {
  const float* rows = nullptr;
  std::int64_t stride = 0;
  std::int64_t num_rows = 0;
};

// y [width] += weights x the block's first `num_rows` rows.
inline void accumulate(
    const float* weights, std::int64_t num_rows, const Block& block, std::int64_t width, float* y) {
  constexpr std::int64_t kWide = kVectorsPerColumn * kLanes;
  std::int64_t c = 0;
  for (; c + kWide <= width; c += kWide)
    accumulate_columns<kVectorsPerColumn>(weights, num_rows, block.rows + c, block.stride, y + c);
  for (; c + kLanes <= width; c += kLanes)
    accumulate_columns<1>(weights, num_rows, block.rows + c, block.stride, y + c);
  for (; c < width; ++c) {
    for (std::int64_t n = 0; n < num_rows; ++n)
      y[c] += weights[n] * block.rows[n * block.stride + c];
  }
}

// Rows [0, num_rows) of the sequence's block as fp32: in place, or widened into `buffer`.
inline Block block_rows(const PagedRows& rows,
                        std::int64_t block_idx,
                        std::int64_t num_rows,
                        float* buffer) {
  const std::int64_t first_row =
      rows.block_table[static_cast<std::size_t>(block_idx)] * rows.block_tokens;
  const std::byte* first =
      rows.data + (first_row * rows.row_width + rows.column) * dtype_bytes(rows.dtype);
  if (rows.dtype == DType::kF32)
    return {reinterpret_cast<const float*>(first), rows.row_width, num_rows};
  const std::int64_t row_bytes = rows.row_width * dtype_bytes(rows.dtype);
  for (std::int64_t i = 0; i < num_rows; ++i)
    widen_to_f32(rows.dtype, first + i * row_bytes, rows.width, buffer + i * rows.width);
  if (rows.dtype == DType::kF8E4m3) {
    for (std::int64_t i = 0; i < num_rows * rows.width; ++i)
      buffer[i] *= rows.scale;
  }
  return {buffer, rows.width, num_rows};
}

// Calls body(first_key, block) for each cache block of the keys [0, num_keys).
template <typename Body>
void for_each_block(const PagedRows& rows, std::int64_t num_keys, float* buffer, Body&& body) {
  for (std::int64_t first = 0; first < num_keys; first += rows.block_tokens) {
    const std::int64_t num_rows = std::min(rows.block_tokens, num_keys - first);
    body(first, block_rows(rows, first / rows.block_tokens, num_rows, buffer));
  }
}

// x = e^x for x <= 0, to about one unit in the last place; below -87 it is e^-87, which no sum of
// softmax sees. A NaN stays one.
inline void exponential(Lanes& x) {
  // ln 2 in two parts, of which the first has few bits: its products with an integer are exact.
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const Lanes lowest = Lanes{} - 87.0F;
  x = x < lowest ? lowest : x;
  const Lanes n = (x * 1.44269502F + kRound) - kRound;
  const Lanes r = (x - n * kLn2High) - n * kLn2Low;
  Lanes p = r * (1.0F / 5040.0F) + 1.0F / 720.0F;
  for (const float coefficient : {1.0F / 120.0F, 1.0F / 24.0F, 1.0F / 6.0F, 0.5F})
    p = p * r + coefficient;
  p = (p * r) * r + r + 1.0F;
  const Integers power = (__builtin_convertvector(n, Integers) + 127) << 23;
  Lanes scale;
  std::memcpy(&scale, &power, sizeof(scale));
  x = p * scale;
}

inline float largest_of(const float* values, std::int64_t count) {
  float largest = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, values[i]);
  return largest;
}

// Leaves exp(score - max) in `scores` and returns their sum. There is room for whole vectors.
inline float exponentiate(float* scores, std::int64_t count) {
  const float largest = largest_of(scores, count);
  std::fill(scores + count, scores + round_up(count, kLanes), largest);
  Lanes sums = {};
  for (std::int64_t i = 0; i < count; i += kLanes) {
    Lanes values;
    load(scores + i, values);
    values -= largest;
    exponential(values);
    store(values, scores + i);
    for (std::int64_t lane = count - i; lane < kLanes; ++lane)
      values[lane] = 0.0F;
    sums += values;
  }
  return sum_lanes(sums);
}

// One query of a task: a head of a token.
struct Query {
  const float* q = nullptr;
  float* out = nullptr;
  float* scores = nullptr;    // [num_keys], room for whole vectors
  std::int64_t num_keys = 0;  // it sees
  // Of a block that starts at key `first`.
  std::int64_t num_visible(std::int64_t first, const Block& block) const {
    return std::min(block.num_rows, num_keys - first);
  }
};

template <typename Body>
void for_each_query(const AttendTask& task, float* scores, Body&& body) {
  const std::int64_t stride = round_up(task.most_keys(), kLanes);
  for (std::int64_t t = 0; t < task.num_tokens; ++t) {
    for (std::int64_t h = 0; h < task.num_heads; ++h) {
      body(Query{task.q + t * task.q_token_stride + h * task.q_head_stride,
                 task.out + t * task.out_token_stride + h * task.out_head_stride,
                 scores + (t * task.num_heads + h) * stride, task.num_keys + t});
    }
  }
}

inline void score_block(const AttendTask& task,
                        const Query& query,
                        std::int64_t first,
                        const Block& block) {
  const std::int64_t width = task.keys.width;
  const std::int64_t count = query.num_visible(first, block);
  float* scores = query.scores + first;
  std::int64_t i = 0;
  for (; i + kKeysPerDot <= count; i += kKeysPerDot)
    dot<kKeysPerDot>(block.rows + i * block.stride, block.stride, query.q, width, scores + i);
  for (; i < count; ++i)
    dot<1>(block.rows + i * block.stride, block.stride, query.q, width, scores + i);
  for (i = 0; i < count; ++i)
    scores[i] *= task.scale;
}

inline void attend_with_lanes(const AttendTask& task, float* scratch) {
  float* buffer = scratch;  // a block as fp32
  float* scores = scratch + task.keys.block_tokens * std::max(task.keys.width, task.values.width);
  for_each_block(task.keys, task.most_keys(), buffer, [&](std::int64_t first, const Block& block) {
    for_each_query(task, scores,
                   [&](const Query& query) { score_block(task, query, first, block); });
  });
  for_each_query(task, scores, [&](const Query& query) {
    const float sum = exponentiate(query.scores, query.num_keys);
    for (std::int64_t i = 0; i < query.num_keys; ++i)
      query.scores[i] /= sum;
    std::fill_n(query.out, task.values.width, 0.0F);
  });
  for_each_block(task.values, task.most_keys(), buffer,
                 [&](std::int64_t first, const Block& block) {
                   for_each_query(task, scores, [&](const Query& query) {
                     accumulate(query.scores + first, query.num_visible(first, block), block,
                                task.values.width, query.out);
                   });
                 });
}

template <typename Weight>
void head_linear_of(const HeadMatrix& matrix, const float* x, float* y) {
  const auto* rows = reinterpret_cast<const Weight*>(matrix.data);
  std::int64_t r = 0;
  for (; r + kKeysPerDot <= matrix.rows; r += kKeysPerDot)
    dot<kKeysPerDot>(rows + r * matrix.cols, matrix.cols, x, matrix.cols, y + r);
  for (; r < matrix.rows; ++r)
    dot<1>(rows + r * matrix.cols, matrix.cols, x, matrix.cols, y + r);
}

inline void head_linear_with_lanes(const HeadMatrix& matrix, const float* x, float* y) {
  if (matrix.dtype == DType::kBf16) {
    head_linear_of<std::uint16_t>(matrix, x, y);
  } else {
    head_linear_of<float>(matrix, x, y);
  }
}

}  // namespace
}  // namespace halfbyte::cpu

#endif  // HALFBYTE_KERNELS_CPU_ATTENTION_KERNEL_H_
