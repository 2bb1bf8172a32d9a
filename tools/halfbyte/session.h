// SPDX-License-Identifier: Apache-2.0
//
// A model with its text parts, as run and eval use it.
#ifndef HALFBYTE_TOOLS_HALFBYTE_SESSION_H_
#define HALFBYTE_TOOLS_HALFBYTE_SESSION_H_

#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace halfbyte::tool {

struct Session {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  // null: the model has none
  std::unique_ptr<Engine> engine;

  /// Ids of a conversation with the generation prompt. `messages` is a list of {role, content}.
  std::vector<std::int32_t> encode_chat(const nlohmann::ordered_json& messages) const;
};

/// Tokenizer and template of a model's folder. Exits on an error, as the others here.
Session open_text(const std::string& model_path);
/// Whether a prompt fits the model's context: known from its config, before a long load.
void check_prompt_fits(std::size_t prompt_tokens, const EngineOptions& options);
/// Loads the model; notices and progress go to stderr.
void open_engine(Session& session, EngineOptions options);

/// "stop", "length", "cancelled", "error".
std::string_view finish_reason_name(FinishReason reason);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_SESSION_H_
