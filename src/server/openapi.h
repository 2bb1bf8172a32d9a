// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_OPENAPI_H_
#define HALFBYTE_SERVER_OPENAPI_H_

#include "server/http.h"

namespace halfbyte::server {

/// docs/openapi.json, compiled in.
HttpResponse openapi_response();

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_OPENAPI_H_
