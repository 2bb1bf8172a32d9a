// SPDX-License-Identifier: Apache-2.0
#include "moe/scales.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

namespace halfbyte {
namespace {

constexpr float kMaxInputScale = 1e12F;    // keeps the floor below from changing a result
constexpr float kMinEncodeScale = 1e-12F;  // divisor of the w4a4 alphas
constexpr std::size_t kMaxFindings = 16;   // listed; the rest is counted

enum class ShapeKind { kScalar, kEmpty, kAllExperts, kLocalExperts };

struct ShapeMatch {
  ShapeKind kind = ShapeKind::kScalar;
  std::int64_t num_columns = 1;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Status check_element_count(const ScaleTensor& scale, std::string_view name) {
  std::int64_t count = 1;
  for (const std::int64_t extent : scale.shape) {
    if (extent < 0 || (extent > 0 && count > std::numeric_limits<std::int64_t>::max() / extent)) {
      return {StatusCode::kInvalidArgument,
              fmt::format("{} has shape {}", name, shape_text(scale.shape))};
    }
    count *= extent;
  }
  if (static_cast<std::size_t>(count) == scale.values.size()) return {};
  return {StatusCode::kInvalidArgument, fmt::format("{} has shape {} and {} values", name,
                                                    shape_text(scale.shape), scale.values.size())};
}

std::string accepted_shapes(bool two_columns,
                            std::int64_t num_experts,
                            std::int64_t num_local_experts) {
  std::string text = fmt::format("[], [1], [{0}], [{0}, 1]", num_experts);
  if (two_columns) text += fmt::format(", [{}, 2]", num_experts);
  if (num_local_experts != num_experts) {
    text += fmt::format(", [{}]", num_local_experts);
    if (two_columns) text += fmt::format(", [{}, 2]", num_local_experts);
  }
  return text;
}

// The row of nvfp4-moe 4.1's table that `shape` is. [E] is looked at before [L], so that a rank
// that holds every expert never asks for a transport; [1] before both.
Result<ShapeMatch> match_shape(const ScaleTensor& scale,
                               std::string_view name,
                               bool two_columns,
                               std::int64_t num_experts,
                               std::int64_t num_local_experts) {
  HALFBYTE_RETURN_IF_ERROR(check_element_count(scale, name));
  const std::vector<std::int64_t>& shape = scale.shape;
  if (shape.empty() || (shape.size() == 1 && shape[0] == 1)) return ShapeMatch{};
  if (scale.values.empty()) return ShapeMatch{ShapeKind::kEmpty, 1};
  const std::int64_t columns = shape.size() == 2 ? shape[1] : 1;
  const bool columns_fit = columns == 1 || (columns == 2 && two_columns);
  if (shape.size() <= 2 && columns_fit) {
    if (shape[0] == num_experts) return ShapeMatch{ShapeKind::kAllExperts, columns};
    const bool local_form = shape.size() == 1 || columns == 2;
    if (local_form && shape[0] == num_local_experts) {
      return ShapeMatch{ShapeKind::kLocalExperts, columns};
    }
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{} has shape {}, want {}", name, shape_text(shape),
                            accepted_shapes(two_columns, num_experts, num_local_experts)));
}

// Every bad value, its expert and, when there are two, its projection.
template <typename IsGood>
Status check_values(const ScaleTensor& scale,
                    std::string_view name,
                    const ShapeMatch& match,
                    std::int64_t first_expert,
                    std::string_view wanted,
                    IsGood is_good) {
  std::string findings;
  std::size_t num_bad = 0;
  for (std::size_t i = 0; i < scale.values.size(); ++i) {
    if (is_good(scale.values[i])) continue;
    if (++num_bad > kMaxFindings) continue;
    const auto columns = static_cast<std::size_t>(match.num_columns);
    const std::string place =
        match.kind == ShapeKind::kScalar
            ? "the one value"
            : fmt::format("expert {}{}", first_expert + static_cast<std::int64_t>(i / columns),
                          columns == 1 ? "" : (i % columns == 0 ? " gate" : " up"));
    findings += fmt::format("{}{} is {}", num_bad == 1 ? "" : ", ", place, scale.values[i]);
  }
  if (num_bad == 0) return {};
  if (num_bad > kMaxFindings) findings += fmt::format(" and {} more", num_bad - kMaxFindings);
  return {StatusCode::kCorruptData, fmt::format("{}: {}; want {}", name, findings, wanted)};
}

void notice_reduction(const ScaleTensor& scale, std::string_view name, NoticeSink& notices) {
  const std::set<float> distinct(scale.values.begin(), scale.values.end());
  if (distinct.size() < 2) return;
  notices.notice(
      fmt::format("scales reduced: {}", name),
      fmt::format(
          "{}: {} values, {} of them distinct, from {} to {}: their maximum is used for all", name,
          scale.values.size(), distinct.size(), *distinct.begin(), *distinct.rbegin()));
}

// The maximum over ranks; a rank whose own values were refused sends infinity, so that all ranks
// stop together instead of one of them missing from the collective.
Result<float> max_over_ranks(Status local,
                             float value,
                             std::string_view name,
                             Transport* transport) {
  if (!local.ok()) value = std::numeric_limits<float>::infinity();
  HALFBYTE_RETURN_IF_ERROR(transport->all_reduce(std::as_writable_bytes(std::span(&value, 1)),
                                                 DType::kF32, ReduceOp::kMax, Lane{}));
  if (!local.ok()) return local;
  if (!std::isfinite(value)) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("{}: another rank refused its experts' values", name));
  }
  return value;
}

Status check_reciprocal(float s_max, std::string_view name) {
  if (std::isfinite(1.0F / s_max)) return {};
  return {StatusCode::kCorruptData,
          fmt::format("{}: the largest value is {}, whose reciprocal is not finite", name, s_max)};
}

bool is_input_scale(float value) {
  return std::isfinite(value) && value > 0.0F && value <= kMaxInputScale;
}

bool is_global_scale(float value) {
  return std::isfinite(value) && value > 0.0F;
}

}  // namespace

Result<float> resolve_input_scale(const ScaleTensor& scale,
                                  std::string_view name,
                                  bool two_columns,
                                  std::int64_t num_experts,
                                  std::int64_t num_local_experts,
                                  Transport* transport,
                                  NoticeSink& notices) {
  HALFBYTE_ASSIGN_OR_RETURN(const ShapeMatch match,
                            match_shape(scale, name, two_columns, num_experts, num_local_experts));
  if (match.kind == ShapeKind::kEmpty) {
    notices.notice(fmt::format("empty scale: {}", name),
                   fmt::format("{} is empty: 1.0 is used", name));
    return 1.0F;
  }
  const bool is_local = match.kind == ShapeKind::kLocalExperts;
  if (is_local && transport == nullptr) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} holds the {} local experts of {}: its maximum needs a transport; "
                              "give the values of all experts",
                              name, num_local_experts, num_experts));
  }
  Status values =
      check_values(scale, name, match, 0, "finite, > 0 and at most 1e12", is_input_scale);
  if (!values.ok() && !is_local) return values;
  const float local_max =
      values.ok() ? *std::max_element(scale.values.begin(), scale.values.end()) : 0.0F;
  notice_reduction(scale, name, notices);
  float s_max = local_max;
  if (is_local) {
    HALFBYTE_ASSIGN_OR_RETURN(s_max, max_over_ranks(std::move(values), local_max, name, transport));
  }
  HALFBYTE_RETURN_IF_ERROR(check_reciprocal(s_max, name));
  return s_max;
}

Result<std::vector<std::vector<float>>> resolve_global_scale(const ScaleTensor& scale,
                                                             std::string_view name,
                                                             int num_columns,
                                                             std::int64_t num_experts,
                                                             const ExpertShard& shard) {
  HALFBYTE_ASSIGN_OR_RETURN(
      const ShapeMatch match,
      match_shape(scale, name, num_columns == 2, num_experts, shard.num_local_experts));
  if (match.kind == ShapeKind::kEmpty) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("{} is empty, want {}", name,
                    accepted_shapes(num_columns == 2, num_experts, shard.num_local_experts)));
  }
  const bool is_local = match.kind == ShapeKind::kLocalExperts;
  HALFBYTE_RETURN_IF_ERROR(check_values(scale, name, match, is_local ? shard.first_expert : 0,
                                        "finite and > 0", is_global_scale));
  std::vector<std::vector<float>> columns(static_cast<std::size_t>(num_columns));
  const std::int64_t first = is_local ? 0 : shard.first_expert;
  for (std::int64_t c = 0; c < num_columns; ++c) {
    for (std::int64_t e = 0; e < shard.num_local_experts; ++e) {
      const std::int64_t column = match.num_columns == 2 ? c : 0;
      const std::int64_t at =
          match.kind == ShapeKind::kScalar ? 0 : (first + e) * match.num_columns + column;
      columns[static_cast<std::size_t>(c)].push_back(scale.values[static_cast<std::size_t>(at)]);
    }
  }
  return columns;
}

void derive_alphas(ActivationMode mode, ExpertScales& scales) {
  scales.a1 = 1.0F / scales.s1;
  scales.a2 = 1.0F / scales.s2;
  const bool quantised = mode == ActivationMode::kW4a4;
  const float divisor1 = quantised ? std::max(scales.a1, kMinEncodeScale) : 1.0F;
  const float divisor2 = quantised ? std::max(scales.a2, kMinEncodeScale) : 1.0F;
  const auto divide = [](const std::vector<float>& global_scale, float divisor) {
    std::vector<float> alpha(global_scale.size());
    std::transform(global_scale.begin(), global_scale.end(), alpha.begin(),
                   [divisor](float gs) { return gs / divisor; });
    return alpha;
  };
  scales.gate_alpha = divide(scales.gate_global_scale, divisor1);
  scales.up_alpha = divide(scales.up_global_scale, divisor1);
  scales.down_alpha = divide(scales.down_global_scale, divisor2);
}

}  // namespace halfbyte
