// SPDX-License-Identifier: Apache-2.0
//
// Reading typed values out of a parsed config.json; only the .cpp files of this folder include it.
#ifndef HALFBYTE_CHECKPOINT_CONFIG_READER_H_
#define HALFBYTE_CHECKPOINT_CONFIG_READER_H_

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/model_config.h"

namespace halfbyte {

/// Reads typed values under any of several keys, first found wins; null counts as absent. The first
/// failure is kept while reading goes on, so a reader needs one check at its end.
class ConfigReader {
 public:
  /// `strict` is false for architectures that are only inspected: there a missing size stays 0.
  ConfigReader(const nlohmann::json& object, bool strict) : object_(object), strict_(strict) {}

  using Keys = std::initializer_list<std::string_view>;

  const nlohmann::json& object() const { return object_; }
  bool strict() const { return strict_; }
  const nlohmann::json* find(Keys keys) const {
    for (const std::string_view key : keys) {
      const auto it = object_.find(key);
      if (it != object_.end() && !it->is_null()) return &*it;
    }
    return nullptr;
  }
  std::string_view name_of(Keys keys) const { return *keys.begin(); }

  /// A size; an error names the first key when none is there.
  void required(Keys keys, std::int64_t& out) {
    if (find(keys) == nullptr && strict_) {
      fail(fmt::format("no '{}'", fmt::join(keys, "' or '")));
      return;
    }
    optional(keys, out);
    if (strict_ && ok() && out <= 0) {
      fail(fmt::format("{}: want > 0, got {}", name_of(keys), out));
    }
  }
  void optional(Keys keys, std::int64_t& out) {
    const nlohmann::json* value = find(keys);
    if (value == nullptr) return;
    if (!value->is_number_integer() || *value < 0 || *value > (std::int64_t{1} << 40)) {
      fail(fmt::format("{}: want a non-negative integer, got {}", name_of(keys), value->dump()));
      return;
    }
    out = value->get<std::int64_t>();
  }
  void optional(Keys keys, double& out) {
    const nlohmann::json* value = find(keys);
    if (value == nullptr) return;
    if (!value->is_number()) {
      fail(fmt::format("{}: want a number, got {}", name_of(keys), value->dump()));
      return;
    }
    out = value->get<double>();
  }
  void optional(Keys keys, std::optional<double>& out) {
    const nlohmann::json* value = find(keys);
    if (value == nullptr) return;
    if (value->is_number()) {
      out = value->get<double>();
    } else {
      fail(fmt::format("{}: want a number, got {}", name_of(keys), value->dump()));
    }
  }
  void optional(Keys keys, bool& out) {
    const nlohmann::json* value = find(keys);
    if (value == nullptr) return;
    if (!value->is_boolean()) {
      fail(fmt::format("{}: want true or false, got {}", name_of(keys), value->dump()));
      return;
    }
    out = value->get<bool>();
  }
  void optional(Keys keys, std::string& out) {
    const nlohmann::json* value = find(keys);
    if (value == nullptr) return;
    if (!value->is_string()) {
      fail(fmt::format("{}: want a string, got {}", name_of(keys), value->dump()));
      return;
    }
    out = value->get<std::string>();
  }
  void optional(Keys keys, std::vector<std::int64_t>& out) {
    const nlohmann::json* value = find(keys);
    if (value == nullptr) return;
    bool good = value->is_array();
    for (const nlohmann::json& item : good ? *value : nlohmann::json::array()) {
      good = good && item.is_number_integer();
    }
    if (!good) {
      fail(fmt::format("{}: want a list of integers, got {}", name_of(keys), value->dump()));
      return;
    }
    out = value->get<std::vector<std::int64_t>>();
  }

  void fail(std::string what, StatusCode code = StatusCode::kCorruptData) {
    if (ok()) status_ = Status(code, std::move(what));
  }
  void unsupported(std::string what) {
    // An architecture that is only inspected may use what we cannot run.
    if (strict_) fail(std::move(what), StatusCode::kUnsupported);
  }
  bool ok() const { return status_.ok(); }
  Status take_status() { return std::move(status_); }

 private:
  const nlohmann::json& object_;
  bool strict_;
  Status status_;
};

/// Both spellings of the rotary settings (rope_config.cpp).
void read_rope(ConfigReader& reader, ModelConfig& config, NoticeSink& notices);
/// Experts, router and activation (moe_config.cpp).
void read_moe(ConfigReader& reader, ModelConfig& config);

}  // namespace halfbyte

#endif  // HALFBYTE_CHECKPOINT_CONFIG_READER_H_
