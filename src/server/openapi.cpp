// SPDX-License-Identifier: Apache-2.0
#include "server/openapi.h"

#include <string_view>

#include "server/openapi_json.h"

namespace halfbyte::server {

HttpResponse openapi_response() {
  HttpResponse response{.status = 200, .body = ""};
  for (const std::string_view piece : kOpenApiPieces) {
    response.body += piece;
  }
  return response;
}

}  // namespace halfbyte::server
