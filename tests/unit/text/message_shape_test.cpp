// SPDX-License-Identifier: Apache-2.0
//
// Templates that disagree about messages with calls, each small enough to be rendered by hand.
#include "text/message_shape.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "text/chat_template.h"

namespace halfbyte {
namespace {

const std::string kCallAsItIs =
    "{% for c in m.tool_calls or [] %}[{{ c.function.name + ' ' + c.function.arguments }}]{% "
    "endfor %}";
const std::string kCallAsJson =
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]"
    "{% endfor %}";

// One line for each message.
std::string each(const std::string& body) {
  return "{% for m in messages %}" + body + "{{ '\\n' }}{% endfor %}";
}

class MessageShapeTest : public testing::Test {
 protected:
  MessageShapeTest()
      : path_(std::filesystem::temp_directory_path() /
              ("halfbyte_message_shape_test_" + std::to_string(getpid()) + ".jinja")) {}
  ~MessageShapeTest() override { std::filesystem::remove(path_); }

  // What a template makes of an assistant's message with `members`.
  std::string render(const std::string& source, const std::string& members) {
    std::ofstream(path_) << source;
    const auto loaded = ChatTemplate::load("/nothing", path_.string());
    if (!loaded.ok()) return loaded.status().to_string();
    const auto rendered =
        loaded.value()->render(R"({"messages": [{"role": "assistant", )" + members + "}]}");
    return rendered.ok() ? rendered.value() : std::string(rendered.status().message());
  }

  const std::filesystem::path path_;
};

std::string call_with(const std::string& arguments) {
  return R"("tool_calls": [{"type": "function", "function": {"name": "f", "arguments": )" +
         arguments + "}}]";
}

const std::string kCall = call_with(R"("{\"b\":1.50, \"a\":18446744073709551617}")");

TEST_F(MessageShapeTest, ContentIsATextWhereThatKeepsTheCalls) {
  const std::string source = each("{{ m.content + ':' }}" + kCallAsItIs);
  for (const char* content : {"\"content\": null, ", "\"content\": \"\", ", ""}) {
    EXPECT_EQ(render(source, content + kCall), ":[f {\"b\":1.50, \"a\":18446744073709551617}]\n");
  }
  EXPECT_EQ(render(source, "\"content\": \"Hm\", " + kCall),
            "Hm:[f {\"b\":1.50, \"a\":18446744073709551617}]\n");
}

TEST_F(MessageShapeTest, ContentIsNullWhereATextHidesTheCalls) {
  const std::string source =
      each("{% if m.content is none %}" + kCallAsItIs + "{% else %}{{ m.content }}{% endif %}");
  for (const char* content : {"\"content\": null, ", "\"content\": \"\", ", ""}) {
    EXPECT_EQ(render(source, content + kCall), "[f {\"b\":1.50, \"a\":18446744073709551617}]\n");
  }
}

// Else the calls would be gone without a word.
TEST_F(MessageShapeTest, CallsThatATextHidesStandBehindItOnTheirOwn) {
  const std::string source = each("{% if m.content is none %}{{ m.reasoning_content }}" +
                                  kCallAsItIs + "{% else %}{{ m.content }}{% endif %}");
  EXPECT_EQ(render(source, R"("content": "Hm", "reasoning_content": "r", )" + kCall),
            "Hm\n[f {\"b\":1.50, \"a\":18446744073709551617}]\n");
}

// Their order and their digits stay.
TEST_F(MessageShapeTest, ArgumentsAreObjectsWhereThatIsUnderstood) {
  const std::string want = "[f {\"b\": 1.5, \"a\": 18446744073709551617}]\n";
  EXPECT_EQ(render(each(kCallAsJson), kCall), want);
  EXPECT_EQ(render(each("{% for c in m.tool_calls or [] %}[f {{ c.function.arguments if "
                        "c.function.arguments is string else c.function.arguments | tojson }}]"
                        "{% endfor %}"),
                   kCall),
            want)
      << "both are";
  EXPECT_EQ(render(each("{% for c in m.tool_calls or [] %}{% for k, v in "
                        "c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}{% endfor %}"),
                   kCall),
            "b=1.5;a=18446744073709551617;\n");
}

TEST_F(MessageShapeTest, ArgumentsThatAreNoObjectStayAText) {
  EXPECT_EQ(render(each(kCallAsJson), call_with(R"("{\"b\":")")), "[f \"{\\\"b\\\":\"]\n");
  EXPECT_EQ(render(each(kCallAsJson), call_with(R"("[1]")")), "[f \"[1]\"]\n");
}

// As Python would print it is no form that a model was taught.
TEST_F(MessageShapeTest, ArgumentsAreATextWhereAnObjectWouldBePrinted) {
  const std::string source =
      each("{% for c in m.tool_calls or [] %}[{{ c.function.arguments }}]{% endfor %}");
  EXPECT_EQ(render(source, call_with(R"("{\"b\":1}")")), "[{\"b\":1}]\n");
}

TEST_F(MessageShapeTest, ATemplateWithoutCallsGetsMessagesAsTheyAre) {
  EXPECT_EQ(render(each("{{ m.content }}"), R"("content": "Hm", )" + kCall), "Hm\n");
  EXPECT_EQ(render(each("{{ m.content }}"), R"("content": null, )" + kCall), "\n");
}

}  // namespace
}  // namespace halfbyte
