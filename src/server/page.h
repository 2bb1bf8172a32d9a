// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_PAGE_H_
#define HALFBYTE_SERVER_PAGE_H_

#include <string>

#include "server/http.h"

namespace halfbyte::server {

/// The chat page (page/index.html, compiled in). It asks this server alone, and runs and styles
/// only what carries `nonce`, which nobody can guess: letters and digits.
HttpResponse page_response(const std::string& nonce);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_PAGE_H_
