// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_CHAT_TEMPLATE_H_
#define HALFBYTE_TEXT_CHAT_TEMPLATE_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "halfbyte/result.h"

namespace halfbyte {

/// A model's chat template: the part of Jinja that published templates use. Immutable; any thread.
class ChatTemplate {
 public:
  /// From `file`, or if that is empty from chat_template.jinja or tokenizer_config.json of a model
  /// directory, which in either case has the special tokens. It is given messages in the shape that
  /// it takes (message_shape.h), which is found here. kNotFound: none is there.
  static Result<std::unique_ptr<ChatTemplate>> load(const std::string& directory,
                                                    const std::string& file = "");
  /// From source; messages stay as they are. kInvalidArgument with line and column; kUnsupported
  /// names the construct.
  static Result<std::unique_ptr<ChatTemplate>> parse(std::string_view source);
  ~ChatTemplate();

  /// What stands for each text of the variables.
  using EditText = std::function<std::string(std::string_view)>;
  /// Renders with the variables of a JSON object: messages, tools, add_generation_prompt,
  /// enable_thinking, and any other. Keys of messages that are null are removed first. A template's
  /// own raise_exception is kInvalidArgument with its text. `edit`, unless null, is asked about
  /// every text in the variables, once they have the shape that the template takes.
  Result<std::string> render(std::string_view variables_json, const EditText& edit = nullptr) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_CHAT_TEMPLATE_H_
