// SPDX-License-Identifier: Apache-2.0
//
// Anthropic's /v1/messages as a chat.
#ifndef HALFBYTE_SERVER_MESSAGES_REQUEST_H_
#define HALFBYTE_SERVER_MESSAGES_REQUEST_H_

#include <optional>

#include "server/json.h"
#include "server/path_map.h"

namespace halfbyte::server {

/// The body of a chat that asks for what `body` does, but max_tokens. `paths`: where its fields
/// stand in `body`. What no chat can ask for is 400 in `error`, with the path in `body`.
Json chat_of_messages(const Json& body, PathMap& paths, std::optional<ApiError>& error);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_MESSAGES_REQUEST_H_
