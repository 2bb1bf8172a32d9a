// SPDX-License-Identifier: Apache-2.0
#include "weights/sharding.h"

#include <fmt/format.h>

#include <algorithm>

namespace halfbyte {
namespace {

constexpr std::int64_t kGroup = 16;

struct Part {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

/// The first total % num_parts parts get one more.
Part uneven_part(std::int64_t total, std::int64_t num_parts, std::int64_t part) {
  const std::int64_t base = total / num_parts, rest = total % num_parts;
  return {part * base + std::min(part, rest), base + (part < rest ? 1 : 0)};
}

Status check_shape(const MoeSpec& spec, int tp_size, int ep_size, int tp_rank) {
  if (tp_size < 1 || ep_size < 1 || tp_size % ep_size != 0) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("tp must be a multiple of ep, got tp {} and ep {}", tp_size, ep_size));
  }
  if (tp_rank < 0 || tp_rank >= tp_size) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("tp rank {} of {} ranks", tp_rank, tp_size));
  }
  if (spec.hidden_size % kGroup != 0 || spec.intermediate_size % kGroup != 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("want hidden and intermediate size multiples of {}, got {} and {}",
                              kGroup, spec.hidden_size, spec.intermediate_size));
  }
  const std::int64_t groups = spec.intermediate_size / kGroup;
  if (groups < tp_size / ep_size) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("intermediate size {} has {} groups of {}, too few for {} ranks inside "
                    "an expert; raise ep or lower tp",
                    spec.intermediate_size, groups, kGroup, tp_size / ep_size));
  }
  return {};
}

/// Bytes of `count` columns, counted from the start of a row.
std::size_t column_bytes(WeightFormat format, std::int64_t count) {
  switch (format) {
    case WeightFormat::kNvfp4:
      return static_cast<std::size_t>(count / 2);
    case WeightFormat::kFp8:
      return static_cast<std::size_t>(count);
    case WeightFormat::kF32:
      return static_cast<std::size_t>(count) * 4;
    default:
      return static_cast<std::size_t>(count) * 2;
  }
}

/// FP8 scales of a part that begins at row and column `first`: one block keeps its scale, so the
/// part must begin on a block's border or hold rows (columns) of one block only.
struct ScaleRange {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::int64_t block = 0;
};

Result<ScaleRange> cut_scale_range(std::int64_t begin, std::int64_t size, std::int64_t block) {
  const std::int64_t first = begin / block, last = (begin + size - 1) / block;
  if (begin % block == 0) return ScaleRange{first, last - first + 1, block};
  if (first == last) return ScaleRange{first, 1, size};
  // A finer grid that has borders where the old one and the part do.
  const std::int64_t fine = kGroup;
  if (block % fine != 0) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("an fp8 scale block of {} cut at {}", block, begin));
  }
  return ScaleRange{begin / fine, (size + fine - 1) / fine, fine};
}

Status cut_fp8_scale(const CanonicalMatrix& whole,
                     const Part& rows,
                     const Part& cols,
                     CanonicalMatrix& cut,
                     std::vector<float>& owned) {
  const std::int64_t stride = (whole.cols + whole.scale_block_cols - 1) / whole.scale_block_cols;
  HALFBYTE_ASSIGN_OR_RETURN(const ScaleRange r,
                            cut_scale_range(rows.begin, rows.size, whole.scale_block_rows));
  HALFBYTE_ASSIGN_OR_RETURN(const ScaleRange c,
                            cut_scale_range(cols.begin, cols.size, whole.scale_block_cols));
  cut.scale_block_rows = r.block;
  cut.scale_block_cols = c.block;
  const std::int64_t num_rows = (rows.size + r.block - 1) / r.block;
  const std::int64_t num_cols = (cols.size + c.block - 1) / c.block;
  owned.clear();
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const std::int64_t row = (rows.begin + i * r.block) / whole.scale_block_rows;
    for (std::int64_t j = 0; j < num_cols; ++j) {
      const std::int64_t col = (cols.begin + j * c.block) / whole.scale_block_cols;
      owned.push_back(whole.scale[static_cast<std::size_t>(row * stride + col)]);
    }
  }
  cut.scale = owned;
  return {};
}

Status cut_rows(const CanonicalMatrix& whole,
                const Part& part,
                CanonicalMatrix& cut,
                std::vector<float>& owned_scale) {
  cut = whole;
  cut.rows = part.size;
  const auto begin = static_cast<std::size_t>(part.begin);
  const auto size = static_cast<std::size_t>(part.size);
  const std::size_t row_bytes = column_bytes(whole.format, whole.cols);
  cut.codes = whole.codes.subspan(begin * row_bytes, size * row_bytes);
  if (whole.format == WeightFormat::kNvfp4) {
    const auto groups = static_cast<std::size_t>(whole.cols / kGroup);
    cut.block_scale = whole.block_scale.subspan(begin * groups, size * groups);
  }
  if (whole.format != WeightFormat::kFp8) return {};
  return cut_fp8_scale(whole, part, {0, whole.cols}, cut, owned_scale);
}

void copy_columns(std::span<const std::uint8_t> from,
                  std::size_t row_bytes,
                  std::size_t begin,
                  std::size_t size,
                  std::vector<std::uint8_t>& to) {
  to.clear();
  to.reserve(from.size() / row_bytes * size);
  for (std::size_t row = 0; row + row_bytes <= from.size(); row += row_bytes) {
    const auto part = from.subspan(row + begin, size);
    to.insert(to.end(), part.begin(), part.end());
  }
}

Status cut_columns(const CanonicalMatrix& whole, const Part& part, ShardedExpert& out) {
  CanonicalMatrix& cut = out.view.down;
  cut = whole;
  cut.cols = part.size;
  copy_columns(whole.codes, column_bytes(whole.format, whole.cols),
               column_bytes(whole.format, part.begin), column_bytes(whole.format, part.size),
               out.down_codes);
  cut.codes = out.down_codes;
  if (whole.format == WeightFormat::kNvfp4) {
    copy_columns(whole.block_scale, static_cast<std::size_t>(whole.cols / kGroup),
                 static_cast<std::size_t>(part.begin / kGroup),
                 static_cast<std::size_t>(part.size / kGroup), out.down_block_scale);
    cut.block_scale = out.down_block_scale;
  }
  if (whole.format != WeightFormat::kFp8) return {};
  return cut_fp8_scale(whole, {0, whole.rows}, part, cut, out.down_scale);
}

}  // namespace

Result<ExpertShard> shard_experts(const MoeSpec& spec, int tp_size, int ep_size, int tp_rank) {
  HALFBYTE_RETURN_IF_ERROR(check_shape(spec, tp_size, ep_size, tp_rank));
  const int moe_tp = tp_size / ep_size;
  const Part experts = uneven_part(spec.num_experts, ep_size, tp_rank / moe_tp);
  const Part groups = uneven_part(spec.intermediate_size / kGroup, moe_tp, tp_rank % moe_tp);
  return ExpertShard{experts.begin, experts.size, groups.begin * kGroup, groups.size * kGroup};
}

Result<ShardedExpert> cut_expert(const CanonicalExpert& expert, const ExpertShard& shard) {
  ShardedExpert out;
  const Part part = {shard.intermediate_begin, shard.intermediate_size};
  if (part.begin == 0 && part.size == expert.up.rows) {
    out.view = expert;
    return out;
  }
  if (part.begin < 0 || part.size < 1 || part.begin + part.size > expert.up.rows ||
      part.begin % kGroup != 0 || part.size % kGroup != 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("columns {} to {} of an expert of {}, want borders of {}", part.begin,
                              part.begin + part.size, expert.up.rows, kGroup));
  }
  if (expert.gate.rows > 0) {
    HALFBYTE_RETURN_IF_ERROR(cut_rows(expert.gate, part, out.view.gate, out.gate_scale));
  }
  HALFBYTE_RETURN_IF_ERROR(cut_rows(expert.up, part, out.view.up, out.up_scale));
  HALFBYTE_RETURN_IF_ERROR(cut_columns(expert.down, part, out));
  return out;
}

}  // namespace halfbyte
