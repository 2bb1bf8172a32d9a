// SPDX-License-Identifier: Apache-2.0
#include "moe/tuning_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "moe/spec.h"

namespace halfbyte {
namespace {

// A table of these buckets and of tactics that this build has.
bool fits(const TuningTable& table, std::span<const TacticList> lists) {
  if (table.size() != lists.size()) return false;
  return std::all_of(lists.begin(), lists.end(), [&table](const TacticList& list) {
    const auto found = table.find(list.num_tokens);
    return found != table.end() &&
           std::find(list.names.begin(), list.names.end(), found->second) != list.names.end();
  });
}

std::optional<TuningTable> recall(const std::string& directory,
                                  const TuningKey& key,
                                  std::span<const TacticList> lists,
                                  NoticeSink& notices) {
  auto table = read_tuning(directory, key);
  if (table.ok() && fits(table.value(), lists)) return std::move(table).value();
  if (!table.ok() && table.status().code() == StatusCode::kNotFound) return std::nullopt;
  const std::string file = directory + "/" + tuning_file_name(key);
  const std::string problem =
      table.ok() ? fmt::format("{} has other buckets or tactics than this build", file)
                 : std::string(table.status().message());
  notices.notice(file, fmt::format("{}: tactics are measured again", problem));
  return std::nullopt;
}

void keep(const std::string& directory,
          const TuningKey& key,
          const TuningTable& table,
          NoticeSink& notices) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const Status status = write_tuning(directory, key, table);
  if (status.ok()) return;
  notices.notice("not kept: " + tuning_file_name(key),
                 fmt::format("tactics are kept for this process alone: {}", status.message()));
}

std::string all_names(std::span<const TacticList> lists) {
  std::set<std::string> names;
  for (const TacticList& list : lists)
    names.insert(list.names.begin(), list.names.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Result<TuningTable> TuningMemory::recall_or_measure(const TuningKey& key,
                                                    const std::string& cache_directory,
                                                    std::span<const TacticList> lists,
                                                    const Measure& measure,
                                                    NoticeSink& notices) {
  const std::scoped_lock lock(mutex_);
  if (const auto known = tables_.find(key); known != tables_.end()) return known->second;
  std::optional<TuningTable> table;
  if (!cache_directory.empty()) table = recall(cache_directory, key, lists, notices);
  if (!table.has_value()) {
    HALFBYTE_ASSIGN_OR_RETURN(table, measure());
    if (!cache_directory.empty()) keep(cache_directory, key, *table, notices);
  }
  return tables_.emplace(key, *std::move(table)).first->second;
}

TuningKey tuning_key(const MoePlan& plan,
                     std::string_view device_name,
                     std::string_view driver_version,
                     std::span<const TacticList> lists) {
  const ExpertPlan& experts = plan.experts;
  const MoeSpec& spec = experts.spec;
  return {{"device", std::string(device_name)},
          {"compute_capability", std::to_string(experts.limits.compute_capability)},
          {"driver", std::string(driver_version)},
          {"library", HALFBYTE_VERSION},
          {"backend", experts.backend},
          {"tactics", all_names(lists)},
          {"layout", experts.prepared_layout},
          {"mode", std::string(activation_mode_name(experts.mode))},
          {"activation", std::string(activation_function_name(spec.activation.function))},
          {"dtypes", fmt::format("x {}, rows {}, y {}", dtype_name(spec.x_dtype),
                                 dtype_name(experts.row_dtype), dtype_name(spec.y_dtype))},
          {"num_experts", std::to_string(spec.num_experts)},
          {"num_local_experts", std::to_string(experts.shard.num_local_experts)},
          {"hidden_size", std::to_string(spec.hidden_size)},
          {"intermediate_size", std::to_string(experts.shard.intermediate_size)},
          {"top_k", std::to_string(spec.top_k)},
          {"capacity", std::to_string(experts.capacity_tokens)},
          {"ep", std::to_string(plan.dispatch.ep_size)},
          {"scheme", plan.dispatch.dispatcher}};
}

}  // namespace halfbyte
