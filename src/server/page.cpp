// SPDX-License-Identifier: Apache-2.0
#include "server/page.h"

#include <fmt/format.h>

#include <string_view>

#include "server/page_html.h"

namespace halfbyte::server {

HttpResponse page_response(const std::string& nonce) {
  constexpr std::string_view kPlaceholder = "%NONCE%";
  HttpResponse response{.status = 200, .content_type = "text/html; charset=utf-8", .body = ""};
  std::string_view rest = kPageHtml;
  for (std::size_t at = rest.find(kPlaceholder); at != std::string_view::npos;
       at = rest.find(kPlaceholder)) {
    response.body.append(rest.substr(0, at)).append(nonce);
    rest.remove_prefix(at + kPlaceholder.size());
  }
  response.body.append(rest);
  response.headers = {
      {"Content-Security-Policy",
       fmt::format("default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src "
                   "'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors "
                   "'none'",
                   nonce)},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cache-Control", "no-store"}};
  return response;
}

}  // namespace halfbyte::server
