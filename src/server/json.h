// SPDX-License-Identifier: Apache-2.0
//
// JSON of requests and responses. Objects keep their order, which reaches prompts through
// templates.
#ifndef HALFBYTE_SERVER_JSON_H_
#define HALFBYTE_SERVER_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "server/api_error.h"

namespace halfbyte::server {

using Json = nlohmann::ordered_json;

/// Compact text; never fails: what is not UTF-8 becomes U+FFFD.
std::string to_text(const Json& json);

/// A response whose body is `json`.
HttpResponse json_response(const Json& json, int status = 200);

/// The object in a body, or 400 `invalid_json`: not UTF-8, not JSON, not an object, nested deeper
/// than 64, or an object of more than 1024 members (looking a name up takes time in each of them).
std::variant<Json, ApiError> parse_object(std::string_view body);

/// Reads the fields of one object; the first violation is kept in `error` and names its field.
/// null equals absent. A view: object and error must outlive it.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string path, std::optional<ApiError>& error)
      : object_(object), path_(std::move(path)), error_(error) {}

  /// Null when absent.
  const Json* find(std::string_view name) const;
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::string> string(std::string_view name);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low, std::int64_t high);
  /// [low, high], or (low, high] with `above_low`.
  std::optional<double> number(std::string_view name, double low, double high, bool above_low);
  const Json* array(std::string_view name);
  const Json* object(std::string_view name);

  /// "messages[2].content" of "content".
  std::string path_of(std::string_view name) const;
  void fail(std::string_view name, std::string message, std::string code = "");
  void fail_type(std::string_view name, std::string_view wanted, const Json& got);
  /// With code `unsupported_value`.
  void refuse(std::string_view name);
  bool ok() const { return !error_.has_value(); }

 private:
  const Json& object_;
  std::string path_;
  std::optional<ApiError>& error_;
};

/// Whether an element of a list, at `path`, is an object; else 400 in `error`, unless there is one.
bool check_object(const Json& element, const std::string& path, std::optional<ApiError>& error);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_JSON_H_
