// SPDX-License-Identifier: Apache-2.0
#include "golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json_error.h"
#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"

namespace halfbyte::tool {
namespace {

using nlohmann::json;

// The elements of one tensor of a file, copied.
template <typename T>
Result<std::vector<T>> read_tensor(const MappedFile& file,
                                   std::span<const SafetensorsEntry> entries,
                                   const std::string& name,
                                   DType dtype) {
  const auto entry = std::find_if(entries.begin(), entries.end(),
                                  [&name](const auto& e) { return e.name == name; });
  if (entry == entries.end()) {
    return Status(StatusCode::kNotFound, fmt::format("no tensor {}", name));
  }
  if (entry->dtype != dtype) {
    return Status(
        StatusCode::kCorruptData,
        fmt::format("{}: dtype {}, want {}", name, dtype_name(entry->dtype), dtype_name(dtype)));
  }
  std::vector<T> values((entry->end - entry->begin) / sizeof(T));
  if (!values.empty()) {
    std::memcpy(values.data(), file.bytes().data() + entry->begin, values.size() * sizeof(T));
  }
  return values;
}

Result<GoldenLogits> read_logits(const MappedFile& file,
                                 const std::string& mode,
                                 std::int64_t vocab_size) {
  HALFBYTE_ASSIGN_OR_RETURN(const auto entries, read_safetensors_header(file.bytes()));
  HALFBYTE_ASSIGN_OR_RETURN(const auto tokens,
                            read_tensor<std::int32_t>(file, entries, "tokens", DType::kI32));
  HALFBYTE_ASSIGN_OR_RETURN(const auto offsets,
                            read_tensor<std::int32_t>(file, entries, "offsets", DType::kI32));
  GoldenLogits golden;
  HALFBYTE_ASSIGN_OR_RETURN(golden.logits,
                            read_tensor<float>(file, entries, "logits." + mode, DType::kF32));
  const std::size_t num_rows = golden.logits.size() / static_cast<std::size_t>(vocab_size);
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    const auto begin = static_cast<std::size_t>(offsets[i - 1]);
    const auto end = static_cast<std::size_t>(offsets[i]);
    if (begin >= end || end > tokens.size()) {
      return Status(StatusCode::kCorruptData,
                    fmt::format("offsets {} to {}, want ascending ones within {} tokens", begin,
                                end, tokens.size()));
    }
    if (end > num_rows) break;  // this mode has the first sequences only
    golden.sequences.emplace_back(tokens.begin() + offsets[i - 1], tokens.begin() + offsets[i]);
  }
  return golden;
}

// log(sum(exp(row))), and the row's own largest value taken out first.
double log_sum_exp(std::span<const float> row) {
  const auto largest = static_cast<double>(*std::max_element(row.begin(), row.end()));
  double sum = 0.0;
  for (const float logit : row) {
    sum += std::exp(static_cast<double>(logit) - largest);
  }
  return largest + std::log(sum);
}

double kl_divergence(std::span<const float> golden, std::span<const float> ours) {
  const double golden_norm = log_sum_exp(golden);
  const double our_norm = log_sum_exp(ours);
  double kl = 0.0;
  for (std::size_t i = 0; i < golden.size(); ++i) {
    const double log_p = static_cast<double>(golden[i]) - golden_norm;
    const double log_q = static_cast<double>(ours[i]) - our_norm;
    kl += std::exp(log_p) * (log_p - log_q);
  }
  return kl;
}

}  // namespace

Result<GoldenLogits> read_golden_logits(const std::string& directory,
                                        const std::string& mode,
                                        std::int64_t vocab_size) {
  const std::string path = directory + "/golden_logits.safetensors";
  HALFBYTE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  auto golden = read_logits(file, mode, vocab_size);
  if (!golden.ok()) return golden.take_status().with_context(path);
  return golden;
}

Result<std::vector<GoldenGreedy>> read_golden_greedy(const std::string& directory,
                                                     const std::string& mode) {
  const std::string path = directory + "/golden.json";
  std::ifstream file(path);
  if (!file) return Status(StatusCode::kNotFound, fmt::format("{}: cannot be read", path));
  try {
    std::vector<GoldenGreedy> greedy;
    const json document = json::parse(file);
    for (const json& problem : document.at("greedy")) {
      greedy.push_back({problem.at("prompt_ids").get<std::vector<std::int32_t>>(),
                        problem.at(mode).get<std::vector<std::int32_t>>()});
    }
    return greedy;
  } catch (const json::exception& e) {
    return Status(StatusCode::kCorruptData, fmt::format("{}: want greedy: [{{prompt_ids, {}}}]: {}",
                                                        path, mode, plain_json_error(e.what())));
  }
}

double LogitDistance::kl_mean() const {
  return kl_positions > 0 ? kl_sum / static_cast<double>(kl_positions) : 0.0;
}

double LogitDistance::logit_rel_max() const {
  return largest_golden > 0.0 ? largest_difference / largest_golden : 0.0;
}

void LogitDistance::add(std::span<const float> golden,
                        std::span<const float> ours,
                        std::int64_t vocab_size) {
  const auto vocab = static_cast<std::size_t>(vocab_size);
  for (std::size_t at = 0; at + vocab < golden.size(); at += vocab) {
    const double kl = kl_divergence(golden.subspan(at, vocab), ours.subspan(at, vocab));
    kl_sum += kl;
    kl_max = std::max(kl_max, kl);
    ++kl_positions;
  }
  for (std::size_t i = 0; i < golden.size(); ++i) {
    const auto want = static_cast<double>(golden[i]);
    largest_difference =
        std::max(largest_difference, std::abs(static_cast<double>(ours[i]) - want));
    largest_golden = std::max(largest_golden, std::abs(want));
  }
}

Result<LogitDistance> measure(Engine& engine, const GoldenLogits& golden) {
  const std::int64_t vocab_size = engine.info().vocab_size;
  std::span<const float> rows = golden.logits;
  LogitDistance distance;
  for (const std::vector<std::int32_t>& sequence : golden.sequences) {
    HALFBYTE_ASSIGN_OR_RETURN(const std::vector<float> ours, engine.score(sequence));
    distance.add(rows.first(ours.size()), ours, vocab_size);
    rows = rows.subspan(ours.size());
  }
  return distance;
}

}  // namespace halfbyte::tool
