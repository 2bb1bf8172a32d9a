// SPDX-License-Identifier: Apache-2.0
#include "moe/spec.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "moe/router.h"

namespace halfbyte {
namespace {

constexpr std::array<std::pair<ActivationMode, std::string_view>, 5> kModeNames = {{
    {ActivationMode::kAuto, "auto"},
    {ActivationMode::kW4a16, "w4a16"},
    {ActivationMode::kW4a4, "w4a4"},
    {ActivationMode::kW4a4Dynamic, "w4a4_dynamic"},
    {ActivationMode::kW4a8, "w4a8"},
}};

// Sizes from a config: large enough for every model, small enough that products of four fit 63
// bits.
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;
constexpr std::int64_t kMaxExperts = std::int64_t{1} << 16;

Status check_width(std::string_view name, std::int64_t width) {
  if (width > 0 && width <= kMaxWidth && width % 16 == 0) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("{} is {}, want a positive multiple of 16 (the NVFP4 group), at most {}",
                      name, width, kMaxWidth)};
}

Status check_counts(const MoeSpec& spec) {
  if (spec.num_experts <= 0 || spec.num_experts > kMaxExperts) {
    return {StatusCode::kInvalidArgument,
            fmt::format("num_experts is {}, want 1 .. {}", spec.num_experts, kMaxExperts)};
  }
  if (spec.top_k <= 0 || spec.top_k > spec.num_experts) {
    return {StatusCode::kInvalidArgument,
            fmt::format("top_k is {}, want 1 .. num_experts = {}", spec.top_k, spec.num_experts)};
  }
  return {};
}

Status check_activation(const ActivationSpec& activation) {
  if (activation.function != ActivationFunction::kSwigluClamped) return {};
  if (std::isnan(activation.limit) || activation.limit <= 0.0F) {
    return {
        StatusCode::kInvalidArgument,
        fmt::format("swiglu limit is {}, want > 0 (leave it out for no clamp)", activation.limit)};
  }
  if (!std::isfinite(activation.alpha) || !std::isfinite(activation.beta)) {
    return {StatusCode::kInvalidArgument,
            fmt::format("swiglu alpha is {} and beta is {}, want finite values", activation.alpha,
                        activation.beta)};
  }
  return {};
}

bool is_activation_dtype(DType dtype) {
  return dtype == DType::kBf16 || dtype == DType::kF16 || dtype == DType::kF32;
}

Status check_dtypes(const MoeSpec& spec) {
  if (!is_activation_dtype(spec.x_dtype) || !is_activation_dtype(spec.y_dtype)) {
    return {StatusCode::kUnsupported,
            fmt::format("x is {} and y is {}, want BF16, F16 or F32", dtype_name(spec.x_dtype),
                        dtype_name(spec.y_dtype))};
  }
  const WeightFormat format = spec.expert_format;
  if (format == WeightFormat::kNvfp4 || format == WeightFormat::kFp8 ||
      format == WeightFormat::kBf16) {
    return {};
  }
  return {StatusCode::kUnsupported,
          fmt::format("experts are {}, want nvfp4, fp8 or bf16", weight_format_name(format))};
}

Status check_input_weighting(const MoeSpec& spec) {
  if (spec.router.method == RoutingMethod::kLlama4 && spec.top_k != 1) {
    return {StatusCode::kUnsupported,
            fmt::format("llama4 routing has one expert a token, got top_k = {}", spec.top_k)};
  }
  if (!spec.apply_router_weight_on_input || spec.top_k == 1) return {};
  return {StatusCode::kUnsupported,
          fmt::format("apply_router_weight_on_input is defined for top_k = 1, got top_k = {}",
                      spec.top_k)};
}

}  // namespace

std::string_view activation_mode_name(ActivationMode mode) {
  for (const auto& [value, name] : kModeNames) {
    if (value == mode) return name;
  }
  return "unknown";
}

Result<ActivationMode> parse_activation_mode(std::string_view name) {
  for (const auto& [value, known] : kModeNames) {
    if (known == name) return value;
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("activation mode \"{}\" is unknown, want auto, w4a16, w4a4, "
                            "w4a4_dynamic or w4a8",
                            name));
}

std::string_view activation_function_name(ActivationFunction function) {
  switch (function) {
    case ActivationFunction::kSwiglu:
      return "swiglu";
    case ActivationFunction::kSwigluClamped:
      return "swiglu_clamped";
    case ActivationFunction::kRelu2:
      return "relu2";
    case ActivationFunction::kGegluTanh:
      return "geglu_tanh";
  }
  return "unknown";
}

std::string_view weight_format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kNvfp4:
      return "nvfp4";
    case WeightFormat::kFp8:
      return "fp8";
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kF16:
      return "f16";
    case WeightFormat::kF32:
      return "f32";
  }
  return "unknown";
}

Status check_spec(const MoeSpec& spec) {
  HALFBYTE_RETURN_IF_ERROR(check_width("hidden_size", spec.hidden_size));
  HALFBYTE_RETURN_IF_ERROR(check_width("intermediate_size", spec.intermediate_size));
  HALFBYTE_RETURN_IF_ERROR(check_counts(spec));
  HALFBYTE_RETURN_IF_ERROR(check_activation(spec.activation));
  HALFBYTE_RETURN_IF_ERROR(check_dtypes(spec));
  HALFBYTE_RETURN_IF_ERROR(check_input_weighting(spec));
  return check_router(spec.router, spec.num_experts, spec.top_k);
}

}  // namespace halfbyte
