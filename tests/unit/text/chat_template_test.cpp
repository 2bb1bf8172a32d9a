// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

namespace halfbyte {
namespace {

Status parse_failure(const std::string& source) {
  auto parsed = ChatTemplate::parse(source);
  EXPECT_FALSE(parsed.ok()) << source;
  return parsed.ok() ? Status() : parsed.take_status();
}

Status render_failure(const std::string& source, const std::string& variables = "{}") {
  const auto parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  auto rendered = parsed.value()->render(variables);
  EXPECT_FALSE(rendered.ok()) << source;
  return rendered.ok() ? Status() : rendered.take_status();
}

class ChatTemplateDirectory : public testing::Test {
 protected:
  ChatTemplateDirectory()
      : path_(std::filesystem::temp_directory_path() /
              ("halfbyte_chat_template_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~ChatTemplateDirectory() override { std::filesystem::remove_all(path_); }
  void write(const char* name, const char* content) { std::ofstream(path_ / name) << content; }
  std::string render(const char* variables) {
    const auto loaded = ChatTemplate::load(path_.string());
    if (!loaded.ok()) return loaded.status().to_string();
    return loaded.value()->render(variables).value();
  }

  std::filesystem::path path_;
};

TEST_F(ChatTemplateDirectory, TheFileBesideTheTokenizerComesFirst) {
  write("tokenizer_config.json",
        R"({"chat_template": "config {{ eos_token }}", "eos_token": "E"})");
  EXPECT_EQ(render("{}"), "config E");
  write("chat_template.jinja", "file {{ eos_token }}");
  EXPECT_EQ(render("{}"), "file E");
}

TEST_F(ChatTemplateDirectory, ANamedListHasATemplateForTools) {
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "B"}, "chat_template": [{"name": "default", "template": "d"},)"
        R"( {"name": "tool_use", "template": "t{{ bos_token }}"}]})");
  EXPECT_EQ(render("{}"), "d");
  EXPECT_EQ(render(R"({"tools": []})"), "d");
  EXPECT_EQ(render(R"({"tools": [1]})"), "tB");
}

TEST_F(ChatTemplateDirectory, AJsonFileOfItsOwnComesLast) {
  write("chat_template.json", R"({"chat_template": "json {{ eos_token }}"})");
  write("tokenizer_config.json", R"({"eos_token": "E"})");
  EXPECT_EQ(render("{}"), "json E");
  write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(render("{}"), "config");
}

// Each is found to want its own.
TEST_F(ChatTemplateDirectory, TheTemplateForToolsHasAShapeOfItsOwn) {
  const std::string begin =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments";
  const std::string end = " }}{% endfor %}{% endfor %}";
  const std::string config = R"({"chat_template": [{"name": "default", "template": ")" + begin +
                             end + R"("}, {"name": "tool_use", "template": ")" + begin +
                             " | tojson" + end + "\"}]}";
  write("tokenizer_config.json", config.c_str());
  const std::string messages =
      R"({"messages": [{"tool_calls": [{"function": {"arguments": "{\"a\":1}"}}]}])";
  EXPECT_EQ(render((messages + "}").c_str()), R"({"a":1})");
  EXPECT_EQ(render((messages + R"(, "tools": [1]})").c_str()), R"({"a": 1})");
}

TEST_F(ChatTemplateDirectory, NoTemplateIsNotFound) {
  EXPECT_EQ(ChatTemplate::load(path_.string()).status().code(), StatusCode::kNotFound);
}

TEST(ChatTemplate, NullKeysOfMessagesAreRemoved) {
  const auto parsed = ChatTemplate::parse("{{ messages[0].content is defined }}{{ x is none }}");
  ASSERT_TRUE(parsed.ok());
  const auto got = parsed.value()->render(R"({"messages": [{"content": null}], "x": null})");
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got.value(), "FalseTrue");
}

std::string rendered(const std::string& source) {
  const auto parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.value()->render("{}").value();
}

// transformers marks what the assistant says with them; they write nothing.
TEST(ChatTemplate, GenerationBlocksAreTransparent) {
  EXPECT_EQ(rendered("a{% generation %}b{{ 1 + 1 }}{% endgeneration %}c"), "ab2c");
  EXPECT_EQ(rendered("{% for i in [1, 2] %}{% generation %}{{ i }}{% endgeneration %}{% endfor %}"),
            "12");
}

TEST(ChatTemplate, KnowsTheTime) {
  const auto year = [] {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    return std::to_string(1900 + local.tm_year);
  };
  const std::string before = year();
  const std::string got = rendered("{{ strftime_now('%Y') }}");
  EXPECT_TRUE(got == before || got == year()) << got;
  EXPECT_EQ(rendered("{{ strftime_now('a%%b') }}"), "a%b");
  EXPECT_EQ(rendered("{{ strftime_now('%d %b %Y') | length }}"), "11");
  EXPECT_EQ(render_failure("{{ strftime_now() }}").code(), StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, ConstructsOutsideTheSubsetAreNamedWithTheirLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"\n{% include 'x' %}", "line 2: {% include %}"},
      {"{{ x | pprint }}", "line 1: the filter pprint"},
      {"{{ x is lower }}", "line 1: the test lower"},
      {"\n\n{{ x.encode() }}", "line 3: the method encode()"},
      {"{% for x in y recursive %}{% endfor %}", "line 1: a recursive for"}};
  for (const auto& [source, message] : cases) {
    const Status status = parse_failure(source);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << source;
    EXPECT_TRUE(status.message().starts_with(message)) << status.to_string();
  }
}

TEST(ChatTemplate, MistakesAreRefusedWithTheirLine) {
  for (const char* source : {"{% if x %}", "{{ x", "{% endif %}", "{{ 1 + }}", "{{ 'a }}", "{# a",
                             "{% for %}{% endfor %}", "{{ (1 }}", "{% break %}", "{{ x ? y }}"}) {
    const Status status = parse_failure(source);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << source;
    EXPECT_TRUE(status.message().starts_with("line 1: ")) << status.to_string();
  }
}

TEST(ChatTemplate, EndlessWorkStops) {
  for (const char* source :
       {"{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% for a in range(999999999999) %}{% endfor %}",
        "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}"
        "{% endfor %}",
        "{{ 'abc' * 999999999 }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l, n.l] %}"
        "{% endfor %}"}) {
    EXPECT_EQ(render_failure(source).code(), StatusCode::kInvalidArgument) << source;
  }
}

// 2^60 elements when printed, though only 60 lists exist.
TEST(ChatTemplate, SharedListsDoNotExplodeWhenPrintedOrCompared) {
  const std::string grow =
      "{% set n = namespace(l=['a'], k=['a']) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}"
      "{% set n.k = [n.k, n.k] %}{% endfor %}";
  EXPECT_FALSE(render_failure(grow + "{{ n.l }}").ok());
  EXPECT_FALSE(render_failure(grow + "{{ n.l | tojson }}").ok());
  EXPECT_FALSE(render_failure(grow + "{{ n.l == n.k }}").ok());
}

TEST(ChatTemplate, DeepNestingIsRefusedNotOverflowed) {
  const std::string many(100000, '(');
  EXPECT_FALSE(parse_failure("{{ " + many + "1" + std::string(many.size(), ')') + " }}").ok());
  EXPECT_FALSE(parse_failure("{{ " + std::string(100000, '-') + "1 }}").ok());
  std::string sum = "{{ 1";
  std::string blocks;
  for (int i = 0; i < 100000; ++i)
    sum += "+1";
  for (int i = 0; i < 1000; ++i)
    blocks += "{% if x %}";
  EXPECT_FALSE(parse_failure(sum + " }}").ok());
  EXPECT_FALSE(parse_failure(blocks).ok());
  const std::string brackets(100000, '[');
  EXPECT_FALSE(render_failure("x", R"({"messages": )" + brackets).ok());
}

TEST(ChatTemplate, VariablesThatAreNoJsonObjectAreRefused) {
  EXPECT_EQ(render_failure("x", "[1]").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(render_failure("x", "{\"a\": }").code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace halfbyte
