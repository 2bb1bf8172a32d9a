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
#include "text/reasoning_parser.h"
#include "text/tokenizer.h"
#include "text/tool_call_parser.h"

namespace halfbyte::server {

/// Where a request says nothing.
struct SamplingDefaults {
  double temperature = 1.0;
  double top_p = 1.0;
  std::int64_t top_k = 0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
};

/// "auto" goes by the model's vocabulary, "none" is off; see tool_call_parsers(),
/// reasoning_parsers().
struct TextOptions {
  bool openai_defaults = false;  // SamplingDefaults as above, whatever generation_config.json says
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
  std::string tokenizer_path = "";  // a folder with tokenizer and template; empty: the model's
  std::string chat_template = "";   // a file; empty: the tokenizer's
};

/// Names that TextOptions take.
const std::vector<std::string>& tool_call_parsers();
const std::vector<std::string>& reasoning_parsers();

/// How a raw prompt becomes tokens.
struct PromptEncoding {
  bool add_special_tokens = true;     // those that the tokenizer puts around a text
  bool split_special_tokens = false;  // a special token's text inside it is only text
};

/// Immutable; any thread.
class ModelText {
 public:
  /// Reads tokenizer, chat template (none is fine; one that cannot be read is an error),
  /// generation_config.json and tokenizer_config.json of a directory.
  static Result<std::unique_ptr<ModelText>> load(const std::string& directory,
                                                 const TextOptions& options);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ChatTemplate* chat_template() const { return chat_template_.get(); }  // null: none
  /// How answers write tool calls; none: they are not searched for any.
  std::optional<ToolCallFormat> tool_call_format() const { return tool_call_format_; }
  /// Whether answers are searched for reasoning.
  bool has_reasoning() const { return has_reasoning_; }
  const SamplingDefaults& defaults() const { return defaults_; }

  /// Ids of a raw prompt: with what the tokenizer's post-processor puts around it, and with a BOS
  /// in front where tokenizer_config.json has add_bos_token, unless they are there already. A text
  /// without tokens stays so.
  Result<std::vector<std::int32_t>> encode_prompt(const std::string& text,
                                                  const PromptEncoding& encoding) const;

 private:
  bool has_token(std::string_view text) const;
  void choose_parsers(const TextOptions& options);
  Status read_bos(const std::string& directory);
  Status read_defaults(const std::string& directory);

  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_;
  SamplingDefaults defaults_;
  std::optional<std::int32_t> bos_id_;
  std::optional<ToolCallFormat> tool_call_format_;
  bool has_reasoning_ = false;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_MODEL_TEXT_H_
