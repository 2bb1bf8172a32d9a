// SPDX-License-Identifier: Apache-2.0
#include "text/grammar_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/repetitions.h"
#include "text/tool_call_format.h"

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;

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

Status check_repetitions(std::size_t count) {
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

// ---- tags and calls; the types are those of XGrammar's structural tags

Json literal(std::string_view text) {
  return {{"type", "const_string"}, {"value", text}};
}

Json tag(const std::string& begin, const CheckedSchema& schema, const std::string& end) {
  return {{"type", "tag"},
          {"begin", begin},
          {"content",
           {{"type", "json_schema"},
            {"json_schema", Json::parse(schema.json)},
            {"max_whitespace_cnt", kMaxJsonBlanks}}},
          {"end", end}};
}

GrammarSource tag_source(const Json& format) {
  return {GrammarSource::Kind::kStructuralTag,
          Json({{"type", "structural_tag"}, {"format", format}}).dump()};
}

// The beginning of a client's text, for its error.
std::string shown(const std::string& text) {
  constexpr std::size_t kMaxBytes = 64;
  return Json(text.substr(0, kMaxBytes)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// What is not checked here may be left out silently: a trigger that begins no tag would forbid its
// own text, a tag that no trigger begins would hold nothing.
Status check_triggers(const std::vector<std::string>& triggers,
                      const std::vector<TriggeredTag>& tags) {
  for (const std::string& trigger : triggers) {
    if (trigger.empty()) return {StatusCode::kInvalidArgument, "a trigger is an empty text"};
    const auto is_begun = [&](const TriggeredTag& tag) { return tag.begin.starts_with(trigger); };
    if (std::ranges::any_of(tags, is_begun)) continue;
    return {StatusCode::kInvalidArgument,
            fmt::format("no structure begins with the trigger {}", shown(trigger))};
  }
  for (const TriggeredTag& tag : tags) {
    const auto begins_it = [&](const std::string& text) { return tag.begin.starts_with(text); };
    if (std::ranges::any_of(triggers, begins_it)) continue;
    return {
        StatusCode::kInvalidArgument,
        fmt::format("the structure that begins with {} begins with no trigger", shown(tag.begin))};
  }
  return {};
}

// What a schema inside a larger source asks of it.
void add_schema(const CheckedSchema& schema, GrammarSource& source) {
  std::ranges::copy(schema.patterns, std::back_inserter(source.string_patterns));
  source.forbids_controls = source.forbids_controls || schema.has_lengths;
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
    tags.push_back(tag(begin(tool), tool.arguments, end));
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
  HALFBYTE_RETURN_IF_ERROR(check_repetitions(count_repetitions(regex)));
  return GrammarSource{GrammarSource::Kind::kRegex, std::string(regex)};
}

Result<GrammarSource> ebnf_source(std::string_view grammar) {
  HALFBYTE_RETURN_IF_ERROR(check_size(grammar));
  HALFBYTE_RETURN_IF_ERROR(check_depth(grammar));
  const std::size_t rules = count_rules(grammar);
  if (rules > kMaxGrammarRules) return too_large("rules", rules, kMaxGrammarRules);
  HALFBYTE_RETURN_IF_ERROR(check_repetitions(count_rule_repetitions(grammar)));
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
  GrammarSource source = tag_source(calls);
  for (const CallableTool& tool : tools) {
    add_schema(tool.arguments, source);
  }
  return source;
}

Result<GrammarSource> triggered_tags_source(const std::vector<std::string>& triggers,
                                            const std::vector<TriggeredTag>& tags) {
  if (triggers.empty() || tags.empty()) {
    return Status(StatusCode::kInvalidArgument, "want at least one structure and one trigger");
  }
  HALFBYTE_RETURN_IF_ERROR(check_triggers(triggers, tags));
  Json list = Json::array();
  for (const TriggeredTag& given : tags) {
    list.push_back(tag(given.begin, given.schema, given.end));
  }
  GrammarSource source =
      tag_source({{"type", "triggered_tags"}, {"triggers", triggers}, {"tags", std::move(list)}});
  HALFBYTE_RETURN_IF_ERROR(check_size(source.text));
  for (const TriggeredTag& given : tags) {
    add_schema(given.schema, source);
  }
  return source;
}

}  // namespace halfbyte
