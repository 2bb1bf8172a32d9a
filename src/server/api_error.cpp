// SPDX-License-Identifier: Apache-2.0
#include "server/api_error.h"

#include "server/json.h"

namespace halfbyte::server {
namespace {

Json or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 503:
      return "service_unavailable";
    default:
      return "invalid_request_error";
  }
}

std::string error_body(const ApiError& error) {
  const Json body = {{"message", error.message},
                     {"type", error_type(error.status)},
                     {"param", or_null(error.param)},
                     {"code", or_null(error.code)}};
  return to_text({{"error", body}});
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{.status = error.status, .body = error_body(error)};
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

ApiError to_api_error(const Status& status, std::string param) {
  const std::string message(status.message());
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported:
      return {400, message, std::move(param), ""};
    case StatusCode::kDeviceError:
    case StatusCode::kTransportError:
    case StatusCode::kCancelled:
      return {503, message, "", ""};
    default:
      return {500, status.to_string(), "", ""};
  }
}

}  // namespace halfbyte::server
