// SPDX-License-Identifier: Apache-2.0
//
// Errors in the form OpenAI's clients expect.
#ifndef HALFBYTE_SERVER_API_ERROR_H_
#define HALFBYTE_SERVER_API_ERROR_H_

#include <optional>
#include <string>

#include "halfbyte/status.h"
#include "server/http.h"

namespace halfbyte::server {

/// A refusal. Empty `param` and `code` are null in JSON.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // path of the field: "messages[2].content"
  std::string code;   // "context_length_exceeded", "unsupported_value", ...
};

/// "invalid_request_error", ... of a status.
std::string_view error_type(int status);
/// {"error": {message, type, param, code}}
std::string error_body(const ApiError& error);
/// With the headers that the status asks for: Retry-After, WWW-Authenticate.
HttpResponse error_response(const ApiError& error);
/// What the engine's or the text's refusal is to a client; `param` is the field it is about.
ApiError to_api_error(const Status& status, std::string param);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_API_ERROR_H_
