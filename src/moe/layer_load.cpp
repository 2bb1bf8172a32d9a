// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/no_throw.h"
#include "moe/layer_impl.h"
#include "moe/spec.h"

namespace halfbyte {
namespace {

constexpr std::int64_t kMaxListedExperts = 16;
constexpr std::string_view kGateUpScale = "gate_up.input_scale";
constexpr std::string_view kDownScale = "down.input_scale";

bool is_absent(const ScaleTensor& scale) {
  return scale.shape.empty() && scale.values.empty();
}

Status missing_input_scale(std::string_view name) {
  return {StatusCode::kNotFound,
          fmt::format("{} is missing: use --moe-activation-mode w4a4_dynamic or w4a16", name)};
}

bool is_local(const ExpertShard& shard, std::int64_t expert_idx) {
  return expert_idx >= shard.first_expert &&
         expert_idx < shard.first_expert + shard.num_local_experts;
}

Status check_expert_idx(std::int64_t expert_idx, std::int64_t num_experts) {
  if (expert_idx >= 0 && expert_idx < num_experts) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("expert {} does not exist, want 0 .. {}", expert_idx, num_experts - 1)};
}

// Where each projection of one expert lies in the arrays.
class ArrayCutter {
 public:
  ArrayCutter(const MoeSpec& spec, const ExpertArrays& arrays)
      : arrays_(arrays),
        hidden_(spec.hidden_size),
        intermediate_(spec.intermediate_size),
        halves_(spec.activation.gated() ? 2 : 1) {}

  Status check_sizes() const {
    const std::int64_t experts = arrays_.num_experts;
    const std::int64_t gate_up = experts * halves_ * intermediate_ * hidden_;
    const std::int64_t down = experts * hidden_ * intermediate_;
    HALFBYTE_RETURN_IF_ERROR(check("gate_up_codes", arrays_.gate_up_codes.size(), gate_up / 2));
    HALFBYTE_RETURN_IF_ERROR(
        check("gate_up_block_scale", arrays_.gate_up_block_scale.size(), gate_up / 16));
    HALFBYTE_RETURN_IF_ERROR(check("down_codes", arrays_.down_codes.size(), down / 2));
    return check("down_block_scale", arrays_.down_block_scale.size(), down / 16);
  }

  /// Expert number `array_idx` of the arrays, without its global scales.
  CanonicalExpert expert(std::int64_t array_idx) const {
    CanonicalExpert expert;
    const std::int64_t first = array_idx * halves_;
    if (halves_ == 2) expert.gate = gate_up(first);
    expert.up = gate_up(first + halves_ - 1);
    expert.down =
        matrix(hidden_, intermediate_, arrays_.down_codes, arrays_.down_block_scale, array_idx);
    return expert;
  }

 private:
  static Status check(std::string_view name, std::size_t got, std::int64_t want) {
    if (got == static_cast<std::size_t>(want)) return {};
    return {StatusCode::kInvalidArgument,
            fmt::format("{} holds {} bytes, want {}", name, got, want)};
  }
  CanonicalMatrix gate_up(std::int64_t half_idx) const {
    return matrix(intermediate_, hidden_, arrays_.gate_up_codes, arrays_.gate_up_block_scale,
                  half_idx);
  }
  static CanonicalMatrix matrix(std::int64_t rows,
                                std::int64_t cols,
                                std::span<const std::uint8_t> codes,
                                std::span<const std::uint8_t> block_scale,
                                std::int64_t matrix_idx) {
    const auto elements = static_cast<std::size_t>(rows * cols);
    const auto idx = static_cast<std::size_t>(matrix_idx);
    CanonicalMatrix matrix;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.codes = codes.subspan(idx * elements / 2, elements / 2);
    matrix.block_scale = block_scale.subspan(idx * elements / 16, elements / 16);
    return matrix;
  }

  const ExpertArrays& arrays_;
  std::int64_t hidden_;
  std::int64_t intermediate_;
  std::int64_t halves_;
};

// Global scales of this rank's experts from the arrays' tensors.
struct LocalGlobalScales {
  std::vector<float> gate, up, down;
};

Result<LocalGlobalScales> local_global_scales(const MoeSpec& spec,
                                              const ExpertArrays& arrays,
                                              const ExpertShard& shard) {
  const int num_columns = spec.activation.gated() ? 2 : 1;
  HALFBYTE_ASSIGN_OR_RETURN(
      auto gate_up, resolve_global_scale(arrays.gate_up_global_scale, "gate_up.global_scale",
                                         num_columns, spec.num_experts, shard));
  HALFBYTE_ASSIGN_OR_RETURN(auto down,
                            resolve_global_scale(arrays.down_global_scale, "down.global_scale", 1,
                                                 spec.num_experts, shard));
  return LocalGlobalScales{std::move(gate_up.front()), gate_up.back(), std::move(down.front())};
}

void notice_mismatch(const ExpertScales& scales, NoticeSink& notices) {
  std::int64_t num_pairs = 0;
  float largest = 1.0F;
  for (std::size_t e = 0; e < scales.gate_global_scale.size(); ++e) {
    const float gate = scales.gate_global_scale[e];
    const float up = scales.up_global_scale[e];
    if (gate == up) continue;
    ++num_pairs;
    largest = std::max({largest, gate / up, up / gate});
  }
  if (num_pairs == 0) return;
  notices.notice(
      "gate and up global scales differ",
      fmt::format("gate and up global scales differ in {} of {} experts, by up to {}: both "
                  "are used exactly",
                  num_pairs, scales.gate_global_scale.size(), largest));
}

}  // namespace

Status MoeLayer::Impl::resolve_input_scales(const ExpertInputScales& input_scales) {
  if (plan.experts.mode != ActivationMode::kW4a4) return {};
  if (is_absent(input_scales.gate_up)) return missing_input_scale(kGateUpScale);
  if (is_absent(input_scales.down)) return missing_input_scale(kDownScale);
  const std::int64_t num_local = plan.experts.shard.num_local_experts;
  HALFBYTE_ASSIGN_OR_RETURN(const float s1,
                            resolve_input_scale(input_scales.gate_up, kGateUpScale, true,
                                                spec.num_experts, num_local, transport, *notices));
  HALFBYTE_ASSIGN_OR_RETURN(
      const float s2, resolve_input_scale(input_scales.down, kDownScale, false, spec.num_experts,
                                          num_local, transport, *notices));
  ready = false;
  scales.s1 = s1;
  scales.s2 = s2;
  return {};
}

Status MoeLayer::Impl::load_checked(std::int64_t expert_idx, const CanonicalExpert& expert) {
  const ExpertShard& shard = plan.experts.shard;
  const std::int64_t local_idx = expert_idx - shard.first_expert;
  HALFBYTE_ASSIGN_OR_RETURN(const ShardedExpert part, cut_expert(expert, shard));
  ready = false;
  HALFBYTE_RETURN_IF_ERROR(
      backend->prepare(plan.experts, local_idx, part.view, *prepared, seam_stream()));
  const auto at = static_cast<std::size_t>(local_idx);
  const bool nvfp4 = spec.expert_format == WeightFormat::kNvfp4;
  const bool gated = spec.activation.gated();
  scales.gate_global_scale[at] = nvfp4 && gated ? expert.gate.global_scale : 1.0F;
  scales.up_global_scale[at] = nvfp4 ? expert.up.global_scale : 1.0F;
  scales.down_global_scale[at] = nvfp4 ? expert.down.global_scale : 1.0F;
  loaded[at] = 1;
  return {};
}

Status MoeLayer::load_expert(std::int64_t expert_idx, const CanonicalExpert& expert) {
  HALFBYTE_RETURN_IF_ERROR(check_expert_idx(expert_idx, impl_->spec.num_experts));
  if (!is_local(impl_->plan.experts.shard, expert_idx)) return {};
  const std::string where = fmt::format("expert {}", expert_idx);
  return no_throw([&]() -> Status {
           HALFBYTE_RETURN_IF_ERROR(impl_->refuse_capture("load_expert()"));
           HALFBYTE_ASSIGN_OR_RETURN(const CheckedExpert checked,
                                     check_expert(impl_->spec, expert));
           return impl_->on_device([&] { return impl_->load_checked(expert_idx, checked.view); });
         })
      .with_context(where);
}

Status MoeLayer::load_arrays(const ExpertArrays& arrays) {
  HALFBYTE_RETURN_IF_ERROR(impl_->refuse_capture("load_arrays()"));
  HALFBYTE_RETURN_IF_ERROR(
      no_throw([&] { return impl_->on_device([&] { return impl_->load_arrays(arrays); }); }));
  return finish_loading();
}

Status MoeLayer::Impl::load_arrays(const ExpertArrays& arrays) {
  const ExpertShard& shard = plan.experts.shard;
  const bool all = arrays.num_experts == spec.num_experts;
  if (!all && arrays.num_experts != shard.num_local_experts) {
    return {StatusCode::kInvalidArgument,
            fmt::format("arrays hold {} experts, want all {} or this rank's {}", arrays.num_experts,
                        spec.num_experts, shard.num_local_experts)};
  }
  const ArrayCutter cutter(spec, arrays);
  HALFBYTE_RETURN_IF_ERROR(cutter.check_sizes());
  HALFBYTE_ASSIGN_OR_RETURN(const LocalGlobalScales global_scales,
                            local_global_scales(spec, arrays, shard));
  std::vector<CheckedExpert> experts;
  for (std::int64_t e = 0; e < shard.num_local_experts; ++e) {
    const auto at = static_cast<std::size_t>(e);
    CanonicalExpert expert = cutter.expert(all ? shard.first_expert + e : e);
    expert.gate.global_scale = global_scales.gate[at];
    expert.up.global_scale = global_scales.up[at];
    expert.down.global_scale = global_scales.down[at];
    auto checked = check_expert(spec, expert);
    if (!checked.ok()) {
      return checked.take_status().with_context(fmt::format("expert {}", shard.first_expert + e));
    }
    experts.push_back(std::move(checked).value());
  }
  for (std::int64_t e = 0; e < shard.num_local_experts; ++e) {
    const std::int64_t expert_idx = shard.first_expert + e;
    HALFBYTE_RETURN_IF_ERROR(load_checked(expert_idx, experts[static_cast<std::size_t>(e)].view)
                                 .with_context(fmt::format("expert {}", expert_idx)));
  }
  return {};
}

Status MoeLayer::set_input_scales(const ExpertInputScales& input_scales) {
  return impl_->resolve_input_scales(input_scales);
}

Status MoeLayer::Impl::check_all_loaded() const {
  std::string missing;
  std::int64_t num_missing = 0;
  for (std::size_t e = 0; e < loaded.size(); ++e) {
    if (loaded[e] != 0 || ++num_missing > kMaxListedExperts) continue;
    missing += fmt::format("{}{}", num_missing == 1 ? "" : ", ",
                           plan.experts.shard.first_expert + static_cast<std::int64_t>(e));
  }
  if (num_missing == 0) return {};
  const std::string rest = num_missing > kMaxListedExperts
                               ? fmt::format(" and {} more", num_missing - kMaxListedExperts)
                               : "";
  return {StatusCode::kInvalidArgument,
          fmt::format("{} of {} local experts were never loaded: {}{}", num_missing, loaded.size(),
                      missing, rest)};
}

Status MoeLayer::Impl::finish_loading() {
  if (spec.activation.gated()) notice_mismatch(scales, *notices);
  derive_alphas(plan.experts.mode, scales);
  HALFBYTE_RETURN_IF_ERROR(backend->set_scales(plan.experts, scales, *prepared, seam_stream()));
  HALFBYTE_RETURN_IF_ERROR(tune());
  HALFBYTE_RETURN_IF_ERROR(
      backend->warm_up(plan.experts, *prepared, expert_workspace(), seam_stream()));
  HALFBYTE_RETURN_IF_ERROR(warm_up_device());
  ready = true;
  return {};
}

Status MoeLayer::finish_loading() {
  HALFBYTE_RETURN_IF_ERROR(impl_->refuse_capture("finish_loading()"));
  HALFBYTE_RETURN_IF_ERROR(impl_->check_all_loaded());
  return no_throw([&] { return impl_->on_device([&] { return impl_->finish_loading(); }); });
}

}  // namespace halfbyte
