// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "formats/bf16.h"
#include "formats/convert.h"

namespace halfbyte::cpu {
namespace {

// The compiler's vector type: fixed lanes on every machine, so that the order of a sum is too.
constexpr std::int64_t kLanes = 8;
using Lanes = float __attribute__((vector_size(4 * kLanes)));
using HalfBits = std::uint16_t __attribute__((vector_size(2 * kLanes)));
using WordBits = std::uint32_t __attribute__((vector_size(4 * kLanes)));

void load(const float* src, Lanes& dst) {
  std::memcpy(&dst, src, sizeof(dst));
}

void load(const std::uint16_t* bf16, Lanes& dst) {
  HalfBits halves;
  std::memcpy(&halves, bf16, sizeof(halves));
  const WordBits words = __builtin_convertvector(halves, WordBits) << 16;
  std::memcpy(&dst, &words, sizeof(dst));
}

float widen(float value) {
  return value;
}
float widen(std::uint16_t bits) {
  return bf16_to_f32(bits);
}

float sum_lanes(const Lanes& v) {
  return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}

// Two vectors of partial sums hide the latency of an addition.
template <typename Weight>
float dot(const Weight* w, const float* x, std::int64_t count) {
  Lanes even = {};
  Lanes odd = {};
  Lanes a;
  Lanes b;
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    load(w + i, a);
    load(x + i, b);
    even += a * b;
    load(w + i + kLanes, a);
    load(x + i + kLanes, b);
    odd += a * b;
  }
  float tail = 0.0F;
  for (; i < count; ++i)
    tail += widen(w[i]) * x[i];
  even += odd;
  return sum_lanes(even) + tail;
}

// y += factor * x
void accumulate(float factor, const float* x, std::int64_t count, float* y) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Lanes a;
    Lanes b;
    load(x + i, a);
    load(y + i, b);
    b += factor * a;
    std::memcpy(y + i, &b, sizeof(b));
  }
  for (; i < count; ++i)
    y[i] += factor * x[i];
}

struct Block {
  const float* rows = nullptr;
  std::int64_t stride = 0;
};

// Rows [0, num_rows) of the sequence's block as fp32: in place, or widened into `buffer`.
Block block_rows(const PagedRows& rows,
                 std::int64_t block_idx,
                 std::int64_t num_rows,
                 float* buffer) {
  const std::int64_t first_row =
      rows.block_table[static_cast<std::size_t>(block_idx)] * rows.block_tokens;
  const std::byte* first =
      rows.data + (first_row * rows.row_width + rows.column) * dtype_bytes(rows.dtype);
  if (rows.dtype == DType::kF32) return {reinterpret_cast<const float*>(first), rows.row_width};
  const std::int64_t row_bytes = rows.row_width * dtype_bytes(rows.dtype);
  for (std::int64_t i = 0; i < num_rows; ++i)
    widen_to_f32(rows.dtype, first + i * row_bytes, rows.width, buffer + i * rows.width);
  if (rows.dtype == DType::kF8E4m3) {
    for (std::int64_t i = 0; i < num_rows * rows.width; ++i)
      buffer[i] *= rows.scale;
  }
  return {buffer, rows.width};
}

// Calls body(first_key, num_rows, block) for each cache block of the keys [0, num_keys).
template <typename Body>
void for_each_block(const PagedRows& rows, std::int64_t num_keys, float* buffer, Body&& body) {
  for (std::int64_t first = 0; first < num_keys; first += rows.block_tokens) {
    const std::int64_t num_rows = std::min(rows.block_tokens, num_keys - first);
    body(first, num_rows, block_rows(rows, first / rows.block_tokens, num_rows, buffer));
  }
}

// Leaves exp(score - max) in `scores` and returns their sum.
float exponentiate(float* scores, std::int64_t count) {
  float largest = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, scores[i]);
  float sums[kLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    scores[i] = std::exp(scores[i] - largest);
    sums[i % kLanes] += scores[i];
  }
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

}  // namespace

std::int64_t attend_scratch_floats(std::int64_t num_heads,
                                   std::int64_t num_keys,
                                   std::int64_t block_tokens,
                                   std::int64_t row_width) {
  return num_heads * num_keys + num_heads + block_tokens * row_width;
}

void attend(const AttendTask& task, float* scratch) {
  float* scores = scratch;  // [num_heads, num_keys]
  float* sums = scores + task.num_heads * task.num_keys;
  float* buffer = sums + task.num_heads;
  for_each_block(task.keys, task.num_keys, buffer,
                 [&](std::int64_t first, std::int64_t n, Block block) {
                   for (std::int64_t h = 0; h < task.num_heads; ++h) {
                     const float* q = task.q + h * task.q_stride;
                     for (std::int64_t i = 0; i < n; ++i) {
                       scores[h * task.num_keys + first + i] =
                           task.scale * dot(block.rows + i * block.stride, q, task.keys.width);
                     }
                   }
                 });
  for (std::int64_t h = 0; h < task.num_heads; ++h) {
    sums[h] = exponentiate(scores + h * task.num_keys, task.num_keys);
    std::fill_n(task.out + h * task.out_stride, task.values.width, 0.0F);
  }
  for_each_block(task.values, task.num_keys, buffer,
                 [&](std::int64_t first, std::int64_t n, Block block) {
                   for (std::int64_t h = 0; h < task.num_heads; ++h) {
                     const float* weights = scores + h * task.num_keys + first;
                     for (std::int64_t i = 0; i < n; ++i)
                       accumulate(weights[i], block.rows + i * block.stride, task.values.width,
                                  task.out + h * task.out_stride);
                   }
                 });
  for (std::int64_t h = 0; h < task.num_heads; ++h) {
    float* out = task.out + h * task.out_stride;
    for (std::int64_t i = 0; i < task.values.width; ++i)
      out[i] /= sums[h];
  }
}

void head_linear(const HeadMatrix& matrix, const float* x, float* y) {
  if (matrix.dtype == DType::kBf16) {
    const auto* rows = reinterpret_cast<const std::uint16_t*>(matrix.data);
    for (std::int64_t r = 0; r < matrix.rows; ++r)
      y[r] = dot(rows + r * matrix.cols, x, matrix.cols);
    return;
  }
  const auto* rows = reinterpret_cast<const float*>(matrix.data);
  for (std::int64_t r = 0; r < matrix.rows; ++r)
    y[r] = dot(rows + r * matrix.cols, x, matrix.cols);
}

}  // namespace halfbyte::cpu
