// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

namespace halfbyte {
namespace {

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name.find("..") == std::string_view::npos &&
         name.find('/') == std::string_view::npos && name.find('\\') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

/// Takes "weight_map" of the top level and skips everything else.
class IndexHandler {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  SafetensorsIndex index;
  std::string error;
  bool map_seen = false;

  bool start_object(std::size_t /*size*/) {
    ++depth_;
    return depth_ < 3 || !in_map_ || not_a_string();
  }
  bool end_object() {
    --depth_;
    if (depth_ == 1) in_map_ = false;
    return true;
  }
  bool start_array(std::size_t /*size*/) {
    ++depth_;
    if (depth_ == 1) return fail("want a JSON object");
    return !in_map_ || not_a_string();
  }
  bool end_array() {
    --depth_;
    return true;
  }
  bool key(string_t& name) {
    if (depth_ == 1) {
      in_map_ = name == "weight_map";
      if (in_map_ && map_seen) return fail("weight_map is there twice");
      map_seen |= in_map_;
    } else if (in_map_) {
      if (!names_.insert(name).second) return fail(fmt::format("'{}' is listed twice", name));
      index.tensors.emplace_back(name, 0);
    }
    return true;
  }
  bool string(string_t& file) {
    if (!in_map_) return true;
    if (depth_ != 2) return not_a_string();
    if (!is_plain_file_name(file)) {
      return fail(fmt::format("'{}' is not the plain name of a file in this directory", file));
    }
    const auto [it, is_new] =
        file_idx_.try_emplace(file, static_cast<std::int32_t>(index.files.size()));
    if (is_new) index.files.push_back(file);
    index.tensors.back().second = it->second;
    return true;
  }
  bool null() { return scalar(); }
  bool boolean(bool /*value*/) { return scalar(); }
  bool number_integer(number_integer_t /*value*/) { return scalar(); }
  bool number_unsigned(number_unsigned_t /*value*/) { return scalar(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) { return scalar(); }
  bool binary(binary_t& /*value*/) { return scalar(); }
  bool parse_error(std::size_t position,
                   const std::string& /*token*/,
                   const nlohmann::json::exception& /*exception*/) {
    return fail(fmt::format("not JSON at byte {}", position));
  }

 private:
  bool fail(std::string what) {
    if (error.empty()) error = std::move(what);
    return false;
  }
  bool scalar() {
    if (depth_ == 0) return fail("want a JSON object");
    return !in_map_ || not_a_string();
  }
  bool not_a_string() {
    return fail(
        depth_ <= 1 || index.tensors.empty()
            ? "weight_map: want an object of strings"
            : fmt::format("weight_map: want a file name for '{}'", index.tensors.back().first));
  }

  int depth_ = 0;
  bool in_map_ = false;
  std::unordered_map<std::string, std::int32_t> file_idx_;
  std::unordered_set<std::string> names_;
};

}  // namespace

Result<SafetensorsIndex> read_safetensors_index(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    return Status(StatusCode::kCorruptData, "not JSON: it contains a zero byte");
  }
  IndexHandler handler;
  if (!nlohmann::json::sax_parse(text, &handler)) {
    return Status(StatusCode::kCorruptData, handler.error.empty() ? "not JSON" : handler.error);
  }
  if (!handler.map_seen || handler.index.tensors.empty()) {
    return Status(StatusCode::kCorruptData, "no weight_map, or an empty one");
  }
  return std::move(handler.index);
}

}  // namespace halfbyte
