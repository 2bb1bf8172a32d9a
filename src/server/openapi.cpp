// SPDX-License-Identifier: Apache-2.0
#include "server/openapi.h"

#include "server/openapi_json.h"

namespace halfbyte::server {

HttpResponse openapi_response() {
  return {.status = 200, .body = std::string(kOpenApiJson)};
}

}  // namespace halfbyte::server
