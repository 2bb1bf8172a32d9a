// SPDX-License-Identifier: Apache-2.0
#include "moe/compatibility.h"

#include <fmt/format.h>

namespace halfbyte {
namespace {

constexpr std::string_view kCutedslAlias = "flashinfer_cutedsl";
constexpr std::string_view kFlashinferAlias = "flashinfer";

void resolve_runner_alias(MoeOptions& options, int compute_capability, NoticeSink& notices) {
  if (options.runner_backend != kCutedslAlias) return;
  options.runner_backend = compute_capability >= 100 ? "cuda_sm100" : "cuda_sm90";
  if (options.activation_mode == ActivationMode::kAuto) {
    options.activation_mode = ActivationMode::kW4a4;
  }
  notices.notice(
      "alias flashinfer_cutedsl",
      fmt::format("--moe-runner-backend {} is {} in {}", kCutedslAlias, options.runner_backend,
                  activation_mode_name(options.activation_mode)));
}

Status resolve_a2a_alias(MoeOptions& options, NoticeSink& notices) {
  if (options.a2a_backend == kFlashinferAlias) {
    options.a2a_backend = "all_to_all";
    notices.notice("alias flashinfer", "--moe-a2a-backend flashinfer is all_to_all");
  }
  if (options.a2a_backend == "none" || options.a2a_backend == "all_to_all") return {};
  if (options.a2a_backend == "deepep") {
    return {StatusCode::kUnsupported,
            "--moe-a2a-backend deepep: DeepEP transports are not supported; use all_to_all"};
  }
  return {StatusCode::kInvalidArgument,
          fmt::format("--moe-a2a-backend is \"{}\", want none or all_to_all", options.a2a_backend)};
}

Status check_not_negative(const MoeOptions& options) {
  if (options.tp_size >= 0 && options.ep_size >= 0 && options.dp_size >= 0) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("--tp-size {}, --ep-size {}, --dp-size {}: want 1 or more", options.tp_size,
                      options.ep_size, options.dp_size)};
}

// Row 4.
Status resolve_tp_and_ep(MoeOptions& options, NoticeSink& notices) {
  const bool all_to_all = options.a2a_backend == "all_to_all";
  if (options.tp_size == 0) {
    options.tp_size = options.ep_size > 0 ? options.ep_size : 1;
    if (options.tp_size > 1) {
      notices.notice(
          "tp raised to ep",
          fmt::format("--tp-size is not given: it becomes --ep-size, {}", options.ep_size));
    }
  }
  if (options.ep_size == 0) {
    options.ep_size = all_to_all ? options.tp_size : 1;
    if (options.ep_size > 1) {
      notices.notice("ep raised to tp",
                     fmt::format("--ep-size is not given: all-to-all makes it --tp-size, {}",
                                 options.tp_size));
    }
  }
  if (options.tp_size % options.ep_size == 0) return {};
  return {
      StatusCode::kInvalidArgument,
      fmt::format("--tp-size {} is not a multiple of --ep-size {}: take an ep size that divides it",
                  options.tp_size, options.ep_size)};
}

// Row 5.
Status resolve_dp_of_all_to_all(MoeOptions& options, NoticeSink& notices) {
  if (options.dp_size == 0) {
    options.dp_size = options.tp_size;
    if (options.dp_size > 1) {
      notices.notice("dp set to tp",
                     fmt::format("--dp-size is not given: all-to-all makes it --tp-size, {}",
                                 options.tp_size));
    }
  }
  if (options.dp_size != options.tp_size) {
    return {StatusCode::kInvalidArgument,
            fmt::format("all-to-all needs --dp-size equal to --tp-size, got {} and {}: leave "
                        "--dp-size out, or use --moe-a2a-backend none",
                        options.dp_size, options.tp_size)};
  }
  if (!options.enable_dp_attention && options.dp_size > 1) {
    notices.notice("dp attention on", "all-to-all turns --enable-dp-attention on");
  }
  options.enable_dp_attention = options.dp_size > 1;
  return {};
}

// Row 6.
Status check_ep_of_all_to_all(const MoeOptions& options) {
  if (options.ep_size == options.tp_size) return {};
  return {
      StatusCode::kInvalidArgument,
      fmt::format("all-to-all needs --ep-size equal to --tp-size, got {} and {}: leave --ep-size "
                  "out, or use --moe-a2a-backend none",
                  options.ep_size, options.tp_size)};
}

// Row 7.
Status resolve_dp_of_standard(MoeOptions& options, NoticeSink& notices) {
  if (options.dp_size == 0) options.dp_size = 1;
  if (options.tp_size % options.dp_size != 0) {
    return {
        StatusCode::kInvalidArgument,
        fmt::format("--tp-size {} is not a multiple of --dp-size {}: take a dp size that divides "
                    "it",
                    options.tp_size, options.dp_size)};
  }
  if (options.dp_size > 1 && !options.enable_dp_attention) {
    notices.notice("dp attention on", "--dp-size above 1 turns --enable-dp-attention on");
  }
  if (options.dp_size == 1 && options.enable_dp_attention) {
    notices.notice("dp attention off", "--enable-dp-attention has no effect with --dp-size 1");
  }
  options.enable_dp_attention = options.dp_size > 1;
  return {};
}

// Row 9's first half.
Status check_input_weighting(const MoeSpec& spec) {
  if (!spec.apply_router_weight_on_input || spec.top_k == 1) return {};
  return {
      StatusCode::kUnsupported,
      fmt::format("router weights on the input are defined for one expert a token, got top_k {}",
                  spec.top_k)};
}

}  // namespace

Result<MoeOptions> resolve_aliases(MoeOptions options,
                                   int compute_capability,
                                   NoticeSink& notices) {
  resolve_runner_alias(options, compute_capability, notices);
  HALFBYTE_RETURN_IF_ERROR(resolve_a2a_alias(options, notices));
  return options;
}

Result<MoeOptions> resolve_options(const MoeSpec& spec,
                                   MoeOptions options,
                                   NoticeSink& notices,
                                   int compute_capability) {
  HALFBYTE_ASSIGN_OR_RETURN(options,
                            resolve_aliases(std::move(options), compute_capability, notices));
  HALFBYTE_RETURN_IF_ERROR(check_not_negative(options));
  HALFBYTE_RETURN_IF_ERROR(resolve_tp_and_ep(options, notices));
  if (options.a2a_backend == "all_to_all") {
    HALFBYTE_RETURN_IF_ERROR(resolve_dp_of_all_to_all(options, notices));
    HALFBYTE_RETURN_IF_ERROR(check_ep_of_all_to_all(options));
  } else {
    HALFBYTE_RETURN_IF_ERROR(resolve_dp_of_standard(options, notices));
  }
  HALFBYTE_RETURN_IF_ERROR(check_input_weighting(spec));
  return options;
}

Status check_exchange(const MoeOptions& options, ActivationMode mode) {
  const bool quantised = mode == ActivationMode::kW4a4 || mode == ActivationMode::kW4a4Dynamic;
  if (options.nvfp4_dispatch.value_or(false) && !quantised) {
    return {
        StatusCode::kUnsupported,
        fmt::format("--moe-nvfp4-dispatch needs --moe-activation-mode w4a4 or w4a4_dynamic, got "
                    "{}",
                    activation_mode_name(mode))};
  }
  const DType wire = options.combine_dtype.value_or(DType::kF32);
  if (wire == DType::kF32 || wire == DType::kBf16) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("--moe-combine-dtype is {}, want bf16 or fp32", dtype_name(wire))};
}

}  // namespace halfbyte
