// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/checked.h"
#include "checkpoint/json_text.h"

namespace halfbyte {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference reader's limit
constexpr int kMaxDepth = 4;
constexpr std::string_view kLfsPointer = "version https://git-lfs";

Status corrupt(std::string message) {
  return Status(StatusCode::kCorruptData, std::move(message));
}

Status truncated(std::uint64_t wanted, std::uint64_t got) {
  return corrupt(fmt::format("truncated: header needs {} bytes, file has {}", wanted, got));
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    if (dtype_name(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

/// Turns the events of the JSON parser into entries. Every function returns false to stop.
class HeaderHandler {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  std::vector<SafetensorsEntry> entries;
  std::string error;

  bool start_object(std::size_t /*size*/) {
    if (!enter()) return false;
    if (depth_ == 1) return true;
    if (depth_ == 2) return in_metadata_ || start_entry();
    return in_metadata_ || field_ != Field::kOther ? fail("want no object here") : true;
  }
  bool end_object() {
    --depth_;
    if (depth_ != 1) return true;
    if (in_metadata_) {
      in_metadata_ = false;
      metadata_keys_.clear();
      return true;
    }
    return finish_entry();
  }
  bool start_array(std::size_t /*size*/) {
    if (!enter()) return false;
    if (depth_ == 1) return fail("the header is not an object");
    if (depth_ == 2 || in_metadata_) return fail("want an object, got an array");
    if (depth_ > 3 && field_ != Field::kOther) return fail("want numbers, got an array");
    if (field_ == Field::kDtype) return fail("dtype: want a string, got an array");
    return true;
  }
  bool end_array() {
    --depth_;
    return true;
  }
  bool key(string_t& name) {
    if (depth_ == 1) return start_name(name);
    if (in_metadata_) {
      return metadata_keys_.insert(name).second || fail(fmt::format("duplicate key '{}'", name));
    }
    return depth_ == 2 ? start_field(name) : true;
  }
  bool string(string_t& value) {
    if (in_metadata_ && depth_ == 2) return true;
    if (depth_ < 2) return fail("want an object, got a string");
    if (field_ == Field::kOther) return true;
    if (field_ != Field::kDtype) return fail("want numbers, got a string");
    const std::optional<DType> dtype = parse_dtype(value);
    if (!dtype) return fail(fmt::format("unknown dtype '{}'", value));
    entries.back().dtype = *dtype;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) {
    if (!takes_numbers()) return ignored("a number");
    if (field_ == Field::kOffsets) {
      offsets_.push_back(value);
      return offsets_.size() <= 2 || fail("data_offsets: want 2 numbers");
    }
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return fail(fmt::format("shape: dimension {} is not below 2^63", value));
    }
    entries.back().shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool number_integer(number_integer_t value) {
    if (!takes_numbers()) return ignored("a number");
    return fail(fmt::format("want non-negative integers, got {}", value));
  }
  bool number_float(number_float_t /*value*/, const string_t& text) {
    if (!takes_numbers()) return ignored("a number");
    return fail(fmt::format("want non-negative integers below 2^63, got {}", text));
  }
  bool null() {
    if (depth_ == 1 && in_metadata_) {
      in_metadata_ = false;
      return true;
    }
    return ignored("null");
  }
  bool boolean(bool /*value*/) { return ignored("a boolean"); }
  bool binary(binary_t& /*value*/) { return ignored("binary data"); }
  bool parse_error(std::size_t position,
                   const std::string& /*token*/,
                   const nlohmann::json::exception& /*exception*/) {
    entry_open_ = false;
    return fail(fmt::format("not UTF-8 JSON at byte {}", position));
  }

 private:
  enum class Field { kNone, kDtype, kShape, kOffsets, kOther };

  bool fail(std::string what) {
    if (!error.empty()) return false;
    if (in_metadata_) {
      error = fmt::format("__metadata__: {}", what);
    } else if (entry_open_) {
      error = fmt::format("tensor '{}': {}", entries.back().name, what);
    } else {
      error = std::move(what);
    }
    return false;
  }
  bool enter() {
    ++depth_;
    return depth_ <= kMaxDepth || fail(fmt::format("nested deeper than {}", kMaxDepth));
  }
  bool takes_numbers() const {
    return depth_ == 3 && (field_ == Field::kShape || field_ == Field::kOffsets);
  }
  /// A scalar where no known field wants one: fine below an unknown field only.
  bool ignored(std::string_view what) {
    if (depth_ >= 2 && !in_metadata_ && field_ == Field::kOther) return true;
    const std::string_view wanted = in_metadata_ && depth_ == 2 ? "a string"
                                    : depth_ < 2                ? "an object"
                                    : field_ == Field::kDtype   ? "dtype: a string"
                                                                : "an array of numbers";
    return fail(fmt::format("want {}, got {}", wanted, what));
  }
  bool start_name(const std::string& name) {
    if (name == "__metadata__") {
      if (metadata_seen_) return fail("duplicate name '__metadata__'");
      metadata_seen_ = in_metadata_ = true;
      return true;
    }
    entries.emplace_back();
    entries.back().name = name;
    entry_open_ = true;
    return true;
  }
  bool start_entry() {
    seen_ = {};
    field_ = Field::kNone;
    offsets_.clear();
    return true;
  }
  bool start_field(std::string_view name) {
    field_ = name == "dtype"          ? Field::kDtype
             : name == "shape"        ? Field::kShape
             : name == "data_offsets" ? Field::kOffsets
                                      : Field::kOther;
    if (field_ == Field::kOther) return true;
    bool& seen = seen_[static_cast<std::size_t>(field_)];
    if (seen) return fail(fmt::format("duplicate '{}'", name));
    seen = true;
    return true;
  }
  bool finish_entry() {
    constexpr std::array<std::pair<Field, std::string_view>, 3> kWanted = {
        {{Field::kDtype, "dtype"}, {Field::kShape, "shape"}, {Field::kOffsets, "data_offsets"}}};
    for (const auto& [field, name] : kWanted) {
      if (!seen_[static_cast<std::size_t>(field)]) return fail(fmt::format("no '{}'", name));
    }
    if (offsets_.size() != 2) return fail("data_offsets: want 2 numbers");
    entries.back().begin = offsets_[0];
    entries.back().end = offsets_[1];
    entry_open_ = false;
    return true;
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  bool metadata_seen_ = false;
  bool entry_open_ = false;
  Field field_ = Field::kNone;
  std::array<bool, 5> seen_ = {};
  std::vector<std::uint64_t> offsets_;
  std::unordered_set<std::string> metadata_keys_;
};

std::optional<std::uint64_t> bytes_of(const SafetensorsEntry& entry) {
  std::uint64_t count = 1;
  for (const std::int64_t dim : entry.shape) {
    const auto product = checked_mul(count, static_cast<std::uint64_t>(dim));
    if (!product) return std::nullopt;
    count = *product;
  }
  const auto bits = checked_mul(count, static_cast<std::uint64_t>(dtype_bits(entry.dtype)));
  if (!bits) return std::nullopt;
  return *bits / 8 + (*bits % 8 != 0 ? 1 : 0);
}

Status check_entry(const SafetensorsEntry& entry) {
  const auto bytes = bytes_of(entry);
  if (!bytes) return corrupt(fmt::format("tensor '{}': its size overflows 64 bits", entry.name));
  if (entry.begin > entry.end) {
    return corrupt(fmt::format("tensor '{}': data_offsets [{}, {}] run backwards", entry.name,
                               entry.begin, entry.end));
  }
  if (entry.end - entry.begin != *bytes) {
    return corrupt(fmt::format("tensor '{}': {} {} needs {} bytes, data_offsets give {}",
                               entry.name, dtype_name(entry.dtype),
                               fmt::format("[{}]", fmt::join(entry.shape, ", ")), *bytes,
                               entry.end - entry.begin));
  }
  return {};
}

Status check_names(const std::vector<SafetensorsEntry>& entries) {
  std::unordered_set<std::string_view> names;
  names.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) {
    if (!names.insert(entry.name).second) {
      return corrupt(fmt::format("duplicate name '{}'", entry.name));
    }
  }
  return {};
}

/// Offsets must tile the data exactly: no overlap, no hole, no tail.
Status check_coverage(std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t position = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != position) {
      return corrupt(fmt::format(
          "tensor '{}': {} at byte {} of the data, want it to start at {}", entry.name,
          entry.begin < position ? "overlaps another" : "leaves a hole", entry.begin, position));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    return corrupt(fmt::format("{} bytes after the last tensor", data_bytes - position));
  }
  return {};
}

Result<std::string_view> header_text(std::span<const std::uint8_t> file) {
  if (as_text(file).starts_with(kLfsPointer)) {
    return corrupt("is a Git LFS pointer, not the tensors: fetch them with `git lfs pull`");
  }
  if (file.size() < 8) {
    return corrupt(fmt::format("truncated: want at least 8 bytes, file has {}", file.size()));
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i)
    length |= static_cast<std::uint64_t>(file[i]) << (8 * i);
  if (length > kMaxHeaderBytes) {
    return corrupt(fmt::format("header of {} bytes, at most {} are allowed: not safetensors?",
                               length, kMaxHeaderBytes));
  }
  if (length > file.size() - 8) return truncated(length + 8, file.size());
  return as_text(file).substr(8, length);
}

Result<std::vector<SafetensorsEntry>> parse_header(std::string_view text) {
  const std::size_t last = text.find_last_not_of(' ');
  text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (text.empty() || text.front() != '{' || text.back() != '}') {
    return corrupt("the header is not a JSON object followed by spaces only");
  }
  if (text.find('\0') != std::string_view::npos) return corrupt("header: a zero byte in the JSON");
  HeaderHandler handler;
  // One entry takes at least some 60 bytes of header: a bound that the file itself pays for.
  handler.entries.reserve(text.size() / 100);
  if (!nlohmann::json::sax_parse(text, &handler)) return corrupt("header: " + handler.error);
  return std::move(handler.entries);
}

}  // namespace

Result<std::vector<SafetensorsEntry>> read_safetensors_header(std::span<const std::uint8_t> file) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::string_view text, header_text(file));
  HALFBYTE_ASSIGN_OR_RETURN(std::vector<SafetensorsEntry> entries, parse_header(text));
  HALFBYTE_RETURN_IF_ERROR(check_names(entries));
  const std::uint64_t data_begin = 8 + text.size();
  const std::uint64_t data_bytes = file.size() - data_begin;
  std::uint64_t needed = 0;
  for (const SafetensorsEntry& entry : entries) {
    HALFBYTE_RETURN_IF_ERROR(check_entry(entry));
    needed = std::max(needed, entry.end);
  }
  if (needed > data_bytes) {
    const auto wanted = checked_add(needed, data_begin);
    return truncated(wanted.value_or(std::numeric_limits<std::uint64_t>::max()), file.size());
  }
  HALFBYTE_RETURN_IF_ERROR(check_coverage(entries, data_bytes));
  for (SafetensorsEntry& entry : entries) {
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  return entries;
}

}  // namespace halfbyte
