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

/// Loads everything, cheap parts first; notices and progress go to stderr. Exits on an error.
Session open_session(EngineOptions options);

/// "stop", "length", "cancelled", "error".
std::string_view finish_reason_name(FinishReason reason);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_SESSION_H_
