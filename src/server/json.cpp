// SPDX-License-Identifier: Apache-2.0
#include "server/json.h"

#include <fmt/format.h>

#include <limits>
#include <vector>

#include "base/json_error.h"
#include "text/json_nesting.h"
#include "text/utf8.h"

namespace halfbyte::server {
namespace {

constexpr std::size_t kMaxDepth = 64;
constexpr std::int64_t kMaxMembers = 1024;
// A byte of a body may be 40 of memory once it is built: "{}," is an object.
constexpr std::int64_t kMaxNodes = std::int64_t{1} << 18;
constexpr std::int64_t kMaxValues = std::int64_t{1} << 22;

ApiError invalid_json(std::string message) {
  return {400, std::move(message), "", "invalid_json"};
}

// Follows brackets, and counts them, members and values outside strings, before anything is built.
class ShapeCheck {
 public:
  std::optional<std::string> run(std::string_view text) {
    for (const char c : text) {
      const bool is_text = nesting_.in_string();
      nesting_.push(c);
      if (is_text) continue;
      if (auto problem = step(c)) return problem;
    }
    return std::nullopt;
  }

 private:
  std::optional<std::string> step(char c) {
    if (c == '{' || c == '[') members_.push_back(0);
    if ((c == '}' || c == ']') && !members_.empty()) members_.pop_back();
    num_nodes_ += c == '{' || c == '[' ? 1 : 0;
    num_values_ += c == ',' ? 1 : 0;
    if (members_.size() > kMaxDepth) {
      return fmt::format("the body is nested deeper than {} levels", kMaxDepth);
    }
    if (c == ':' && !members_.empty() && ++members_.back() > kMaxMembers) {
      return fmt::format("an object of the body has more than {} members", kMaxMembers);
    }
    if (num_nodes_ > kMaxNodes) {
      return fmt::format("the body has more than {} objects and lists", kMaxNodes);
    }
    if (num_values_ >= kMaxValues) {
      return fmt::format("the body has more than {} values", kMaxValues);
    }
    return std::nullopt;
  }

  std::vector<std::int64_t> members_;  // of each open bracket
  std::int64_t num_nodes_ = 0;
  std::int64_t num_values_ = 0;  // less one for each list or object
  JsonNesting nesting_;
};

}  // namespace

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpResponse json_response(const Json& json, int status) {
  return {.status = status, .body = to_text(json)};
}

std::variant<Json, ApiError> parse_object(std::string_view body) {
  if (const std::size_t bad = find_invalid_utf8(body); bad != std::string_view::npos) {
    return invalid_json(fmt::format("the body is not UTF-8 at byte {}", bad));
  }
  if (auto problem = ShapeCheck().run(body)) return invalid_json(*problem);
  try {
    Json json = Json::parse(body);
    if (json.is_object()) return json;
    return invalid_json(fmt::format("the body is {}, want an object", json.type_name()));
  } catch (const Json::exception& e) {
    return invalid_json(fmt::format("the body is not JSON: {}", plain_json_error(e.what())));
  }
}

const Json* FieldReader::find(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> FieldReader::boolean(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail_type(name, "true or false", *value);
  return std::nullopt;
}

std::optional<std::string> FieldReader::string(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  fail_type(name, "a string", *value);
  return std::nullopt;
}

std::optional<std::int64_t> FieldReader::integer(std::string_view name,
                                                 std::int64_t low,
                                                 std::int64_t high) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) {
    fail_type(name, "an integer", *value);
    return std::nullopt;
  }
  const bool fits = !value->is_number_unsigned() ||
                    value->get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max();
  if (fits && value->get<std::int64_t>() >= low && value->get<std::int64_t>() <= high) {
    return value->get<std::int64_t>();
  }
  fail(name, fmt::format("{} is {}, want {} to {}", path_of(name), value->dump(), low, high));
  return std::nullopt;
}

std::optional<double> FieldReader::number(std::string_view name,
                                          double low,
                                          double high,
                                          bool above_low) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    fail_type(name, "a number", *value);
    return std::nullopt;
  }
  const auto given = value->get<double>();
  if ((above_low ? given > low : given >= low) && given <= high) return given;
  fail(name, fmt::format("{} is {}, want {} {} to {}", path_of(name), value->dump(),
                         above_low ? "above" : "from", low, high));
  return std::nullopt;
}

const Json* FieldReader::array(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr || value->is_array()) return value;
  fail_type(name, "an array", *value);
  return nullptr;
}

const Json* FieldReader::object(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr || value->is_object()) return value;
  fail_type(name, "an object", *value);
  return nullptr;
}

std::string FieldReader::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void FieldReader::fail(std::string_view name, std::string message, std::string code) {
  if (!error_) error_ = ApiError{400, std::move(message), path_of(name), std::move(code)};
}

void FieldReader::fail_type(std::string_view name, std::string_view wanted, const Json& got) {
  fail(name, fmt::format("{} is {}, want {}", path_of(name),
                         got.is_number() ? got.dump() : "of type " + std::string(got.type_name()),
                         wanted));
}

void FieldReader::refuse(std::string_view name) {
  fail(name, fmt::format("{} is not supported: leave it out", path_of(name)), "unsupported_value");
}

bool check_object(const Json& element, const std::string& path, std::optional<ApiError>& error) {
  if (element.is_object()) return true;
  FieldReader(element, "", error).fail_type(path, "an object", element);
  return false;
}

}  // namespace halfbyte::server
