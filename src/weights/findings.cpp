// SPDX-License-Identifier: Apache-2.0
#include "weights/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace halfbyte {
namespace {

std::vector<std::pair<std::int64_t, std::int64_t>> runs_of(const std::set<std::int64_t>& ids) {
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

std::string format_experts(const std::set<std::int64_t>& ids, std::size_t max_items) {
  const auto runs = runs_of(ids);
  std::vector<std::string> items;
  std::size_t num_listed = 0;
  for (const auto& [first, last] : runs) {
    if (items.size() == max_items) break;
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
  ExpertFault& fault = by_layer_[{layer_idx, std::string(text)}];
  fault.code = code;
  fault.experts.insert(expert_idx);
  ++count_;
  if (code_ == StatusCode::kOk) code_ = code;
}

void Findings::add(std::string line, StatusCode code) {
  lines_.push_back({code, std::move(line)});
  ++count_;
  if (code_ == StatusCode::kOk) code_ = code;
}

void Findings::add(const Status& status) {
  if (!status.ok()) add(std::string(status.message()), status.code());
}

std::vector<Findings::Line> Findings::lines(std::size_t max_experts) const {
  std::vector<Line> all;
  all.reserve(by_layer_.size() + lines_.size());
  for (const auto& [key, fault] : by_layer_) {
    all.push_back(
        {fault.code, fmt::format("layer {}: {}: {}", key.first,
                                 format_experts(fault.experts, max_experts), key.second)});
  }
  all.insert(all.end(), lines_.begin(), lines_.end());
  return all;
}

std::vector<std::string> Findings::all_lines() const {
  std::vector<std::string> all;
  for (const Line& line : lines(std::numeric_limits<std::size_t>::max())) {
    all.push_back(fmt::format("{}: {}", status_code_name(line.code), line.text));
  }
  return all;
}

Status Findings::to_status() const {
  const std::vector<Line> all = lines(kMaxListed);
  if (all.empty()) return {};
  std::string text = all.front().text;
  for (std::size_t i = 1; i < std::min(all.size(), kMaxListed); ++i)
    text += "; " + all[i].text;
  if (all.size() > kMaxListed) {
    text += fmt::format("; and {} more (halfbyte check lists all)", all.size() - kMaxListed);
  }
  return Status(code_, std::move(text));
}

}  // namespace halfbyte
