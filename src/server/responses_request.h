// SPDX-License-Identifier: Apache-2.0
//
// OpenAI's /v1/responses as a chat.
#ifndef HALFBYTE_SERVER_RESPONSES_REQUEST_H_
#define HALFBYTE_SERVER_RESPONSES_REQUEST_H_

#include <optional>

#include "server/json.h"
#include "server/path_map.h"

namespace halfbyte::server {

/// The body of a chat that asks for what `body` does. Its messages are the instructions, if any,
/// then those of `earlier` (a list, of the response that it goes on from), then the input. `paths`:
/// where its fields stand in `body`. What no chat can ask for is 400 in `error`, with the path in
/// `body`.
Json chat_of_responses(const Json& body,
                       const Json& earlier,
                       PathMap& paths,
                       std::optional<ApiError>& error);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_RESPONSES_REQUEST_H_
