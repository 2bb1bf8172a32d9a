// SPDX-License-Identifier: Apache-2.0
//
// Anthropic's /v1/messages, beside its ApiFormat.
#ifndef HALFBYTE_SERVER_MESSAGES_FORMAT_H_
#define HALFBYTE_SERVER_MESSAGES_FORMAT_H_

#include <cstdint>
#include <variant>

#include "server/api_error.h"
#include "server/generation_request.h"

namespace halfbyte::server {

/// {"type": "error", "error": {type, message, param}}, with the headers that the status asks for.
HttpResponse messages_refusal(const ApiError& error);

/// The tokens of the prompt that `body` makes; it may lack max_tokens.
std::variant<std::int64_t, ApiError> count_message_tokens(const Json& body,
                                                          const RequestScope& scope);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_MESSAGES_FORMAT_H_
