// SPDX-License-Identifier: Apache-2.0
//
// Masks against brute force: a token is allowed if, and only if, the text with it is the beginning
// of a text of the language, which is written out.
#include "text/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int32_t kEnd = 0;

// An end of text, a special token, and these.
AnswerVocabulary vocabulary(const std::vector<std::string>& texts) {
  AnswerVocabulary made{{"", ""}, {kEnd}};
  made.tokens.insert(made.tokens.end(), texts.begin(), texts.end());
  return made;
}

// Every byte is a token: id = byte + 2.
AnswerVocabulary byte_vocabulary() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes.emplace_back(1, static_cast<char>(byte));
  return vocabulary(bytes);
}

GrammarSource schema(std::string_view json) {
  auto checked = check_schema(json);
  EXPECT_TRUE(checked.ok()) << checked.status().to_string();
  return schema_source(std::move(checked).value());
}
GrammarSource value_of(Result<GrammarSource> source) {
  EXPECT_TRUE(source.ok()) << source.status().to_string();
  return std::move(source).value();
}

std::unique_ptr<TokenConstraint> constraint_of(GrammarCompiler& compiler,
                                               const GrammarSource& source) {
  auto grammar = compiler.compile(source);
  EXPECT_TRUE(grammar.ok()) << source.text << ": " << grammar.status().to_string();
  return grammar.ok() ? (*grammar)->make_constraint(Reasoning::kNone) : nullptr;
}

std::set<std::int32_t> allowed_ids(TokenConstraint& constraint, std::size_t vocab_size) {
  std::vector<std::uint32_t> mask((vocab_size + 31) / 32);
  const Status status = constraint.fill_mask(mask);
  EXPECT_TRUE(status.ok()) << status.to_string();
  std::set<std::int32_t> ids;
  for (std::size_t id = 0; id < vocab_size; ++id) {
    if (((mask[id / 32] >> (id % 32)) & 1U) != 0) ids.insert(static_cast<std::int32_t>(id));
  }
  return ids;
}

// Walks every way to write every text of a language.
class MaskWalk {
 public:
  MaskWalk(AnswerVocabulary vocabulary, std::vector<std::string> language)
      : vocabulary_(std::move(vocabulary)), language_(std::move(language)) {}

  void run(const GrammarSource& source) {
    GrammarCompiler compiler(vocabulary_);
    const auto constraint = constraint_of(compiler, source);
    ASSERT_NE(constraint, nullptr);
    visit(*constraint, "");
    EXPECT_EQ(finished_.size(), language_.size()) << source.text;
  }

 private:
  bool begins_one(const std::string& text) const {
    return std::ranges::any_of(language_,
                               [&](const std::string& whole) { return whole.starts_with(text); });
  }

  std::set<std::int32_t> expected(const std::string& text) const {
    std::set<std::int32_t> ids;
    if (std::ranges::count(language_, text) > 0) ids.insert(kEnd);
    for (std::size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
      const std::string& token = vocabulary_.tokens[id];
      if (!token.empty() && begins_one(text + token)) ids.insert(static_cast<std::int32_t>(id));
    }
    return ids;
  }

  void visit(TokenConstraint& constraint, const std::string& text) {
    const auto ids = allowed_ids(constraint, vocabulary_.tokens.size());
    ASSERT_EQ(ids, expected(text)) << "after \"" << text << "\"";
    for (const std::int32_t id : ids) {
      ASSERT_TRUE(constraint.accept(id).ok()) << text << " " << id;
      if (id == kEnd) {
        finished_.insert(text);
        EXPECT_EQ(allowed_ids(constraint, vocabulary_.tokens.size()), std::set{kEnd});
      } else {
        visit(constraint, text + vocabulary_.tokens[static_cast<std::size_t>(id)]);
      }
      constraint.rollback(1);
    }
  }

  AnswerVocabulary vocabulary_;
  std::vector<std::string> language_;
  std::set<std::string> finished_;
};

TEST(Grammar, AllowsWhatKeepsAChoicePossible) {
  const std::vector<std::string> language = {"no", "none", "yes", "\"\\\n"};
  MaskWalk(vocabulary({"n", "o", "no", "ne", "none", "non", "nones", "y", "ye", "s", "es", "\"",
                       "\\", "\n", "\\\n", "x"}),
           language)
      .run(value_of(choice_source(language)));
}

// U+00E9 is C3 A9, U+00E8 is C3 A8, U+1F600 is F0 9F 98 80.
TEST(Grammar, AllowsTokensThatEndInsideACharacter) {
  MaskWalk(vocabulary({"\xC3", "\xA9", "\xA8", "!", "\xA8!", "\xF0", "\x9F\x98", "\x80", "\xF0\x9F",
                       "\x98\x80!", "\x98", "\xC3\xA9", "\xA9\xC3"}),
           {"\xC3\xA9", "\xC3\xA8!", "\xF0\x9F\x98\x80!"})
      .run(value_of(choice_source({"\xC3\xA9", "\xC3\xA8!", "\xF0\x9F\x98\x80!"})));
}

TEST(Grammar, AllowsWhatKeepsARegexPossible) {
  MaskWalk(vocabulary({"a", "b", "c", "ab", "abc", "bc", "cc", "d", "dd", "1"}),
           {"ab", "abd", "acc", "accd", "ac", "acd"})
      .run(value_of(regex_source("^a(b|c{1,2})d?$")));
}

TEST(Grammar, AllowsWhatKeepsARecursiveGrammarPossible) {
  const GrammarSource balanced = value_of(ebnf_source("root ::= \"(\" root \")\" | \"x\"\n"));
  GrammarCompiler compiler(vocabulary({"(", ")", "((", "x", "x)", "))"}));
  const auto constraint = constraint_of(compiler, balanced);
  const auto accept = [&](std::initializer_list<std::int32_t> ids) {
    for (const std::int32_t id : ids)
      ASSERT_TRUE(constraint->accept(id).ok()) << id;
  };
  EXPECT_EQ(allowed_ids(*constraint, 8), (std::set<std::int32_t>{2, 4, 5}));
  accept({4, 2, 5});
  EXPECT_EQ(allowed_ids(*constraint, 8), (std::set<std::int32_t>{3, 7}));
  accept({3});
  EXPECT_EQ(allowed_ids(*constraint, 8), (std::set<std::int32_t>{3, 7}));
  accept({7});
  EXPECT_EQ(allowed_ids(*constraint, 8), std::set{kEnd});
}

TEST(Grammar, AllowsWhatKeepsASchemaPossible) {
  MaskWalk(vocabulary({"{",     "\"",   "a",  "\":",  "t",       "true", "rue}",    "e}",
                       "false", "fals", "}",  "{\"a", "{\"a\":", "b",    ",\"b\":", ",",
                       "1",     "2",    "12", "null", "-",       "0"}),
           {"{\"a\":true}", "{\"a\":false}", "{\"a\":true,\"b\":1}", "{\"a\":true,\"b\":2}",
            "{\"a\":false,\"b\":1}", "{\"a\":false,\"b\":2}", "{\"a\":true,\"b\":null}",
            "{\"a\":false,\"b\":null}"})
      .run(schema(R"({"type": "object", "required": ["a"], "properties": {
          "a": {"type": "boolean"}, "b": {"enum": [1, 2, null]}}})"));
  MaskWalk(vocabulary({"-", "1", "0", "2", "10", "11", "9", "-1"}),
           {"-1", "0", "1", "2", "9", "10", "11"})
      .run(schema(R"({"type": "integer", "minimum": -1, "maximum": 11, "description": "no -0"})"));
}

// A reference to the whole schema, inside which it must go on.
TEST(Grammar, AllowsWhatKeepsARecursiveSchemaPossible) {
  GrammarCompiler compiler(vocabulary({"{\"a\":", "null", "}", "}}", "null}}", "{\"a\":null}"}));
  const auto constraint = constraint_of(compiler, schema(R"({"type": "object", "required": ["a"],
      "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}})"));
  for (const std::int32_t id : {2, 2, 2})
    ASSERT_TRUE(constraint->accept(id).ok());
  EXPECT_EQ(allowed_ids(*constraint, 8), (std::set<std::int32_t>{2, 3, 6, 7}));
  ASSERT_TRUE(constraint->accept(3).ok());
  EXPECT_EQ(allowed_ids(*constraint, 8), (std::set<std::int32_t>{4, 5}));
}

TEST(Grammar, AllowsBracesOfAnyObjectAndNoList) {
  GrammarCompiler compiler(vocabulary({"{", "[", "{}", "{\"a\": [1, {\"b\": null}]}", "x", " "}));
  for (const GrammarSource& source :
       {json_object_source(), schema(R"({"type": "object"})"), schema(R"({"type": "object",
           "additionalProperties": {"type": ["array", "null"]}})")}) {
    const auto constraint = constraint_of(compiler, source);
    EXPECT_EQ(allowed_ids(*constraint, 8), (std::set<std::int32_t>{2, 4, 5})) << source.text;
  }
}

// Of every kind that JSON has; in tokens of one and of five.
TEST(Grammar, BoundsWhiteSpaceOfJson) {
  GrammarCompiler compiler(vocabulary({"{", "}", " ", "\n    ", "\t", "\r"}));
  const auto constraint = constraint_of(compiler, json_object_source());
  for (const std::int32_t id : {2, 5, 5, 5})
    ASSERT_TRUE(constraint->accept(id).ok());
  EXPECT_EQ(allowed_ids(*constraint, 8), (std::set<std::int32_t>{3, 4, 6, 7}));
  ASSERT_TRUE(constraint->accept(6).ok());
  EXPECT_EQ(allowed_ids(*constraint, 8), std::set<std::int32_t>{3});
}

// RFC 8259: no control character, no quote and no backslash stand for themselves in a string.
TEST(Grammar, KeepsStringsOfJsonWhole) {
  GrammarCompiler compiler(vocabulary({"\"", "a", "\t", "\n", "\x01", "\x1F", "\\", "ab\"", "a\"b",
                                       "\xC3\xA9", "\x7F", "a\tb", "\\n", "<"}));
  for (const char* text :
       {R"({"type": "string"})", R"({"type": "string", "maxLength": 9})",
        R"({"type": "string", "minLength": 1})", R"({"type": "string", "pattern": ".*"})",
        R"({"type": "string", "pattern": "^[^b]+$"})",
        R"({"type": "string", "pattern": "\\S*"})"}) {
    const auto constraint = constraint_of(compiler, schema(text));
    ASSERT_TRUE(constraint->accept(2).ok());
    const auto ids = allowed_ids(*constraint, 16);
    for (const std::int32_t id : {4, 5, 6, 7, 10, 13})
      EXPECT_FALSE(ids.contains(id)) << text << id;
    EXPECT_TRUE(ids.contains(3)) << text;
    EXPECT_TRUE(ids.contains(11)) << text;
    EXPECT_TRUE(ids.contains(15)) << text;
  }
}

TEST(Grammar, CountsCharactersOfAStringNotBytes) {
  MaskWalk(vocabulary({"\"", "\xC3", "\xA9", "\xC3\xA9"}), {"\"\"", "\"\xC3\xA9\""})
      .run(schema(R"({"type": "string", "pattern": "^\\u00e9?$"})"));
  GrammarCompiler compiler(vocabulary({"\"", "\xC3\xA9", "a"}));
  const auto constraint = constraint_of(compiler, schema(R"({"type": "string", "maxLength": 2})"));
  for (const std::int32_t id : {2, 3, 3})
    ASSERT_TRUE(constraint->accept(id).ok());
  EXPECT_EQ(allowed_ids(*constraint, 5), std::set<std::int32_t>{2});
}

TEST(Grammar, RefusesAPatternThatNeedsEscapes) {
  GrammarCompiler compiler(byte_vocabulary());
  for (const char* text :
       {R"({"type": "string", "pattern": "\""})", R"({"type": "string", "pattern": "a\\\\b"})",
        R"({"type": "string", "pattern": "[\\t]"})", R"({"type": "string", "pattern": "a{257}"})",
        R"({"type": "string", "pattern": "\u00e9"})"}) {
    const auto grammar = compiler.compile(schema(text));
    ASSERT_FALSE(grammar.ok()) << text;
    EXPECT_EQ(grammar.status().code(), StatusCode::kUnsupported) << text;
    EXPECT_THAT(grammar.status().message(), HasSubstr("\"pattern\"")) << text;
  }
}

TEST(Grammar, AllowsNothingWhereNoTokenCanGoOn) {
  GrammarCompiler compiler(vocabulary({"a", "b"}));
  const auto constraint = constraint_of(compiler, value_of(choice_source({"az"})));
  ASSERT_TRUE(constraint->accept(2).ok());
  EXPECT_THAT(allowed_ids(*constraint, 4), IsEmpty());
}

TEST(Grammar, RefusesATokenAndStaysWhereItIs) {
  GrammarCompiler compiler(vocabulary({"a", "b", "ac"}));
  const auto constraint = constraint_of(compiler, value_of(choice_source({"ab"})));
  for (const std::int32_t id : {kEnd, 1, 3, 4, 5, -1}) {
    EXPECT_EQ(constraint->accept(id).code(), StatusCode::kInvalidArgument) << id;
  }
  EXPECT_TRUE(constraint->accept(2).ok());
  EXPECT_TRUE(constraint->accept(3).ok());
  EXPECT_TRUE(constraint->accept(kEnd).ok());
}

// With ignore_eos an engine goes on behind the end of text.
TEST(Grammar, AllowsEndsOfTextAgainAndAgain) {
  GrammarCompiler compiler(vocabulary({"a"}));
  const auto constraint = constraint_of(compiler, value_of(choice_source({"a"})));
  ASSERT_TRUE(constraint->accept(2).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(allowed_ids(*constraint, 3), std::set{kEnd});
    ASSERT_TRUE(constraint->accept(kEnd).ok());
  }
  EXPECT_EQ(constraint->accept(2).code(), StatusCode::kInvalidArgument);
  constraint->rollback(4);
  EXPECT_EQ(allowed_ids(*constraint, 3), std::set<std::int32_t>{2});
}

TEST(Grammar, LeavesOtherAnswersToTheSameGrammarAlone) {
  GrammarCompiler compiler(vocabulary({"a", "b"}));
  const auto grammar = compiler.compile(value_of(choice_source({"ab", "b"})));
  ASSERT_TRUE(grammar.ok());
  const auto one = (*grammar)->make_constraint(Reasoning::kNone);
  const auto two = (*grammar)->make_constraint(Reasoning::kNone);
  ASSERT_TRUE(one->accept(2).ok());
  EXPECT_EQ(allowed_ids(*two, 4), (std::set<std::int32_t>{2, 3}));
  EXPECT_EQ(allowed_ids(*one, 4), std::set<std::int32_t>{3});
}

TEST(Grammar, SaysWhatIsWrongWithASource) {
  GrammarCompiler compiler(byte_vocabulary());
  const auto refusal = [&](const Result<GrammarSource>& source, StatusCode code) {
    const auto grammar = compiler.compile(*source);
    EXPECT_FALSE(grammar.ok()) << source->text;
    if (grammar.ok()) return std::string();
    EXPECT_EQ(grammar.status().code(), code) << grammar.status().to_string();
    return std::string(grammar.status().message());
  };
  constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
  EXPECT_THAT(refusal(regex_source("(a"), kInvalid), HasSubstr("parenthesis"));
  EXPECT_THAT(refusal(regex_source("a(?=b)"), kInvalid), HasSubstr("Lookahead"));
  EXPECT_THAT(refusal(regex_source("(a)\\1"), kInvalid), HasSubstr("Backreference"));
  EXPECT_THAT(refusal(regex_source("a^b"), StatusCode::kUnsupported), HasSubstr("'^'"));
  EXPECT_THAT(refusal(ebnf_source("root ::= other\n"), kInvalid), HasSubstr("other"));
  EXPECT_THAT(refusal(ebnf_source("start ::= \"a\"\n"), kInvalid), HasSubstr("root"));
  EXPECT_THAT(refusal(ebnf_source("root ::= \"a"), kInvalid), HasSubstr("line 1"));
  EXPECT_THAT(refusal(schema(R"({"type": "integer", "minimum": 2, "maximum": 1})"), kInvalid),
              HasSubstr("minimum"));
  EXPECT_THAT(refusal(schema(R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})"),
                      StatusCode::kUnsupported),
              HasSubstr("oneOf"));
}

TEST(Grammar, KeepsTheLastGrammars) {
  GrammarCompiler compiler(vocabulary({"a"}));
  const auto get = [&](const std::string& text) {
    return *compiler.compile(value_of(choice_source({text})));
  };
  const auto first = get("a");
  EXPECT_EQ(get("a"), first);
  for (std::size_t i = 1; i < GrammarCompiler::kMaxCached; ++i)
    get(std::string(i + 1, 'a'));
  EXPECT_EQ(get("a"), first);
  for (std::size_t i = 0; i < GrammarCompiler::kMaxCached; ++i)
    get(std::string(i + 1, 'b'));
  EXPECT_NE(get("a"), first);
}

TEST(GrammarSource, BoundsWhatTheCompilerWouldRecurseInto) {
  const auto invalid = [](const Result<GrammarSource>& source, const char* part) {
    ASSERT_FALSE(source.ok()) << part;
    EXPECT_EQ(source.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(source.status().message(), HasSubstr(part));
  };
  invalid(regex_source(""), "empty");
  invalid(ebnf_source(""), "empty");
  invalid(regex_source(std::string(kMaxGrammarBytes + 1, 'a')), "bytes");
  invalid(regex_source(std::string(kMaxGrammarDepth + 1, '(')), "parentheses");
  invalid(ebnf_source("root ::= " + std::string(kMaxGrammarDepth + 1, '(')), "parentheses");
  invalid(regex_source("((a{1,30}){1,30}){1,30}"), "repetitions");
  invalid(ebnf_source("root ::= (\"a\"{200}){200}"), "repetitions");
  invalid(ebnf_source("root ::= a {0, 200}\na ::= \"x\" {200}"), "repetitions");
  std::string rules;
  for (std::size_t i = 0; i <= kMaxGrammarRules; ++i)
    rules += "r ::= \"a\"\n";
  invalid(ebnf_source(rules), "rules");
  invalid(choice_source({}), "nothing to choose");
  invalid(choice_source({"a", ""}), "empty");
  invalid(choice_source(std::vector<std::string>(kMaxGrammarChoices + 1, "a")), "alternatives");
}

// ---- calls, as ToolCallParser reads them

class ToolCallGrammar : public testing::Test {
 protected:
  bool takes(ToolCallFormat format, bool one_call, std::string_view text) {
    const std::vector<CallableTool> tools = {tool("add", R"({"type": "object", "required": ["x"],
        "properties": {"x": {"type": "integer"}}})"),
                                             tool("stop", R"({"type": "object",
        "additionalProperties": false})")};
    const auto constraint = constraint_of(compiler_, tool_call_source(format, tools, one_call));
    for (const char c : text) {
      if (!constraint->accept(static_cast<unsigned char>(c) + 2).ok()) return false;
    }
    return constraint->accept(kEnd).ok();
  }
  static CallableTool tool(const char* name, const char* arguments) {
    auto checked = check_schema(arguments);
    EXPECT_TRUE(checked.ok()) << checked.status().to_string();
    return {name, std::move(checked).value()};
  }

  GrammarCompiler compiler_{byte_vocabulary()};
};

TEST_F(ToolCallGrammar, TakesCallsOfQwen3) {
  const std::string add =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"x\": 12}}\n</tool_call>";
  const std::string stop = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
  const auto takes_any = [&](const std::string& text) {
    return takes(ToolCallFormat::kQwen3, false, text);
  };
  EXPECT_TRUE(takes_any(add));
  EXPECT_TRUE(takes_any(stop));
  EXPECT_TRUE(takes_any(add + "\n" + stop + "\n" + add));
  EXPECT_FALSE(takes_any(""));
  EXPECT_FALSE(takes_any("Well, " + add));
  EXPECT_FALSE(takes_any(add + "\n"));
  EXPECT_FALSE(takes_any(add + stop));
  EXPECT_FALSE(takes_any("<tool_call>\n{\"name\": \"go\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(takes_any("<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(
      takes_any("<tool_call>\n{\"name\": \"stop\", \"arguments\": {\"x\": 1}}\n</tool_call>"));
  EXPECT_TRUE(takes(ToolCallFormat::kQwen3, true, add));
  EXPECT_FALSE(takes(ToolCallFormat::kQwen3, true, add + "\n" + stop));
}

TEST_F(ToolCallGrammar, TakesBothLayoutsOfDeepSeek) {
  const auto marker = [](const std::string& name) {
    return "<\xEF\xBD\x9C" + name + "\xEF\xBD\x9C>";
  };
  const std::string space = "\xE2\x96\x81";
  const std::string begin = marker("tool" + space + "calls" + space + "begin");
  const std::string end = marker("tool" + space + "calls" + space + "end");
  const std::string open = marker("tool" + space + "call" + space + "begin");
  const std::string close = marker("tool" + space + "call" + space + "end");
  const std::string separator = marker("tool" + space + "sep");
  const std::string add = open + "add" + separator + "{\"x\": 1}" + close;
  const std::string fenced =
      open + "function" + separator + "add\n```json\n{\"x\": 1}\n```" + close;
  const auto takes_any = [&](const std::string& text) {
    return takes(ToolCallFormat::kDeepSeek, false, text);
  };
  EXPECT_TRUE(takes_any(begin + add + end));
  EXPECT_TRUE(takes_any(begin + add + add + end));
  EXPECT_TRUE(takes_any(begin + fenced + end));
  EXPECT_TRUE(takes_any(begin + fenced + "\n" + fenced + end));
  EXPECT_FALSE(takes_any(begin + end));
  EXPECT_FALSE(takes_any(begin + add + fenced + end));
  EXPECT_FALSE(takes_any(begin + add));
  EXPECT_FALSE(takes(ToolCallFormat::kDeepSeek, true, begin + add + add + end));
  EXPECT_TRUE(takes(ToolCallFormat::kDeepSeek, true, begin + fenced + end));
}

TEST(Grammar, BeginsBehindTheReasoning) {
  GrammarCompiler compiler(vocabulary({"<think>", "</think>", "\n\n", "a", "b"}));
  const auto grammar = compiler.compile(value_of(choice_source({"a"})));
  ASSERT_TRUE(grammar.ok());
  const auto constraint = (*grammar)->make_constraint(Reasoning::kMayBegin);
  EXPECT_EQ(allowed_ids(*constraint, 7), (std::set<std::int32_t>{2, 5}));
  for (const std::int32_t id : {2, 6, 4, 3})
    ASSERT_TRUE(constraint->accept(id).ok()) << id;
  EXPECT_EQ(allowed_ids(*constraint, 7), (std::set<std::int32_t>{4, 5}));
  for (const std::int32_t id : {4, 5})
    ASSERT_TRUE(constraint->accept(id).ok()) << id;
  EXPECT_EQ(allowed_ids(*constraint, 7), std::set{kEnd});
}

}  // namespace
}  // namespace halfbyte
