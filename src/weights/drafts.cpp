// SPDX-License-Identifier: Apache-2.0
//
// Layers that propose tokens (MTP): no model here runs them, and no list of the config says how
// they are stored, so their own tensors do.
#include <fmt/format.h>

#include <map>
#include <set>

#include "weights/checkpoint_impl.h"

namespace halfbyte {
namespace {

/// Classes of one draft's linears, each once.
struct DraftClasses {
  std::set<std::string_view> experts, others;
};

/// "layers.61" of "layers.61.mlp.gate", "mtp" of "mtp.fc".
std::string_view draft_name(std::string_view path) {
  const std::size_t dot = path.find('.');
  return path.substr(0, path.starts_with("layers.") ? path.find('.', dot + 1) : dot);
}

void notice_unclassified(const CheckpointWeights::Impl& impl,
                         std::size_t count,
                         std::string_view first) {
  if (count == 0) return;
  impl.notices->notice("draft linears",
                       fmt::format("{} linears of draft layers cannot be classified; they are "
                                   "unused (first: {})",
                                   count, first));
}

/// Layers beyond the model that the config does not call drafts may be a wrong num_hidden_layers.
void notice_unstated(const CheckpointWeights::Impl& impl) {
  if (impl.map.drafts.empty() || impl.config.num_draft_layers > 0) return;
  const std::string_view name = draft_name(impl.map.drafts.begin()->first);
  impl.notices->notice("draft layers unstated",
                       fmt::format("{} is read as a draft layer and unused: the config has "
                                   "num_hidden_layers {} and states no draft layers",
                                   name, impl.config.num_hidden_layers));
}

}  // namespace

std::vector<DraftSummary> classify_drafts(const CheckpointWeights::Impl& impl) {
  std::map<std::string_view, DraftClasses> classes;
  std::size_t num_unclassified = 0;
  std::string first_fault;
  for (const auto& [path, entries] : impl.map.drafts) {
    DraftClasses& draft = classes[draft_name(path)];
    const RawTensor* payload = entries.payload();
    const bool is_norm = payload != nullptr && payload->shape.size() == 1;
    if (is_norm) continue;
    const auto kind = classify_linear(entries, impl.config.quant);
    if (!kind.ok()) {
      if (num_unclassified++ == 0)
        first_fault = fmt::format("{}: {}", path, kind.status().message());
      continue;
    }
    const bool is_expert = path.find(".experts.") != std::string::npos;
    (is_expert ? draft.experts : draft.others).insert(class_name(*kind, *payload));
  }
  notice_unclassified(impl, num_unclassified, first_fault);
  notice_unstated(impl);
  std::vector<DraftSummary> drafts;
  drafts.reserve(classes.size());
  for (const auto& [name, draft] : classes) {
    drafts.push_back({std::string(name), fmt::format("{}", fmt::join(draft.experts, " + ")),
                      fmt::format("{}", fmt::join(draft.others, " + "))});
  }
  return drafts;
}

}  // namespace halfbyte
