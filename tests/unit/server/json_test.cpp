// SPDX-License-Identifier: Apache-2.0
#include "server/json.h"

#include <gtest/gtest.h>

namespace halfbyte::server {
namespace {

ApiError error_of(std::string_view body) {
  auto parsed = parse_object(body);
  const auto* error = std::get_if<ApiError>(&parsed);
  return error != nullptr ? *error : ApiError{200, "parsed", "", ""};
}

TEST(ParseObject, RefusesWhatIsNoJsonObject) {
  for (const char* body :
       {"", "{", "[]", "3", "{\"a\": NaN}", "{\"a\": 1e999}", "{\"a\" 1}", "null"}) {
    EXPECT_EQ(error_of(body).status, 400) << body;
    EXPECT_EQ(error_of(body).code, "invalid_json") << body;
  }
}

TEST(ParseObject, RefusesInvalidUtf8WhereItIs) {
  EXPECT_EQ(error_of("{\"a\": \"\xFF\"}").message, "the body is not UTF-8 at byte 7");
}

TEST(ParseObject, RefusesALoneSurrogate) {
  EXPECT_EQ(error_of(R"({"a": "\ud800"})").code, "invalid_json");
}

TEST(ParseObject, TakesSixtyFourLevelsAndNoMore) {
  const std::string open(63, '[');
  const std::string close(63, ']');
  EXPECT_EQ(error_of("{\"a\": " + open + close + "}").status, 200);
  EXPECT_EQ(error_of("{\"a\": [" + open + close + "]}").message,
            "the body is nested deeper than 64 levels");
}

TEST(ParseObject, DoesNotCountBracketsInStrings) {
  EXPECT_EQ(error_of("{\"a\": \"" + std::string(100, '[') + "\\\"" + std::string(100, '{') + "\"}")
                .status,
            200);
}

TEST(ParseObject, RefusesAnObjectOfVeryManyMembers) {
  std::string body = "{\"a\": 0";
  for (int i = 0; i < 1024; ++i)
    body += ",\"" + std::to_string(i) + "\": 0";
  EXPECT_EQ(error_of(body + "}").message, "an object of the body has more than 1024 members");
}

// 31 MiB of "{}," took 850 MiB, and would on each HTTP thread.
TEST(ParseObject, RefusesBodiesThatWouldTakeFarMoreMemory) {
  const auto list_of = [](const std::string& entry, std::size_t count) {
    std::string body = "{\"a\":[" + entry;
    for (std::size_t i = 1; i < count; ++i)
      body += "," + entry;
    return body + "]}";
  };
  constexpr std::size_t kNodes = 1U << 18, kValues = 1U << 22;
  EXPECT_EQ(error_of(list_of("{}", kNodes - 2)).status, 200);
  EXPECT_EQ(error_of(list_of("{}", kNodes - 1)).message,
            "the body has more than 262144 objects and lists");
  EXPECT_EQ(error_of(list_of("1", kValues)).status, 200);
  EXPECT_EQ(error_of(list_of("1", kValues + 1)).message, "the body has more than 4194304 values");
}

TEST(ParseObject, KeepsTheOrderOfMembers) {
  const auto parsed = parse_object(R"({"z": 1, "a": 2})");
  EXPECT_EQ(to_text(std::get<Json>(parsed)), R"({"z":1,"a":2})");
}

class Reading : public testing::Test {
 protected:
  FieldReader reader(const char* text, std::string path = "") {
    object_ = Json::parse(text);
    error_.reset();
    return {object_, std::move(path), error_};
  }
  Json object_;
  std::optional<ApiError> error_;
};

TEST_F(Reading, TakesNullForAbsent) {
  EXPECT_EQ(reader(R"({"n": null})").integer("n", 0, 5), std::nullopt);
  EXPECT_FALSE(error_);
}

TEST_F(Reading, NamesThePathOfAWrongType) {
  reader(R"({"content": 3})", "messages[2]").string("content");
  EXPECT_EQ(error_->param, "messages[2].content");
  EXPECT_EQ(error_->message, "messages[2].content is 3, want a string");
}

TEST_F(Reading, KeepsTheFirstViolation) {
  auto fields = reader(R"({"a": "x", "b": 9})");
  fields.boolean("a");
  fields.integer("b", 0, 5);
  EXPECT_EQ(error_->param, "a");
}

TEST_F(Reading, HoldsIntegersToTheirRange) {
  for (const char* text : {R"({"n": -1})", R"({"n": 6})", R"({"n": 1.0})", R"({"n": "1"})",
                           R"({"n": 18446744073709551615})"}) {
    EXPECT_EQ(reader(text).integer("n", 0, 5), std::nullopt) << text;
    EXPECT_EQ(error_->param, "n") << text;
  }
  EXPECT_EQ(reader(R"({"n": 5})").integer("n", 0, 5), 5);
}

TEST_F(Reading, LeavesTheLowEndOutWhereAsked) {
  EXPECT_EQ(reader(R"({"p": 0})").number("p", 0, 1, true), std::nullopt);
  EXPECT_TRUE(error_);
  EXPECT_EQ(reader(R"({"p": 0})").number("p", 0, 1, false), 0.0);
  EXPECT_FALSE(error_);
}

// Clients read error.message, error.type, error.param and error.code.
TEST(ErrorBody, IsNestedAsOpenAisClientsExpect) {
  EXPECT_EQ(
      error_body({404, "no", "model", "model_not_found"}),
      R"({"error":{"message":"no","type":"not_found_error","param":"model","code":"model_not_found"}})");
  EXPECT_EQ(error_body({500, "oh", "", ""}),
            R"({"error":{"message":"oh","type":"server_error","param":null,"code":null}})");
}

TEST(ErrorBody, ReplacesBytesThatAreNotUtf8) {
  EXPECT_NE(error_body({400, "\xFF", "", ""}).find("\xEF\xBF\xBD"), std::string::npos);
}

}  // namespace
}  // namespace halfbyte::server
