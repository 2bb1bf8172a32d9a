// SPDX-License-Identifier: Apache-2.0
#include "moe/expert_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/checked.h"
#include "formats/e4m3.h"
#include "formats/nvfp4.h"
#include "moe/spec.h"

namespace halfbyte {
namespace {

constexpr std::int64_t kMaxFindings = 16;

struct Findings {
  std::string text;
  std::int64_t count = 0;

  void add(const std::string& finding) {
    if (++count > kMaxFindings) return;
    text += (count == 1 ? "" : "; ") + finding;
  }
  Status status() const {
    if (count == 0) return {};
    const std::string rest =
        count > kMaxFindings ? fmt::format("; and {} more", count - kMaxFindings) : "";
    return {StatusCode::kCorruptData, text + rest};
  }
};

Status check_span(std::string_view projection,
                  std::string_view part,
                  std::size_t got,
                  std::int64_t want) {
  if (got == static_cast<std::size_t>(want)) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("{}.{} holds {} elements, want {}", projection, part, got, want)};
}

Status check_spans(std::string_view projection, const CanonicalMatrix& matrix) {
  const std::int64_t elements = matrix.rows * matrix.cols;
  switch (matrix.format) {
    case WeightFormat::kNvfp4:
      HALFBYTE_RETURN_IF_ERROR(check_span(projection, "codes", matrix.codes.size(), elements / 2));
      return check_span(projection, "block_scale", matrix.block_scale.size(),
                        elements / kNvfp4BlockSize);
    case WeightFormat::kFp8:
      if (matrix.scale_block_rows <= 0 || matrix.scale_block_cols <= 0) {
        return {StatusCode::kInvalidArgument,
                fmt::format("{}.scale has blocks of {} x {}, want positive sizes", projection,
                            matrix.scale_block_rows, matrix.scale_block_cols)};
      }
      HALFBYTE_RETURN_IF_ERROR(check_span(projection, "codes", matrix.codes.size(), elements));
      return check_span(projection, "scale", matrix.scale.size(),
                        ceil_div(matrix.rows, matrix.scale_block_rows) *
                            ceil_div(matrix.cols, matrix.scale_block_cols));
    default:
      return check_span(projection, "codes", matrix.codes.size(), elements * 2);
  }
}

Status check_shape(std::string_view projection,
                   const CanonicalMatrix& matrix,
                   WeightFormat format,
                   std::int64_t rows,
                   std::int64_t cols) {
  if (matrix.format != format) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{} is {}, want {}", projection, weight_format_name(matrix.format),
                        weight_format_name(format))};
  }
  if (matrix.rows != rows || matrix.cols != cols) {
    return {StatusCode::kInvalidArgument, fmt::format("{} is [{}, {}], want [{}, {}]", projection,
                                                      matrix.rows, matrix.cols, rows, cols)};
  }
  return check_spans(projection, matrix);
}

Status check_shapes(const MoeSpec& spec, const CanonicalExpert& expert) {
  const std::int64_t hidden = spec.hidden_size;
  const std::int64_t intermediate = spec.intermediate_size;
  const WeightFormat format = spec.expert_format;
  if (spec.activation.gated()) {
    HALFBYTE_RETURN_IF_ERROR(check_shape("gate", expert.gate, format, intermediate, hidden));
  } else if (expert.gate.rows != 0) {
    return {StatusCode::kInvalidArgument,
            fmt::format("gate has {} rows, but {} has no gate: give none", expert.gate.rows,
                        activation_function_name(spec.activation.function))};
  }
  HALFBYTE_RETURN_IF_ERROR(check_shape("up", expert.up, format, intermediate, hidden));
  return check_shape("down", expert.down, format, hidden, intermediate);
}

// True when some of eight block scales needs a second look: bit 7 set, or 0x7F (the only value
// whose low seven bits carry into bit 7 when one is added).
bool any_suspicious(const std::uint8_t* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  constexpr std::uint64_t kHigh = 0x8080808080808080U;
  constexpr std::uint64_t kOnes = 0x0101010101010101U;
  return ((word | ((word & ~kHigh) + kOnes)) & kHigh) != 0;
}

bool all_codes_zero(const CanonicalMatrix& matrix, std::size_t block_idx) {
  const auto block = matrix.codes.subspan(block_idx * kNvfp4BlockSize / 2, kNvfp4BlockSize / 2);
  return std::all_of(block.begin(), block.end(),
                     [](std::uint8_t pair) { return (pair & 0x77U) == 0; });
}

void check_block_scale(std::string_view projection,
                       const CanonicalMatrix& matrix,
                       std::size_t block_idx,
                       std::vector<std::uint8_t>& cleared,
                       Findings& findings) {
  const std::uint8_t byte = matrix.block_scale[block_idx];
  if (byte < kE4m3Nan) return;
  const bool is_nan = (byte & 0x7FU) == kE4m3Nan;
  if (is_nan && all_codes_zero(matrix, block_idx)) {
    if (cleared.empty()) cleared.assign(matrix.block_scale.begin(), matrix.block_scale.end());
    cleared[block_idx] = 0;
    return;
  }
  const auto groups = static_cast<std::size_t>(matrix.cols / kNvfp4BlockSize);
  findings.add(fmt::format("{}.block_scale: row {} group {} is 0x{:02X}, {}", projection,
                           block_idx / groups, block_idx % groups, byte,
                           is_nan ? "NaN over codes that are not zero" : "want a sign bit of 0"));
}

void check_block_scales(std::string_view projection,
                        const CanonicalMatrix& matrix,
                        std::vector<std::uint8_t>& cleared,
                        Findings& findings) {
  constexpr std::size_t kStep = sizeof(std::uint64_t);
  const std::size_t count = matrix.block_scale.size();
  for (std::size_t begin = 0; begin < count; begin += kStep) {
    const std::size_t end = std::min(count, begin + kStep);
    if (end - begin == kStep && !any_suspicious(matrix.block_scale.data() + begin)) continue;
    for (std::size_t i = begin; i < end; ++i) {
      check_block_scale(projection, matrix, i, cleared, findings);
    }
  }
}

void check_matrix(std::string_view projection,
                  CanonicalMatrix& matrix,
                  std::vector<std::uint8_t>& cleared,
                  Findings& findings) {
  if (matrix.format != WeightFormat::kNvfp4 || matrix.rows == 0) return;
  if (!std::isfinite(matrix.global_scale) || matrix.global_scale <= 0.0F) {
    findings.add(fmt::format("{}.global_scale: value {}, want finite and > 0", projection,
                             matrix.global_scale));
  }
  check_block_scales(projection, matrix, cleared, findings);
  if (!cleared.empty()) matrix.block_scale = cleared;
}

}  // namespace

Result<CheckedExpert> check_expert(const MoeSpec& spec, const CanonicalExpert& expert) {
  HALFBYTE_RETURN_IF_ERROR(check_shapes(spec, expert));
  CheckedExpert checked;
  checked.view = expert;
  Findings findings;
  check_matrix("gate", checked.view.gate, checked.cleared[0], findings);
  check_matrix("up", checked.view.up, checked.cleared[1], findings);
  check_matrix("down", checked.view.down, checked.cleared[2], findings);
  HALFBYTE_RETURN_IF_ERROR(findings.status());
  return checked;
}

}  // namespace halfbyte
