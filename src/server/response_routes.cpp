// SPDX-License-Identifier: Apache-2.0
//
// Paths beside those that answer: stored responses, and the tokens of a message.
#include <fmt/format.h>

#include "server/api.h"
#include "server/messages_format.h"

namespace halfbyte::server {
namespace {

// ID of "/v1/responses/ID" and "/v1/responses/ID/cancel".
std::string response_id(std::string_view path) {
  constexpr std::string_view kPrefix = "/v1/responses/";
  path.remove_prefix(kPrefix.size());
  return std::string(path.substr(0, path.find('/')));
}

HttpResponse no_response(const std::string& id) {
  return error_response({404,
                         fmt::format("there is no response {}: it was not stored, or is forgotten",
                                     Json(id).dump(-1, ' ', true, Json::error_handler_t::replace)),
                         "", ""});
}

}  // namespace

HttpReply Api::stored_response(const HttpRequest& request) {
  const std::string id = response_id(request.path);
  const auto stored = responses_->find(id);
  return stored == nullptr ? no_response(id) : json_response(stored->response);
}

HttpReply Api::delete_response(const HttpRequest& request) {
  const std::string id = response_id(request.path);
  if (!responses_->erase(id)) return no_response(id);
  return json_response({{"id", id}, {"object", "response"}, {"deleted", true}});
}

// Its stream ends with what there is; the stored one says so once that has happened.
HttpReply Api::cancel_response(const HttpRequest& request) {
  const std::string id = response_id(request.path);
  const auto stored = responses_->find(id);
  if (stored == nullptr) return no_response(id);
  if (stored->response["status"] != "in_progress" || driver()->abort_request(id) == 0) {
    return error_response(
        {400, fmt::format("the response {} has ended: there is nothing to cancel", id), "", ""});
  }
  Json response = stored->response;
  response["status"] = "cancelled";
  return json_response(response);
}

HttpReply Api::count_tokens(const HttpRequest& request) {
  const auto body = read_body(request);
  if (const auto* error = std::get_if<ApiError>(&body)) return messages_refusal(*error);
  const auto count = count_message_tokens(std::get<Json>(body), scope_);
  if (const auto* error = std::get_if<ApiError>(&count)) return messages_refusal(*error);
  return json_response({{"input_tokens", std::get<std::int64_t>(count)}});
}

}  // namespace halfbyte::server
