// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checkpoint/module_path.h"
#include "weights/checkpoint_impl.h"

namespace halfbyte {
namespace {

/// Norm weights and convolutions are no linears; two dimensions or a scale beside it make one.
bool is_linear(const LinearEntries& entries) {
  const RawTensor* payload = entries.payload();
  const bool has_scale = entries[TensorRole::kWeightScale] != nullptr ||
                         entries[TensorRole::kWeightScaleInv] != nullptr ||
                         entries[TensorRole::kWeightScale2] != nullptr ||
                         entries[TensorRole::kWeightGlobalScale] != nullptr;
  return has_scale || (payload != nullptr && payload->shape.size() == 2);
}

/// Reads what can be known of a linear's values without its payload.
Status read_global_scale(const LinearEntries& entries, LinearKind& kind) {
  if (kind.linear_class != LinearClass::kNvfp4) return {};
  const RawTensor* global = entries[kind.dialect->global_scale];
  if (global == nullptr) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("{}: absent; without it the weights cannot be decoded",
                              role_name(kind.dialect->global_scale)));
  }
  HALFBYTE_ASSIGN_OR_RETURN(kind.global_scale,
                            read_scalar(*global, kind.dialect->scalars_are_reciprocal));
  if (is_good_scale(kind.global_scale)) return {};
  return Status(StatusCode::kCorruptData,
                fmt::format("{}: {} {}, want finite and > 0", short_name(*global),
                            kind.dialect->scalars_are_reciprocal ? "its inverse is" : "value",
                            kind.global_scale));
}

/// Classifies every module that is a linear and reads its scalars.
void classify_modules(CheckpointWeights::Impl& impl, Findings& findings) {
  for (const auto& [path, module] : impl.map.modules) {
    if (!is_linear(module.entries)) continue;
    auto kind = classify_linear(module.entries, impl.config.quant);
    Status status = kind.ok() ? read_global_scale(module.entries, *kind) : kind.take_status();
    if (kind.ok()) impl.kinds.emplace(path, *kind);
    if (status.ok()) continue;
    const RawTensor* payload = module.entries.payload();
    findings.add(fmt::format("{}: {}{}", path, status.message(),
                             payload == nullptr ? "" : in_file(*payload, *impl.raw)),
                 status.code());
  }
}

/// The router decides how many experts there are, and stays in 16 or 32 bits.
Status check_router(const CheckpointWeights::Impl& impl, const ExpertLayer& layer) {
  const std::string path = fmt::format("layers.{}.mlp.gate", layer.layer_idx);
  const auto kind = impl.kinds.find(path);
  if (kind == impl.kinds.end()) return {};
  const RawTensor& weight = *impl.map.modules.at(path).entries.payload();
  if (kind->second.linear_class != LinearClass::kDense) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("{}: the router is {}, want 16 or 32 bits{}", weight.name,
                    linear_class_name(kind->second.linear_class), in_file(weight, *impl.raw)));
  }
  if (kind->second.rows == layer.num_experts) return {};
  return Status(StatusCode::kCorruptData,
                fmt::format("{}: {} rows for {} experts{}", weight.name, kind->second.rows,
                            layer.num_experts, in_file(weight, *impl.raw)));
}

void build_expert_layers(CheckpointWeights::Impl& impl, Findings& findings) {
  for (const auto& [layer_idx, tensors] : impl.map.experts) {
    ExpertLayer layer = build_expert_layer(layer_idx, tensors, impl.config, *impl.raw, findings);
    findings.add(check_router(impl, layer));
    impl.layers.emplace(layer_idx, std::move(layer));
  }
}

}  // namespace

void CheckpointWeights::Impl::consume(const RawTensor* tensor) {
  if (tensor == nullptr) return;
  consumed[static_cast<std::size_t>(tensor - raw->tensors().data())].store(
      true, std::memory_order_relaxed);
}

void CheckpointWeights::Impl::consume(const LinearEntries& entries) {
  for (const RawTensor* tensor : entries.tensors)
    consume(tensor);
}

bool CheckpointWeights::Impl::is_consumed(const RawTensor& tensor) const {
  return consumed[static_cast<std::size_t>(&tensor - raw->tensors().data())].load(
      std::memory_order_relaxed);
}

std::string CheckpointWeights::Impl::unread_hint(std::string_view canonical) const {
  for (const std::string& file : raw->unread_files()) {
    for (const std::string& name : raw->tensor_names_of_unread(file)) {
      if (canonical_name(name) == canonical) {
        return fmt::format("; {} has it, but the index does not name that file: use --ignore-index",
                           file);
      }
    }
  }
  return {};
}

Status CheckpointWeights::Impl::missing(std::string_view canonical) const {
  return Status(StatusCode::kNotFound,
                fmt::format("{}: in none of the {} files read from {}{}", canonical,
                            raw->num_files(), directory, unread_hint(canonical)));
}

void NoticeLog::add(std::string_view line) {
  const std::lock_guard lock(mutex_);
  lines_.emplace_back(line);
}

std::vector<std::string> NoticeLog::lines() const {
  const std::lock_guard lock(mutex_);
  return lines_;
}

Result<std::unique_ptr<CheckpointWeights::Impl>> CheckpointWeights::Impl::open(
    const std::string& directory,
    bool ignore_index,
    std::shared_ptr<NoticeSink> notices,
    Findings& findings,
    std::string_view config_overrides) {
  auto impl = std::make_unique<Impl>();
  impl->directory = directory;
  impl->notices = std::make_shared<NoticeSink>(
      [log = impl->notice_log, outer = std::move(notices)](std::string_view line) {
        log->add(line);
        if (outer) outer->notice(line, line);
      });
  HALFBYTE_ASSIGN_OR_RETURN(impl->config,
                            read_model_config(directory, *impl->notices, config_overrides));
  HALFBYTE_ASSIGN_OR_RETURN(impl->raw, RawTensors::open(directory, ignore_index, *impl->notices));
  HALFBYTE_ASSIGN_OR_RETURN(impl->map,
                            build_tensor_map(*impl->raw, impl->config.num_hidden_layers));
  impl->consumed = std::vector<std::atomic<bool>>(impl->raw->tensors().size());
  classify_modules(*impl, findings);
  build_expert_layers(*impl, findings);
  findings.add(check_tied_head_form(*impl));
  impl->drafts = classify_drafts(*impl);
  if (findings.empty()) compare_with_config(*impl);
  return impl;
}

CheckpointWeights::CheckpointWeights(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CheckpointWeights::~CheckpointWeights() = default;

Result<std::unique_ptr<CheckpointWeights>> CheckpointWeights::open(
    const std::string& directory,
    bool ignore_index,
    std::shared_ptr<NoticeSink> notices,
    std::string_view config_overrides) {
  Findings findings;
  HALFBYTE_ASSIGN_OR_RETURN(auto impl, Impl::open(directory, ignore_index, std::move(notices),
                                                  findings, config_overrides));
  HALFBYTE_RETURN_IF_ERROR(findings.to_status());
  return std::unique_ptr<CheckpointWeights>(new CheckpointWeights(std::move(impl)));
}

CheckpointReport CheckpointWeights::check(const std::string& directory,
                                          bool ignore_index,
                                          std::shared_ptr<NoticeSink> notices) {
  CheckpointReport report;
  Findings findings;
  auto impl = Impl::open(directory, ignore_index, std::move(notices), findings);
  if (!impl.ok()) {
    report.findings.push_back(impl.status().to_string());
    return report;
  }
  report.weights.reset(new CheckpointWeights(std::move(impl).value()));
  report.weights->find_bad_bytes(findings);
  report.findings = findings.all_lines();
  return report;
}

const ModelConfig& CheckpointWeights::config() const {
  return impl_->config;
}

bool CheckpointWeights::has_tensor(std::string_view name) const {
  return impl_->map.plain.contains(std::string(name));
}

}  // namespace halfbyte
