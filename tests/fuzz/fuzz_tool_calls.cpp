// SPDX-License-Identifier: Apache-2.0
//
// Any text: tool calls in one piece and in pieces of every small size are the same, and the deltas
// of each come in order. The first byte chooses the format.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tool_call_parser.h"

namespace {

using halfbyte::ToolCallDelta;
using halfbyte::ToolCallFormat;
using halfbyte::ToolCallParser;

constexpr std::size_t kPieceBytes[] = {1, 2, 3, 7, 20};

void check(bool holds) {
  if (!holds) std::abort();
}

using Call = std::pair<std::string, std::string>;  // name, arguments
struct Outcome {
  std::string content;
  std::vector<Call> calls;
  std::size_t num_whole_calls = 0;
  bool operator==(const Outcome&) const = default;
};

void add(const ToolCallParser::Parsed& parsed, Outcome& outcome) {
  outcome.content += parsed.content;
  for (const ToolCallDelta& delta : parsed.calls) {
    check(delta.index + (delta.name.empty() ? 1 : 0) == outcome.calls.size());
    if (!delta.name.empty()) outcome.calls.emplace_back(delta.name, "");
    outcome.calls.back().second += delta.arguments;
  }
}

Outcome parse(std::string_view text, std::size_t piece_bytes, ToolCallFormat format) {
  ToolCallParser parser(format);
  Outcome outcome;
  for (std::size_t at = 0; at < text.size(); at += piece_bytes)
    add(parser.push(text.substr(at, piece_bytes)), outcome);
  add(parser.finish(), outcome);
  outcome.num_whole_calls = parser.num_whole_calls();
  check(parser.num_calls() == outcome.calls.size());
  check(parser.num_whole_calls() <= parser.num_ended_calls());
  check(parser.num_ended_calls() <= parser.num_calls());
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const auto format = (data[0] & 1) == 0 ? ToolCallFormat::kQwen3 : ToolCallFormat::kDeepSeek;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const Outcome whole = parse(text, std::max<std::size_t>(text.size(), 1), format);
  for (const std::size_t piece_bytes : kPieceBytes)
    check(parse(text, piece_bytes, format) == whole);
  return 0;
}
