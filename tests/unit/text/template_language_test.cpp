// SPDX-License-Identifier: Apache-2.0
//
// The language of templates, case by case. Expected values: Jinja2 3.1 with trim_blocks and
// lstrip_blocks, and the tojson of transformers.
#include <gtest/gtest.h>

#include <string>

#include "text/chat_template.h"

namespace halfbyte {
namespace {

struct Case {
  const char* source;
  const char* expected;
};

constexpr const char* kVariables =
    R"({"s": "Hello", "u": "h\u00e9\u4e16", "n": 3, "f": 1.5, "big": 123456789012345678901,)"
    R"( "l": [1, "a", null, true], "d": {"b": 1, "a": {"x": "<&\"\u00e9\n"}}, "t": true,)"
    R"( "m": [{"role": "user", "k": 1}, {"role": "tool"}, {"role": "user", "k": 2}]})";

std::string render(const char* source) {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.status().to_string();
  const auto rendered = parsed.value()->render(kVariables);
  return rendered.ok() ? rendered.value() : std::string(rendered.status().message());
}

class TemplateLanguage : public testing::TestWithParam<Case> {};

TEST_P(TemplateLanguage, MatchesJinja) {
  EXPECT_EQ(render(GetParam().source), GetParam().expected) << GetParam().source;
}

constexpr Case kCases[] = {
#include "unit/text/template_cases.inc"
};

INSTANTIATE_TEST_SUITE_P(Cases, TemplateLanguage, testing::ValuesIn(kCases));

}  // namespace
}  // namespace halfbyte
