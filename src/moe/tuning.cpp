// SPDX-License-Identifier: Apache-2.0
#include "moe/tuning.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace halfbyte {
namespace {

constexpr std::string_view kFirstLine = "halfbyte tuning 2";
constexpr double kWorthwhile = 0.97;  // of the default's time
constexpr int kNumTimings = 11;       // of a tactic; their median counts
constexpr double kFailed = std::numeric_limits<double>::infinity();

std::int64_t next_bucket(std::int64_t bucket) {
  if (bucket < 256) return bucket * 2;
  if (bucket < 2048) return bucket + 256;
  return bucket < 4096 ? bucket + 512 : bucket * 2;
}

// FNV-1a: the same on every machine.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

// The part of a file that says what it is for.
std::string header_of(const TuningKey& key) {
  std::string text = fmt::format("{}\n", kFirstLine);
  for (const auto& [name, value] : key)
    text += fmt::format("{} = {}\n", name, value);
  return text + "\n";
}

bool has_line_break(std::string_view text) {
  return text.find_first_of("\r\n") != std::string_view::npos;
}

Status check_lines(const TuningKey& key, const TuningTable& table) {
  for (const auto& [name, value] : key) {
    if (has_line_break(name) || has_line_break(value))
      return {StatusCode::kInvalidArgument,
              fmt::format("tuning key {}: a line break cannot be kept", name)};
  }
  for (const auto& [bucket, tactic] : table) {
    if (tactic.empty() || has_line_break(tactic))
      return {StatusCode::kInvalidArgument,
              fmt::format("tactic of {} tokens: want one line of text", bucket)};
  }
  return {};
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "TOKENS TACTIC"; false when it is anything else.
bool read_line(std::string_view line, TuningTable& table) {
  std::int64_t bucket = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), bucket);
  const auto used = static_cast<std::size_t>(end - line.data());
  if (error != std::errc() || bucket < 1 || used + 1 >= line.size() || line[used] != ' ')
    return false;
  return table.emplace(bucket, line.substr(used + 1)).second;
}

// Lines up to the last, "end": a file that was cut off has none.
std::optional<TuningTable> read_table(std::string_view text) {
  TuningTable table;
  while (true) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line == "end") break;
    if (!read_line(line, table)) return std::nullopt;
  }
  if (!text.empty()) return std::nullopt;
  return table;
}

// What one tactic took so far.
class Timings {
 public:
  Timings(std::string name, bool usable) : name_(std::move(name)), usable_(usable) {}

  void add(TacticTimer& timer) {
    if (!usable_) return;
    const auto us = timer.microseconds(name_);
    usable_ = us.ok();
    if (usable_) us_.push_back(us.value());
  }
  double median() {
    if (!usable_) return kFailed;
    const auto middle = us_.begin() + static_cast<std::ptrdiff_t>(us_.size() / 2);
    std::nth_element(us_.begin(), middle, us_.end());
    return *middle;
  }

 private:
  std::string name_;
  bool usable_;
  std::vector<double> us_;
};

// The tactics take turns, so that what slows the machine down for a while slows all of them.
std::vector<double> medians_of(const std::vector<std::string>& names, TacticTimer& timer) {
  std::vector<Timings> timings;
  timings.reserve(names.size());
  for (const std::string& name : names)
    timings.emplace_back(name, timer.check(name).ok());
  for (int round = 0; round < kNumTimings; ++round) {
    for (Timings& tactic : timings)
      tactic.add(timer);
  }
  std::vector<double> medians;
  medians.reserve(names.size());
  for (Timings& tactic : timings)
    medians.push_back(tactic.median());
  return medians;
}

std::string path_of(const std::string& directory, const TuningKey& key) {
  return directory + "/" + tuning_file_name(key);
}

// A file beside `path`, then its name: readers see the old file or the new one.
Status replace_file(const std::string& path, const std::string& text) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << text;
    file.flush();
    if (!file) return {StatusCode::kNotFound, fmt::format("{} cannot be written", temporary)};
  }
  if (std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  std::remove(temporary.c_str());
  return {StatusCode::kNotFound, fmt::format("{} cannot be replaced", path)};
}

}  // namespace

std::vector<std::int64_t> token_buckets(std::int64_t capacity_tokens) {
  std::vector<std::int64_t> buckets;
  for (std::int64_t bucket = 1; bucket < capacity_tokens; bucket = next_bucket(bucket))
    buckets.push_back(bucket);
  if (capacity_tokens > 0) buckets.push_back(capacity_tokens);
  return buckets;
}

std::int64_t bucket_of(std::span<const std::int64_t> buckets, std::int64_t num_tokens) {
  return *std::lower_bound(buckets.begin(), buckets.end(), num_tokens);
}

std::size_t pick_tactic(std::span<const double> median_us, std::size_t default_tactic) {
  const auto fastest = std::min_element(median_us.begin(), median_us.end());
  const bool worthwhile = *fastest <= kWorthwhile * median_us[default_tactic];
  if (!worthwhile || std::isinf(*fastest)) return default_tactic;
  return static_cast<std::size_t>(fastest - median_us.begin());
}

const std::string* find_tactic(const TuningTable& table, std::int64_t num_tokens) {
  const auto bucket = table.lower_bound(num_tokens);
  return bucket == table.end() ? nullptr : &bucket->second;
}

Result<TuningTable> measure_tactics(std::span<const TacticList> lists, TacticTimer& timer) {
  TuningTable table;
  for (const TacticList& list : lists) {
    std::size_t picked = 0;
    if (list.names.size() > 1) {
      HALFBYTE_RETURN_IF_ERROR(timer.set_step(list.num_tokens, list.names.front()));
      picked = pick_tactic(medians_of(list.names, timer), 0);
    }
    table.emplace(list.num_tokens, list.names[picked]);
  }
  return table;
}

std::string tuning_file_name(const TuningKey& key) {
  return fmt::format("tuning-{:016x}.txt", hash_of(header_of(key)));
}

Result<TuningTable> read_tuning(const std::string& directory, const TuningKey& key) {
  const std::string path = path_of(directory, key);
  const std::optional<std::string> text = read_file(path);
  if (!text.has_value()) return Status(StatusCode::kNotFound, fmt::format("{}: no file", path));
  const std::string header = header_of(key);
  if (!text->starts_with(header)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} was written for another key or version", path));
  }
  std::optional<TuningTable> table = read_table(std::string_view(*text).substr(header.size()));
  if (table.has_value()) return *std::move(table);
  return Status(StatusCode::kCorruptData,
                fmt::format("{} is damaged: want lines of tokens and tactic, then \"end\"", path));
}

Status write_tuning(const std::string& directory, const TuningKey& key, const TuningTable& table) {
  HALFBYTE_RETURN_IF_ERROR(check_lines(key, table));
  const std::string path = path_of(directory, key);
  const std::string header = header_of(key);
  const std::optional<std::string> before = read_file(path);
  if (before.has_value() && !before->starts_with(header)) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{} was written for another key and stays as it is", path)};
  }
  std::string text = header;
  for (const auto& [bucket, tactic] : table)
    text += fmt::format("{} {}\n", bucket, tactic);
  return replace_file(path, text + "end\n");
}

}  // namespace halfbyte
