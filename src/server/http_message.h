// SPDX-License-Identifier: Apache-2.0
//
// What Beast has read, as the rest of the server takes it. For http.cpp alone.
#ifndef HALFBYTE_SERVER_HTTP_MESSAGE_H_
#define HALFBYTE_SERVER_HTTP_MESSAGE_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/http.hpp>
#include <string>

#include "server/http.h"
#include "server/http_peer.h"

namespace halfbyte::server {

inline std::string text_of(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

inline HttpRequest to_request(
    const boost::beast::http::request<boost::beast::http::string_body>& message) {
  using boost::beast::http::field;
  return {.method = text_of(message.method_string()),
          .path = path_of(text_of(message.target())),
          .content_type = text_of(message[field::content_type]),
          .authorization = text_of(message[field::authorization]),
          .body = message.body(),
          .api_key = text_of(message["X-Api-Key"])};
}

/// "127.0.0.1"; empty when the connection is gone already.
inline std::string address_of(const boost::asio::ip::tcp::socket& socket) {
  boost::system::error_code error;
  const auto peer = socket.remote_endpoint(error);
  return error ? std::string() : peer.address().to_string();
}

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_HTTP_MESSAGE_H_
