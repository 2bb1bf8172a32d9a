// SPDX-License-Identifier: Apache-2.0
#include "weights/findings.h"

#include <fmt/format.h>

#include <utility>

namespace halfbyte {
namespace {

constexpr std::size_t kMaxItems = 16;

std::vector<std::pair<std::int64_t, std::int64_t>> runs_of(const std::vector<std::int64_t>& ids) {
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  for (const std::int64_t id : ids) {
    if (!runs.empty() && runs.back().second + 1 == id) {
      runs.back().second = id;
    } else {
      runs.emplace_back(id, id);
    }
  }
  return runs;
}

}  // namespace

std::string format_experts(const std::vector<std::int64_t>& ids) {
  const auto runs = runs_of(ids);
  std::vector<std::string> items;
  std::size_t num_listed = 0;
  for (const auto& [first, last] : runs) {
    if (items.size() == kMaxItems) break;
    items.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
    num_listed += static_cast<std::size_t>(last - first + 1);
  }
  std::string text =
      fmt::format("{} {}", ids.size() == 1 ? "expert" : "experts", fmt::join(items, ", "));
  if (num_listed < ids.size()) {
    text += fmt::format(" and {} more (halfbyte check lists all)", ids.size() - num_listed);
  }
  return text;
}

void Findings::add_expert(std::int64_t layer_idx,
                          std::int64_t expert_idx,
                          std::string_view text,
                          StatusCode code) {
  std::vector<std::int64_t>& experts = by_layer_[{layer_idx, std::string(text)}];
  if (experts.empty() || experts.back() != expert_idx) experts.push_back(expert_idx);
  ++count_;
  if (code_ == StatusCode::kOk) code_ = code;
}

void Findings::add(std::string line, StatusCode code) {
  lines_.push_back(std::move(line));
  ++count_;
  if (code_ == StatusCode::kOk) code_ = code;
}

std::vector<std::string> Findings::lines() const {
  std::vector<std::string> all;
  for (const auto& [key, experts] : by_layer_) {
    all.push_back(fmt::format("layer {}: {}: {}", key.first, format_experts(experts), key.second));
  }
  all.insert(all.end(), lines_.begin(), lines_.end());
  return all;
}

Status Findings::to_status() const {
  std::vector<std::string> all = lines();
  if (all.empty()) return {};
  const std::size_t num_left = all.size() > kMaxItems ? all.size() - kMaxItems : 0;
  all.resize(all.size() - num_left);
  std::string text = fmt::format("{}", fmt::join(all, "; "));
  if (num_left > 0) text += fmt::format("; and {} more (halfbyte check lists all)", num_left);
  return Status(code_, std::move(text));
}

}  // namespace halfbyte
