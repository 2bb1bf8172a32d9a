// SPDX-License-Identifier: Apache-2.0
//
// AVX2, FMA and F16C: 8 rows of a panel a register, weights decoded in registers. Nothing here has
// external linkage but panel_dot_avx2, and no inline function of a shared header is called, so that
// no AVX code can be linked in for another unit.
#include <immintrin.h>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panel_layout.h"

namespace halfbyte::cpu {
namespace {

constexpr int kHalfRows = 8;  // half a panel: the rows of one register
constexpr int kHalves = 2;

// ------------------------------------------------------------------------------- decoding

inline __m256i load_256(const std::uint8_t* src) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
}

inline __m128i load_128(const std::uint8_t* src) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(src));
}

inline __m128i load_64(const std::uint8_t* src) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(src));
}

// Four columns of 8 rows.
struct FourColumns {
  __m256 column[4];
};

// Codes in the low nibble of byte 4n + j (row n, column j). The upper two bytes of a code's fp32
// come from one table each; the lower two are zero.
inline FourColumns decode_e2m1(__m256i nibbles) {
  const __m256i byte3 = _mm256_broadcastsi128_si256(_mm_set_epi32(
      static_cast<int>(0xC0C0C0C0), static_cast<int>(0xBFBFBF80), 0x40404040, 0x3F3F3F00));
  const __m256i byte2 = _mm256_broadcastsi128_si256(
      _mm_set_epi32(static_cast<int>(0xC0804000), static_cast<int>(0xC0800000),
                    static_cast<int>(0xC0804000), static_cast<int>(0xC0800000)));
  const __m256i odd_bytes = _mm256_set1_epi16(-256);
  const __m256i upper_words = _mm256_set1_epi32(-65536);
  const __m256i high = _mm256_shuffle_epi8(byte3, nibbles);
  const __m256i low = _mm256_shuffle_epi8(byte2, nibbles);
  const __m256i even = _mm256_blendv_epi8(low, _mm256_slli_epi16(high, 8), odd_bytes);
  const __m256i odd = _mm256_blendv_epi8(_mm256_srli_epi16(low, 8), high, odd_bytes);
  return {{_mm256_castsi256_ps(_mm256_slli_epi32(even, 16)),
           _mm256_castsi256_ps(_mm256_slli_epi32(odd, 16)),
           _mm256_castsi256_ps(_mm256_and_si256(even, upper_words)),
           _mm256_castsi256_ps(_mm256_and_si256(odd, upper_words))}};
}

// E4M3 bits as those of a half 2^8 times smaller, subnormals included; exact.
inline __m256 decode_e4m3(const std::uint8_t* src) {
  const __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(load_64(src)), 7);
  return _mm256_cvtph_ps(_mm_and_si128(wide, _mm_set1_epi16(static_cast<short>(0xBFFF))));
}

// Columns 4 * quad .. 4 * quad + 3 of a kNvfp4 line, rows of one half.
inline FourColumns decode_nvfp4_columns(const std::uint8_t* line, int half, int quad) {
  const __m256i codes = load_256(line + half * 32);
  const __m256i shifted = quad == 0 ? codes : _mm256_srli_epi16(codes, 4);
  return decode_e2m1(_mm256_and_si256(shifted, _mm256_set1_epi8(15)));
}

// One column of a line of the other formats.
template <WeightFormat kFormat>
inline __m256 decode_column(const std::uint8_t* line, int half, std::int64_t col) {
  static_assert(kFormat != WeightFormat::kNvfp4);
  if constexpr (kFormat == WeightFormat::kBf16) {
    const __m256i pair = load_256(line + col / 2 * 64 + half * 32);
    const __m256i wide = col % 2 == 0 ? _mm256_slli_epi32(pair, 16)
                                      : _mm256_and_si256(pair, _mm256_set1_epi32(-65536));
    return _mm256_castsi256_ps(wide);
  } else if constexpr (kFormat == WeightFormat::kFp8) {
    return decode_e4m3(line + col * 16 + half * 8);
  } else if constexpr (kFormat == WeightFormat::kF16) {
    return _mm256_cvtph_ps(load_128(line + col * 32 + half * 16));
  } else {
    return _mm256_castsi256_ps(load_256(line + col * 64 + half * 32));
  }
}

template <WeightFormat kFormat>
inline const std::uint8_t* line_at(const std::uint8_t* data, std::int64_t line_idx) {
  if constexpr (kFormat == WeightFormat::kNvfp4)
    return data + line_idx / 8 * kSuperblockBytes + 64 + line_idx % 8 * 64;
  if constexpr (kFormat == WeightFormat::kFp8) return data + line_idx * 128;
  if constexpr (kFormat == WeightFormat::kF32) return data + line_idx * 512;
  return data + line_idx * 256;
}

// A line that is read so much later; past a panel's end the next one begins.
template <WeightFormat kFormat>
inline void prefetch_line(const std::uint8_t* line) {
  constexpr int kPrefetchBytes = 4096;
  constexpr int kLineBytes = kFormat == WeightFormat::kNvfp4 ? 72
                             : kFormat == WeightFormat::kFp8 ? 128
                             : kFormat == WeightFormat::kF32 ? 512
                                                             : 256;
#pragma GCC unroll 8
  for (int offset = 0; offset < kLineBytes; offset += 64)
    _mm_prefetch(reinterpret_cast<const char*>(line) + kPrefetchBytes + offset, _MM_HINT_T0);
}

// The scales of 8 rows. kNvfp4: UE5M3 bytes of the line's block; kFp8: those of the scale group.
template <WeightFormat kFormat>
inline __m256 load_scale(const std::uint8_t* data,
                         std::int64_t line_idx,
                         const float* group_scale,
                         int half) {
  if constexpr (kFormat == WeightFormat::kNvfp4) {
    const std::uint8_t* scales = data + line_idx / 8 * kSuperblockBytes + line_idx % 8 / 2 * 16;
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(load_64(scales + half * 8)), 20);
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p105F));
  }
  return _mm256_mul_ps(_mm256_loadu_ps(group_scale + half * kHalfRows), _mm256_set1_ps(256.0F));
}

// ------------------------------------------------------------------------------- sums

// Sums of kNumX rows of x for kNumHalves registers of panel rows.
template <int kNumX, int kNumHalves>
struct Sums {
  __m256 of[static_cast<unsigned>(kNumHalves)][static_cast<unsigned>(kNumX)];
};

// The products of one column are added to `sum`, or begin it.
template <int kNumX, int kNumHalves>
inline void add_column(__m256 w,
                       int half,
                       const float* const* x,
                       std::int64_t col,
                       bool first,
                       Sums<kNumX, kNumHalves>& sum) {
#pragma GCC unroll 4
  for (int t = 0; t < kNumX; ++t) {
    const __m256 value = _mm256_broadcast_ss(x[t] + col);
    sum.of[half][t] = first ? _mm256_mul_ps(w, value) : _mm256_fmadd_ps(w, value, sum.of[half][t]);
  }
}

template <int kNumX, int kNumHalves>
inline void add_nvfp4_columns(const std::uint8_t* line,
                              int first_half,
                              const float* const* x,
                              std::int64_t col,
                              Sums<kNumX, kNumHalves>& sum) {
#pragma GCC unroll 2
  for (int h = 0; h < kNumHalves; ++h) {
#pragma GCC unroll 2
    for (int quad = 0; quad < 2; ++quad) {
      const FourColumns w = decode_nvfp4_columns(line, first_half + h, quad);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
        add_column(w.column[j], h, x, col + quad * 4 + j, quad + j == 0, sum);
    }
  }
}

// Both halves of a column one after the other: they share its values of x.
template <WeightFormat kFormat, int kNumX, int kNumHalves>
inline void add_columns(const std::uint8_t* line,
                        int first_half,
                        const float* const* x,
                        std::int64_t col,
                        Sums<kNumX, kNumHalves>& sum) {
  if constexpr (kFormat == WeightFormat::kNvfp4) {
    add_nvfp4_columns(line, first_half, x, col, sum);
  } else {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
#pragma GCC unroll 2
      for (int h = 0; h < kNumHalves; ++h)
        add_column(decode_column<kFormat>(line, first_half + h, j), h, x, col + j, j == 0, sum);
    }
  }
}

template <WeightFormat kFormat, int kNumX, int kNumHalves>
inline void add_to_total(const Sums<kNumX, kNumHalves>& sum,
                         int half,
                         __m256 scale,
                         Sums<kNumX, kNumHalves>& total) {
  constexpr bool kScaled = kFormat == WeightFormat::kNvfp4 || kFormat == WeightFormat::kFp8;
#pragma GCC unroll 4
  for (int t = 0; t < kNumX; ++t) {
    total.of[half][t] = kScaled ? _mm256_fmadd_ps(sum.of[half][t], scale, total.of[half][t])
                                : _mm256_add_ps(sum.of[half][t], total.of[half][t]);
  }
}

// What a pass over one panel reads.
struct Stream {
  const std::uint8_t* data = nullptr;  // of the weights
  const float* group_scale = nullptr;  // kFp8: 16 scales of the current group
  int first_half = 0;
  bool prefetches = true;
};

template <WeightFormat kFormat, int kNumX, int kNumHalves>
inline void add_line(const Stream& stream,
                     std::int64_t line_idx,
                     const float* const* x,
                     Sums<kNumX, kNumHalves>& total) {
  constexpr bool kScaled = kFormat == WeightFormat::kNvfp4 || kFormat == WeightFormat::kFp8;
  const std::uint8_t* line = line_at<kFormat>(stream.data, line_idx);
  if (stream.prefetches) prefetch_line<kFormat>(line);
  Sums<kNumX, kNumHalves> sum;
  add_columns<kFormat>(line, stream.first_half, x, line_idx * 8, sum);
#pragma GCC unroll 2
  for (int h = 0; h < kNumHalves; ++h) {
    __m256 scale = _mm256_setzero_ps();
    if constexpr (kScaled) {
      scale = load_scale<kFormat>(stream.data, line_idx, stream.group_scale, stream.first_half + h);
    }
    add_to_total<kFormat>(sum, h, scale, total);
  }
}

// The last line when cols is not a multiple of 8: x is not read past its end.
template <WeightFormat kFormat, int kNumX, int kNumHalves>
inline void add_part_of_line(const Stream& stream,
                             std::int64_t line_idx,
                             std::int64_t num_cols,
                             const float* const* x,
                             Sums<kNumX, kNumHalves>& total) {
  const std::uint8_t* line = line_at<kFormat>(stream.data, line_idx);
#pragma GCC unroll 2
  for (int h = 0; h < kNumHalves; ++h) {
    const int half = stream.first_half + h;
    Sums<kNumX, kNumHalves> sum;
    add_column(decode_column<kFormat>(line, half, 0), h, x, line_idx * 8, true, sum);
    for (std::int64_t j = 1; j < num_cols; ++j)
      add_column(decode_column<kFormat>(line, half, j), h, x, line_idx * 8 + j, false, sum);
    __m256 scale = _mm256_setzero_ps();
    if constexpr (kFormat == WeightFormat::kFp8)
      scale = load_scale<kFormat>(stream.data, line_idx, stream.group_scale, half);
    add_to_total<kFormat>(sum, h, scale, total);
  }
}

template <int kNumX, int kNumHalves>
inline void clear(Sums<kNumX, kNumHalves>& total) {
#pragma GCC unroll 2
  for (int h = 0; h < kNumHalves; ++h) {
#pragma GCC unroll 4
    for (int t = 0; t < kNumX; ++t)
      total.of[h][t] = _mm256_setzero_ps();
  }
}

template <int kNumX, int kNumHalves>
inline void store(const Sums<kNumX, kNumHalves>& total, int first_half, float* sums) {
#pragma GCC unroll 2
  for (int h = 0; h < kNumHalves; ++h) {
#pragma GCC unroll 4
    for (int t = 0; t < kNumX; ++t)
      _mm256_storeu_ps(sums + t * 16 + (first_half + h) * kHalfRows, total.of[h][t]);
  }
}

template <WeightFormat kFormat>
inline Stream stream_of(const PanelView& panel, int first_half, bool prefetches) {
  Stream stream{panel.data, reinterpret_cast<const float*>(panel.data), first_half, prefetches};
  if constexpr (kFormat == WeightFormat::kFp8)
    stream.data += (panel.cols + panel.scale_block_cols - 1) / panel.scale_block_cols * 64;
  return stream;
}

// kPanels panels at once, line by line.
template <WeightFormat kFormat, int kPanels, int kNumX, int kNumHalves>
inline void add_panels(const PanelView& panel,
                       Stream* stream,
                       const float* const* x,
                       Sums<kNumX, kNumHalves>* total) {
  const std::int64_t num_lines = panel.cols / 8;
  std::int64_t lines_per_group = num_lines + 1;
  if constexpr (kFormat == WeightFormat::kFp8) lines_per_group = (panel.scale_block_cols + 7) / 8;
  std::int64_t line_idx = 0;
  for (std::int64_t end = lines_per_group;; end += lines_per_group) {
    for (; line_idx < num_lines && line_idx < end; ++line_idx) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p)
        add_line<kFormat>(stream[p], line_idx, x, total[p]);
    }
    if (line_idx == num_lines && line_idx < end) break;
    for (int p = 0; p < kPanels; ++p)
      stream[p].group_scale += 16;
  }
  if constexpr (kFormat != WeightFormat::kNvfp4) {
    for (int p = 0; p < kPanels && panel.cols % 8 != 0; ++p)
      add_part_of_line<kFormat>(stream[p], num_lines, panel.cols % 8, x, total[p]);
  }
}

// Only the pass that reads the panel first prefetches it.
template <WeightFormat kFormat, int kNumX, int kNumHalves>
void dot_halves(const PanelView& panel, const float* const* x, int first_half, float* sums) {
  Sums<kNumX, kNumHalves> total;
  clear(total);
  Stream stream = stream_of<kFormat>(panel, first_half, first_half == 0);
  add_panels<kFormat, 1>(panel, &stream, x, &total);
  store(total, first_half, sums);
}

// The hardware keeps more lines in flight for four places of memory than for one, and fewer where
// software prefetches too.
template <WeightFormat kFormat, int kNumX>
void dot_streams(PanelView panel, std::int64_t panel_bytes, const float* const* x, float* sums) {
  Sums<kNumX, 2> total[kPanelStreams];
  Stream stream[kPanelStreams];
#pragma GCC unroll 4
  for (int p = 0; p < kPanelStreams; ++p) {
    clear(total[p]);
    stream[p] = stream_of<kFormat>(panel, 0, false);
    panel.data += panel_bytes;
  }
  add_panels<kFormat, kPanelStreams>(panel, stream, x, total);
#pragma GCC unroll 4
  for (int p = 0; p < kPanelStreams; ++p)
    store(total[p], 0, sums + p * kNumX * kPanelRows);
}

template <WeightFormat kFormat>
void dot_streams(const PanelView& first,
                 std::int64_t panel_bytes,
                 const float* const* x,
                 int num_x,
                 float* sums) {
  switch (num_x) {
    case 1:
      return dot_streams<kFormat, 1>(first, panel_bytes, x, sums);
    case 2:
      return dot_streams<kFormat, 2>(first, panel_bytes, x, sums);
    case 3:
      return dot_streams<kFormat, 3>(first, panel_bytes, x, sums);
    default:
      return dot_streams<kFormat, 4>(first, panel_bytes, x, sums);
  }
}

// Both halves in one pass: eight sums at once are what the latency of an addition takes. Weights
// that are decoded in many registers leave room for half of them.
template <WeightFormat kFormat, int kNumX>
void dot_rows(const PanelView& panel, const float* const* x, float* sums) {
  if constexpr (kFormat == WeightFormat::kNvfp4 && kNumX > 2) {
    dot_halves<kFormat, kNumX, 1>(panel, x, 0, sums);
    dot_halves<kFormat, kNumX, 1>(panel, x, 1, sums);
  } else {
    dot_halves<kFormat, kNumX, 2>(panel, x, 0, sums);
  }
}

template <WeightFormat kFormat>
void dot_panel(const PanelView& panel, const float* const* x, int num_x, float* sums) {
  static_assert(kTokenTile == 4 && kHalves == 2);
  switch (num_x) {
    case 1:
      return dot_rows<kFormat, 1>(panel, x, sums);
    case 2:
      return dot_rows<kFormat, 2>(panel, x, sums);
    case 3:
      return dot_rows<kFormat, 3>(panel, x, sums);
    default:
      return dot_rows<kFormat, 4>(panel, x, sums);
  }
}

}  // namespace

void panel_dot_avx2(const PanelView& panel, const float* const* x, int num_x, float* sums) {
  switch (panel.format) {
    case WeightFormat::kNvfp4:
      return dot_panel<WeightFormat::kNvfp4>(panel, x, num_x, sums);
    case WeightFormat::kFp8:
      return dot_panel<WeightFormat::kFp8>(panel, x, num_x, sums);
    case WeightFormat::kBf16:
      return dot_panel<WeightFormat::kBf16>(panel, x, num_x, sums);
    case WeightFormat::kF16:
      return dot_panel<WeightFormat::kF16>(panel, x, num_x, sums);
    case WeightFormat::kF32:
      return dot_panel<WeightFormat::kF32>(panel, x, num_x, sums);
  }
}

void panel_streams_dot_avx2(const PanelView& first,
                            std::int64_t panel_bytes,
                            const float* const* x,
                            int num_x,
                            float* sums) {
  switch (first.format) {
    case WeightFormat::kFp8:
      return dot_streams<WeightFormat::kFp8>(first, panel_bytes, x, num_x, sums);
    case WeightFormat::kBf16:
      return dot_streams<WeightFormat::kBf16>(first, panel_bytes, x, num_x, sums);
    case WeightFormat::kF16:
      return dot_streams<WeightFormat::kF16>(first, panel_bytes, x, num_x, sums);
    case WeightFormat::kF32:
      return dot_streams<WeightFormat::kF32>(first, panel_bytes, x, num_x, sums);
    case WeightFormat::kNvfp4:
      return;
  }
}

}  // namespace halfbyte::cpu
