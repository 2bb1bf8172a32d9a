// SPDX-License-Identifier: Apache-2.0
//
// Conversations through the templates of several families, which disagree about what they are
// given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api_format.h"
#include "unit/server/shipped_text.h"

namespace halfbyte::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTemplates = HALFBYTE_SOURCE_DIR "/tests/unit/text/data/";
constexpr std::int64_t kContext = 8192;

class ConversationTemplate : public ::testing::TestWithParam<const char*> {
 protected:
  std::string prompt_of(const ApiFormat& format, const Json& body) const {
    const auto result = format.read(body, scope_of(*text_, kContext));
    if (const auto* error = std::get_if<ApiError>(&result)) return "refused: " + error->message;
    return tokenizer().decode(std::get<GenerationRequest>(result).prompts.at(0), false);
  }
  // A chat whose assistant has called a tool; `more` members of its message.
  std::string prompt_with(const Json& more) const {
    Json body = Json::parse(R"({"messages": [
        {"role": "user", "content": "How warm is it?"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function",
          "function": {"name": "get_weather", "arguments": "{\"city\": \"Bern\"}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "12"}]})");
    body["messages"][1].update(more);
    return prompt_of(*make_chat_format(), body);
  }

  const std::unique_ptr<ModelText> text_ =
      load_text({.chat_template = kTemplates + GetParam() + "_chat_template.jinja"});
};

TEST_P(ConversationTemplate, HasEarlierCallsWithoutText) {
  const std::string prompt = prompt_with({{"content", nullptr}});
  EXPECT_THAT(prompt, HasSubstr("get_weather"));
  EXPECT_THAT(prompt, HasSubstr(R"({"city": "Bern"})"));
  EXPECT_EQ(prompt_with(Json::object()), prompt);
  EXPECT_EQ(prompt_with({{"content", ""}}), prompt);
  EXPECT_EQ(prompt_with({{"content", Json::array()}}), prompt);
}

TEST_P(ConversationTemplate, HasEarlierCallsBesideText) {
  const std::string prompt = prompt_with({{"content", "Let me see."}});
  EXPECT_THAT(prompt, HasSubstr("Let me see."));
  EXPECT_THAT(prompt, HasSubstr("get_weather"));
  EXPECT_THAT(prompt, HasSubstr(R"({"city": "Bern"})"));
}

TEST_P(ConversationTemplate, HasEarlierCallsOfOtherFormats) {
  const Json message = Json::parse(R"({"max_tokens": 5, "messages": [
      {"role": "user", "content": "How warm is it?"},
      {"role": "assistant", "content": [
        {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Bern"}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "12"}]}]})");
  EXPECT_THAT(prompt_of(*make_messages_format(), message), HasSubstr("get_weather"));
  const Json response = Json::parse(R"({"store": false, "input": [
      {"role": "user", "content": "How warm is it?"},
      {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c1", "output": "12"}]})");
  EXPECT_THAT(prompt_of(*make_responses_format(nullptr), response), HasSubstr("get_weather"));
}

TEST_P(ConversationTemplate, TakesAnAssistantThatSaidNothing) {
  const auto prompt_of_silence = [this](const char* assistant) {
    Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}};
    body["messages"].push_back(Json::parse(assistant));
    return prompt_of(*make_chat_format(), body);
  };
  const std::string prompt = prompt_of_silence(R"({"role": "assistant", "content": ""})");
  EXPECT_THAT(prompt, Not(HasSubstr("refused")));
  EXPECT_EQ(prompt_of_silence(R"({"role": "assistant", "content": null})"), prompt);
  EXPECT_EQ(prompt_of_silence(R"({"role": "assistant", "content": null, "tool_calls": []})"),
            prompt_of_silence(R"({"role": "assistant", "content": "", "tool_calls": []})"));
}

TEST_P(ConversationTemplate, GoesOnInTheLastMessage) {
  const Json body = Json::parse(R"({"continue_final_message": true, "messages": [
      {"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "It is"}]})");
  const std::string prompt = prompt_of(*make_chat_format(), body);
  EXPECT_THAT(prompt, EndsWith("It is"));
  EXPECT_THAT(prompt, HasSubstr("1 + 1"));
}

INSTANTIATE_TEST_SUITE_P(Templates,
                         ConversationTemplate,
                         ::testing::Values("qwen3", "deepseek_v3", "deepseek_v31"),
                         [](const auto& one) { return std::string(one.param); });

// DeepSeek-V3.1's prompt ends inside the reasoning, or behind it.
TEST(ConversationTemplateOfDeepSeek, BeginsTheAnswerWhereItsPromptEnds) {
  const auto text = load_text({.reasoning_parser = "deepseek-v3",
                               .chat_template = kTemplates + "deepseek_v31_chat_template.jinja"});
  const auto reasoning = [&text](bool thinking) {
    Json body = Json::parse(R"({"messages": [{"role": "user", "content": "Hi"}]})");
    body["chat_template_kwargs"]["thinking"] = thinking;
    const auto result = read_chat_request(body, scope_of(*text, kContext));
    return std::get<GenerationRequest>(result).reasoning;
  };
  EXPECT_EQ(reasoning(true), Reasoning::kBegun);
  EXPECT_EQ(reasoning(false), Reasoning::kNone);
}

}  // namespace
}  // namespace halfbyte::server
