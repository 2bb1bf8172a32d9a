// SPDX-License-Identifier: Apache-2.0
//
// The formats that an endpoint may speak: how its requests are read, and its answers written.
#ifndef HALFBYTE_SERVER_API_FORMAT_H_
#define HALFBYTE_SERVER_API_FORMAT_H_

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/generation_request.h"
#include "server/protocol.h"

namespace halfbyte::server {

class ResponseStore;

/// One format, for all of its requests. Thread-safe.
class ApiFormat {
 public:
  virtual ~ApiFormat() = default;
  /// Of the ids of its answers: "chatcmpl-".
  virtual std::string_view id_prefix() const = 0;
  /// @return 400 with the path of the field that is wrong, as the client wrote it; 404 for another
  ///         model.
  virtual std::variant<GenerationRequest, ApiError> read(const Json& body,
                                                         const RequestScope& scope) const = 0;
  /// Names of fields of `body` that nothing reads.
  virtual std::vector<std::string> unknown_fields(const Json& body) const = 0;
  virtual std::unique_ptr<AnswerWriter> make_writer(AnswerSource source) const = 0;
  /// How it tells an error.
  virtual HttpResponse refusal(const ApiError& error) const { return error_response(error); }
};

/// OpenAI's /v1/chat/completions and /v1/completions.
std::unique_ptr<const ApiFormat> make_chat_format();
std::unique_ptr<const ApiFormat> make_completion_format();
/// SGLang's /generate.
std::unique_ptr<const ApiFormat> make_generate_format();
/// OpenAI's /v1/responses, with what `store` keeps.
std::unique_ptr<const ApiFormat> make_responses_format(std::shared_ptr<ResponseStore> store);
/// Anthropic's /v1/messages.
std::unique_ptr<const ApiFormat> make_messages_format();

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_API_FORMAT_H_
