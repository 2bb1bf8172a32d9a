// SPDX-License-Identifier: Apache-2.0
#include "text/grammar_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/tool_call_format.h"

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kTooMany = 1000000;  // beyond every limit; products stay below 2^64

Status too_large(std::string_view what, std::size_t got, std::size_t limit) {
  return {StatusCode::kInvalidArgument,
          fmt::format("the grammar has {} {}, want at most {}", got, what, limit)};
}

Status check_size(std::string_view text) {
  if (text.empty()) return {StatusCode::kInvalidArgument, "the grammar is empty"};
  if (text.size() > kMaxGrammarBytes) return too_large("bytes", text.size(), kMaxGrammarBytes);
  return {};
}

// Counts every parenthesis, also those that are text: more than enough for real grammars.
Status check_depth(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  for (const char c : text) {
    if (c == '(') deepest = std::max(deepest, ++depth);
    if (c == ')') --depth;
  }
  if (deepest <= kMaxGrammarDepth) return {};
  return too_large("levels of parentheses", static_cast<std::size_t>(deepest), kMaxGrammarDepth);
}

// What is inside the braces that begin at `at`: the upper bound, or the lower one where there is no
// other; 1 for anything else.
std::size_t repetitions_at(std::string_view text, std::size_t at) {
  std::size_t number = 0;
  std::size_t last = 1;
  for (std::size_t i = at + 1; i < text.size() && text[i] != '}'; ++i) {
    if (text[i] == ',') {
      number = 0;
    } else if (text[i] >= '0' && text[i] <= '9') {
      number = std::min(number * 10 + static_cast<std::size_t>(text[i] - '0'), kTooMany);
      last = std::max<std::size_t>(number, 1);
    } else {
      return 1;
    }
  }
  return last;
}

Status check_repetitions(std::string_view text) {
  const std::size_t count = count_repetitions(text);
  if (count <= kMaxRepetitions) return {};
  return too_large("repetitions in one another", count, kMaxRepetitions);
}

std::size_t count_rules(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = text.find("::="); at != std::string_view::npos;
       at = text.find("::=", at + 3))
    ++count;
  return count;
}

// A literal of EBNF. Escapes of fixed length: \x takes as many digits as follow.
std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

// ---- calls; the types are those of XGrammar's structural tags

Json literal(std::string_view text) {
  return {{"type", "const_string"}, {"value", text}};
}

Json tag(const std::string& begin, const CallableTool& tool, const std::string& end) {
  return {{"type", "tag"},
          {"begin", begin},
          {"content",
           {{"type", "json_schema"},
            {"json_schema", Json::parse(tool.arguments.json)},
            {"max_whitespace_cnt", kMaxJsonBlanks}}},
          {"end", end}};
}

// begin(tool) ARGUMENTS end, of any of the tools.
template <typename Begin>
Json calls(const std::vector<CallableTool>& tools,
           const Begin& begin,
           const std::string& end,
           std::string_view separator,
           bool one_call) {
  Json tags = Json::array();
  for (const CallableTool& tool : tools) {
    tags.push_back(tag(begin(tool), tool, end));
  }
  return {{"type", "tags_with_separator"},
          {"tags", std::move(tags)},
          {"separator", separator},
          {"at_least_one", true},
          {"stop_after_first", one_call}};
}

Json qwen3_calls(const std::vector<CallableTool>& tools, bool one_call) {
  const ToolCallParser::Syntax& syntax = syntax_of(ToolCallFormat::kQwen3);
  const auto begin = [&](const CallableTool& tool) {
    return fmt::format("{}\n{{\"name\": \"{}\", \"arguments\": ", syntax.open, tool.name);
  };
  return calls(tools, begin, fmt::format("}}\n{}", syntax.close), "\n", one_call);
}

Json in_section(Json calls) {
  const ToolCallParser::Syntax& syntax = syntax_of(ToolCallFormat::kDeepSeek);
  Json parts =
      Json::array({literal(syntax.section_open), std::move(calls), literal(syntax.section_close)});
  return {{"type", "sequence"}, {"elements", std::move(parts)}};
}

// V3.1's layout, or that of V3 and R1.
Json deepseek_calls(const std::vector<CallableTool>& tools, bool one_call) {
  const ToolCallParser::Syntax& syntax = syntax_of(ToolCallFormat::kDeepSeek);
  const std::string close(syntax.close);
  const auto begin = [&](const CallableTool& tool) {
    return fmt::format("{}{}{}", syntax.open, tool.name, kDeepSeekSeparator);
  };
  const auto begin_fenced = [&](const CallableTool& tool) {
    return fmt::format("{}function{}{}\n{}\n", syntax.open, kDeepSeekSeparator, tool.name, kFence);
  };
  Json layouts =
      Json::array({in_section(calls(tools, begin, close, "", one_call)),
                   in_section(calls(tools, begin_fenced, fmt::format("\n{}{}", kFenceEnd, close),
                                    "\n", one_call))});
  return {{"type", "or"}, {"elements", std::move(layouts)}};
}

}  // namespace

std::size_t count_repetitions(std::string_view text) {
  std::vector<std::size_t> open = {1};  // of each group around: the most that is inside so far
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool repeats = i + 1 < text.size() && text[i + 1] == '{';
    const std::size_t times = repeats ? repetitions_at(text, i + 1) : 1;
    std::size_t inside = 1;
    if (text[i] == '(') {
      open.push_back(1);
      continue;
    }
    if (text[i] == ')' && open.size() > 1) {
      inside = open.back();
      open.pop_back();
    }
    open.back() = std::max(open.back(), std::min(inside * times, kTooMany));
  }
  return *std::ranges::max_element(open);
}

GrammarSource schema_source(CheckedSchema schema) {
  return {GrammarSource::Kind::kJsonSchema, std::move(schema.json), std::move(schema.patterns),
          schema.has_lengths};
}

GrammarSource json_object_source() {
  return {GrammarSource::Kind::kJsonSchema, R"({"type": "object", "additionalProperties": true})"};
}

Result<GrammarSource> regex_source(std::string_view regex) {
  HALFBYTE_RETURN_IF_ERROR(check_size(regex));
  HALFBYTE_RETURN_IF_ERROR(check_depth(regex));
  HALFBYTE_RETURN_IF_ERROR(check_repetitions(regex));
  return GrammarSource{GrammarSource::Kind::kRegex, std::string(regex)};
}

Result<GrammarSource> ebnf_source(std::string_view grammar) {
  HALFBYTE_RETURN_IF_ERROR(check_size(grammar));
  HALFBYTE_RETURN_IF_ERROR(check_depth(grammar));
  HALFBYTE_RETURN_IF_ERROR(check_repetitions(grammar));
  const std::size_t rules = count_rules(grammar);
  if (rules > kMaxGrammarRules) return too_large("rules", rules, kMaxGrammarRules);
  return GrammarSource{GrammarSource::Kind::kEbnf, std::string(grammar)};
}

Result<GrammarSource> choice_source(const std::vector<std::string>& choices) {
  if (choices.empty()) return Status(StatusCode::kInvalidArgument, "there is nothing to choose");
  if (choices.size() > kMaxGrammarChoices) {
    return too_large("alternatives", choices.size(), kMaxGrammarChoices);
  }
  std::string grammar = "root ::= ";
  for (const std::string& choice : choices) {
    if (choice.empty()) return Status(StatusCode::kInvalidArgument, "a choice is an empty text");
    if (&choice != &choices.front()) grammar += " | ";
    grammar += quote(choice);
  }
  HALFBYTE_RETURN_IF_ERROR(check_size(grammar));
  return GrammarSource{GrammarSource::Kind::kEbnf, grammar + "\n"};
}

GrammarSource tool_call_source(ToolCallFormat format,
                               const std::vector<CallableTool>& tools,
                               bool one_call) {
  const bool is_qwen3 = format == ToolCallFormat::kQwen3;
  const Json calls = is_qwen3 ? qwen3_calls(tools, one_call) : deepseek_calls(tools, one_call);
  GrammarSource source{GrammarSource::Kind::kStructuralTag,
                       Json({{"type", "structural_tag"}, {"format", calls}}).dump()};
  for (const CallableTool& tool : tools) {
    std::ranges::copy(tool.arguments.patterns, std::back_inserter(source.string_patterns));
    source.forbids_controls = source.forbids_controls || tool.arguments.has_lengths;
  }
  return source;
}

}  // namespace halfbyte
