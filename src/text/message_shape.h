// SPDX-License-Identifier: Apache-2.0
//
// What templates disagree about, and messages as one of them takes them.
#ifndef HALFBYTE_TEXT_MESSAGE_SHAPE_H_
#define HALFBYTE_TEXT_MESSAGE_SHAPE_H_

#include <functional>
#include <string>

#include "text/jinja/value.h"

namespace halfbyte {

/// How a template takes an assistant's message that calls tools.
struct MessageShape {
  bool null_content = false;      // without text its content is null, not ""
  bool object_arguments = false;  // arguments are an object, not the text of one
  bool calls_apart = false;  // beside text calls are left out: they need a message of their own
};

/// The prompt of a list of messages; throws jinja::Failure.
using RenderMessages = std::function<std::string(const jinja::Value& messages)>;
/// Found by rendering tiny conversations: the first shape whose prompt has the call. Objects are
/// tried before texts, "" before null. As above where none has it.
MessageShape probe_message_shape(const RenderMessages& render);

/// Messages as OpenAI's clients write them, in this shape. Arguments that are no object's text stay
/// what they are.
jinja::Value shape_messages(const jinja::Value& messages, const MessageShape& shape);

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_MESSAGE_SHAPE_H_
