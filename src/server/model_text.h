// SPDX-License-Identifier: Apache-2.0
//
// The text side of a model: what turns requests into ids and ids into text.
#ifndef HALFBYTE_SERVER_MODEL_TEXT_H_
#define HALFBYTE_SERVER_MODEL_TEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace halfbyte::server {

/// Where a request says nothing.
struct SamplingDefaults {
  double temperature = 1.0;
  double top_p = 1.0;
  std::int64_t top_k = 0;
};

/// Immutable; any thread.
class ModelText {
 public:
  /// Reads tokenizer, chat template (none is fine; one that cannot be read is an error),
  /// generation_config.json (unless `openai_defaults`) and tokenizer_config.json of a directory.
  static Result<std::unique_ptr<ModelText>> load(const std::string& directory,
                                                 bool openai_defaults);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ChatTemplate* chat_template() const { return chat_template_.get(); }  // null: none
  /// Whether the vocabulary has Qwen3's "<tool_call>": then answers are searched for calls.
  bool writes_tool_calls() const { return writes_tool_calls_; }
  const SamplingDefaults& defaults() const { return defaults_; }
  /// What generation_config.json asks for and the engine cannot do, one line each.
  const std::vector<std::string>& notices() const { return notices_; }

  /// Ids of a raw prompt: with a BOS in front where tokenizer_config.json has add_bos_token and
  /// the text does not begin with it.
  Result<std::vector<std::int32_t>> encode_prompt(const std::string& text) const;

 private:
  Status read_bos(const std::string& directory);
  Status read_defaults(const std::string& directory);

  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_;
  SamplingDefaults defaults_;
  std::optional<std::int32_t> bos_id_;
  bool writes_tool_calls_ = false;
  std::vector<std::string> notices_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_MODEL_TEXT_H_
