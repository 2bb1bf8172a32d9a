// SPDX-License-Identifier: Apache-2.0
//
// What the formats of tool calls consist of; see tool_call_parser.h.
#ifndef HALFBYTE_TEXT_TOOL_CALL_FORMAT_H_
#define HALFBYTE_TEXT_TOOL_CALL_FORMAT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "text/markers.h"
#include "text/tool_call_parser.h"

namespace halfbyte {

/// Around the arguments, in V3's and R1's layout.
inline constexpr std::string_view kFence = "```json";
inline constexpr std::string_view kFenceEnd = "```";
/// Between a name of DeepSeek's and what follows. U+FF5C is EF BD 9C, U+2581 is E2 96 81.
inline constexpr std::string_view kDeepSeekSeparator =
    "<\xEF\xBD\x9C"
    "tool\xE2\x96\x81sep\xEF\xBD\x9C>";

/// A call that a model wrote.
struct ToolCall {
  std::string name;
  std::string arguments;  // JSON
};

/// How a call begins: kWhole: with a name, and `size` bytes before the { of the arguments;
/// kPartial: what is there could become that; kNone: otherwise.
struct ToolCallHead {
  MarkerFit fit = MarkerFit::kNone;
  std::string name = {};
  std::size_t size = 0;
};

struct ToolCallParser::Syntax {
  std::string_view section_open;  // before the first call and behind the last; empty: nothing
  std::string_view section_close;
  std::string_view open;
  std::string_view close;
  std::string_view tail;  // between the arguments and `close`; empty: nothing
  ToolCallHead (*read_head)(std::string_view text);  // what stands behind `open`
  // What stands between open and close and does not begin as read_head() wants it.
  std::optional<ToolCall> (*parse)(std::string_view text);
};

const ToolCallParser::Syntax& syntax_of(ToolCallFormat format);

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_TOOL_CALL_FORMAT_H_
