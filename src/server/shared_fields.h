// SPDX-License-Identifier: Apache-2.0
//
// For formats whose requests are read as an equivalent body of a chat or a completion.
#ifndef HALFBYTE_SERVER_SHARED_FIELDS_H_
#define HALFBYTE_SERVER_SHARED_FIELDS_H_

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/generation_request.h"
#include "server/json.h"
#include "server/path_map.h"

namespace halfbyte::server {

/// Fields of sampling, constraints and caching, which mean the same under the same name in every
/// format.
std::span<const std::string_view> shared_field_names();
/// Copies those of `from` to `to`.
void copy_shared_fields(const Json& from, Json& to);
/// Names of fields of `body` that are neither among them nor in `own`.
std::vector<std::string> fields_beyond(const Json& body, std::span<const std::string_view> own);
/// A member of an object, or null: whoever reads the equivalent body says what is missing.
const Json& member_of(const Json& object, std::string_view name);
/// What was read of the equivalent body, with paths as the client wrote them.
std::variant<GenerationRequest, ApiError> as_written(std::variant<GenerationRequest, ApiError> read,
                                                     const PathMap& paths);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_SHARED_FIELDS_H_
