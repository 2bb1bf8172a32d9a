// SPDX-License-Identifier: Apache-2.0
//
// What /v1/chat/completions and /v1/completions ask for, read and checked.
#ifndef HALFBYTE_SERVER_GENERATION_REQUEST_H_
#define HALFBYTE_SERVER_GENERATION_REQUEST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "halfbyte/engine.h"
#include "server/json.h"
#include "server/model_text.h"

namespace halfbyte {
class Grammar;
class GrammarCompiler;
}  // namespace halfbyte

namespace halfbyte::server {

struct GenerationRequest {
  bool is_chat = false;
  std::string id;                                  // of the answer; empty: a random one
  std::string model;                               // as asked for
  std::vector<std::vector<std::int32_t>> prompts;  // ids
  std::vector<std::string> prompt_texts;           // with `echo`
  std::string prompt_field = "prompt";             // where the client wrote it
  PromptEncoding prompt_encoding;                  // of texts
  SamplingParams sampling;                         // max_new_tokens: see `max_tokens`
  std::optional<std::int64_t> max_tokens;          // none: the rest of the context
  bool may_be_empty = false;                       // max_tokens may be 0
  std::int64_t n = 1;
  std::vector<std::string> stop;
  std::string cache_salt;
  bool include_stop_string = false;
  bool skip_special_tokens = true;
  bool echo = false;  // the prompt is the beginning of the text
  bool return_token_ids = false;
  Reasoning reasoning = Reasoning::kNone;    // in the answer
  std::optional<ToolCallFormat> tool_calls;  // searched for in the answer
  bool one_tool_call = false;                // it ends with the first
  std::shared_ptr<const Grammar> grammar;    // of the answer, behind its reasoning; null: none
  std::string constraint_field;              // where the client wrote it
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  Json answer_fields = {};  // what else the writer of the answer reads: see its format

  bool wants_token_records() const { return return_token_ids || sampling.num_logprobs >= 0; }
};

/// What is served, as far as requests depend on it.
struct RequestScope {
  const ModelText* text = nullptr;
  std::vector<std::string> model_names;  // the first is the default
  std::int64_t vocab_size = 0;           // of the model
  std::int64_t context_tokens = 0;       // the longest sequence that fits the context and the cache
  std::function<std::uint64_t()> random_seed;
  GrammarCompiler* grammars = nullptr;  // null: answers cannot be constrained
};

/// @return 400 with the path of the field that is wrong; 404 for another model.
std::variant<GenerationRequest, ApiError> read_chat_request(const Json& body,
                                                            const RequestScope& scope);
/// `may_be_empty`: max_tokens may be 0 also without an echo of the prompt.
std::variant<GenerationRequest, ApiError> read_completion_request(const Json& body,
                                                                  const RequestScope& scope,
                                                                  bool may_be_empty = false);

/// The served name that `body` asks for; 404 `model_not_found` in `error`.
std::string read_model_name(const Json& body,
                            const RequestScope& scope,
                            std::optional<ApiError>& error);
/// An array of ids of the model's vocabulary; `name` in `reader`.
std::vector<std::int32_t> read_token_ids(FieldReader& reader,
                                         std::string_view name,
                                         const Json& array,
                                         std::int64_t vocab_size);
/// Fields that change which token comes next, and what is told about it.
void read_sampling_fields(const Json& body,
                          const RequestScope& scope,
                          GenerationRequest& request,
                          std::optional<ApiError>& error);
/// Fields that say how a raw prompt becomes tokens.
PromptEncoding read_prompt_encoding(FieldReader& reader);
/// Fields that both endpoints share.
void read_shared_fields(const Json& body,
                        const RequestScope& scope,
                        GenerationRequest& request,
                        std::optional<ApiError>& error);
struct Conversation {
  std::vector<std::int32_t> ids;
  bool has_tools = false;
  bool one_tool_call = false;
  Reasoning reasoning = Reasoning::kNone;  // where the answer begins
  std::optional<std::string> forced_tool;  // tool_choice demands a call: of this, or of any ("")
};
/// The conversation in `body` as the template makes it.
Conversation read_conversation(const Json& body,
                               const RequestScope& scope,
                               std::optional<ApiError>& error);
/// 400 `unsupported_value` for a field that asks for what the engine cannot do.
void refuse_unsupported(const Json& body, bool is_chat, std::optional<ApiError>& error);
/// Names of the fields that chats or completions read, or refuse by name.
std::vector<std::string_view> known_fields();
/// Names of fields of `body` that are none of these.
std::vector<std::string> unknown_fields(const Json& body);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_GENERATION_REQUEST_H_
