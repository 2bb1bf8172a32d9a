// SPDX-License-Identifier: Apache-2.0
//
// What the formats of tool calls consist of; see tool_call_parser.h.
#ifndef HALFBYTE_TEXT_TOOL_CALL_FORMAT_H_
#define HALFBYTE_TEXT_TOOL_CALL_FORMAT_H_

#include <optional>
#include <string_view>

#include "text/tool_call_parser.h"

namespace halfbyte {

struct ToolCallParser::Syntax {
  std::string_view section_open;  // before the first call and behind the last; empty: nothing
  std::string_view section_close;
  std::string_view open;
  std::string_view close;
  std::optional<ToolCall> (*parse)(std::string_view text);  // what stands between open and close
};

const ToolCallParser::Syntax& syntax_of(ToolCallFormat format);

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_TOOL_CALL_FORMAT_H_
