// SPDX-License-Identifier: Apache-2.0
//
// Constrained answers through everything but the sockets, of an engine whose tokens mean nothing:
// only the grammar makes sense of them.
#include <thread>

#include "unit/server/api_fixture.h"

namespace halfbyte::server {
namespace {

// Of what the fake engine's vocabulary can write.
Json order_schema() {
  return Json::parse(R"({"type": "object", "required": ["size", "express"], "properties": {
      "size": {"enum": ["small", "large"]}, "express": {"type": "boolean"}}})");
}

class ConstraintApiTest : public ApiTest {
 protected:
  Json body(std::uint32_t seed, std::int64_t limit, const Json& fields) {
    Json made = body_for(fake_prompt(7, seed), limit);
    made.update(fields);
    return made;
  }
  static std::string text_of(const Json& answer) { return answer["choices"][0]["text"]; }
};

TEST_F(ConstraintApiTest, MakesJsonOfAnyModel) {
  make_ready();
  const Json fields = {{"structured_outputs", {{"json", order_schema()}}}};
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    const Json answer = complete_ok(body(seed, 200, fields));
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop") << text_of(answer);
    const Json order = Json::parse(text_of(answer));
    EXPECT_TRUE(order["size"] == "small" || order["size"] == "large") << order;
    EXPECT_TRUE(order["express"].is_boolean()) << order;
    EXPECT_EQ(order.size(), 2U) << order;
  }
}

TEST_F(ConstraintApiTest, StreamsTheSameJson) {
  make_ready();
  Json request = body(3, 200, {{"structured_outputs", {{"json", order_schema()}}}, {"n", 3}});
  request["temperature"] = 1;
  request["seed"] = 5;
  const Json whole = complete_ok(request);
  request["stream"] = true;
  std::vector<std::string> texts(3);
  for (const Json& event : events_of(complete(request).body)) {
    const Json& choice = event["choices"][0];
    texts[choice["index"].get<std::size_t>()] += choice["text"].get<std::string>();
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(whole["choices"][i]["text"], texts[i]);
    EXPECT_TRUE(Json::accept(texts[i])) << texts[i];
  }
}

// A grammar's state is its request's, also where requests are preempted for want of blocks.
TEST_F(ConstraintApiTest, GivesTheSameAnswerAloneAndInACrowd) {
  FakeOptions options;
  options.num_blocks = 8;
  make_ready(options);
  const Json fields = {{"regex", "([a-f]{4}-){9}[0-9]+x"}, {"temperature", 1}, {"seed", 3}};
  std::vector<std::string> alone;
  for (std::uint32_t i = 0; i < 6; ++i)
    alone.push_back(text_of(complete_ok(body(i, 60, fields))));
  std::vector<std::string> together(6);
  std::vector<std::thread> clients;
  for (std::uint32_t i = 0; i < 6; ++i) {
    clients.emplace_back([&, i] { together[i] = text_of(complete_ok(body(i, 60, fields))); });
  }
  for (std::thread& client : clients)
    client.join();
  EXPECT_EQ(together, alone);
}

TEST_F(ConstraintApiTest, CompilesForSeveralClientsAtOnce) {
  make_ready();
  std::vector<std::thread> clients;
  for (std::uint32_t i = 0; i < 6; ++i) {
    clients.emplace_back([&, i] {
      const std::string word(1 + i % 3, static_cast<char>('a' + i % 3));
      const Json fields = {{"structured_outputs", {{"choice", {word}}}}};
      EXPECT_EQ(text_of(complete_ok(body(i, 20, fields))), word);
    });
  }
  for (std::thread& client : clients)
    client.join();
}

// The vocabulary's first 101 tokens have no letter beyond ASCII: the grammar is at fault, not the
// server.
TEST_F(ConstraintApiTest, EndsWithAnErrorOfTheRequestWhereNoTokenCanGoOn) {
  make_ready();
  Json request = body(1, 20, {{"regex", "ab\\u4e2d"}});
  const Received received = complete(request);
  EXPECT_EQ(received.status, 400);
  const Json error = Json::parse(received.body)["error"];
  EXPECT_EQ(error["param"], "regex");
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_THAT(received.body, HasSubstr("mask allows no token"));
  request["stream"] = true;
  const std::vector<Json> events = events_of(complete(request).body);
  EXPECT_EQ(events.front()["choices"][0]["text"], "a");
  EXPECT_EQ(events.back()["error"]["param"], "regex");
  EXPECT_EQ(text_of(complete_ok(body(1, 20, {{"regex", "ab"}}))), "ab");
}

TEST_F(ConstraintApiTest, NamesTheFieldThatTheClientWroteWhereNoTokenCanGoOn) {
  make_ready();
  const Json request = {{"input_ids", fake_prompt(7, 1)},
                        {"sampling_params", {{"regex", "ab\\u4e2d"}, {"temperature", 0}}}};
  const Received received = ask("/generate", request);
  EXPECT_EQ(received.status, 400);
  EXPECT_EQ(Json::parse(received.body)["error"]["param"], "sampling_params.regex");
}

TEST_F(ConstraintApiTest, StopsAtMaxTokensInsideTheGrammar) {
  make_ready();
  const Json answer = complete_ok(body(1, 3, {{"regex", "a{10}"}}));
  EXPECT_EQ(text_of(answer), "aaa");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
}

TEST_F(ConstraintApiTest, RefusesABadSchemaAndServesTheNextRequest) {
  make_ready();
  const Json fields = {{"response_format",
                        {{"type", "json_schema"},
                         {"json_schema", {{"name", "n"}, {"schema", {{"not", Json::object()}}}}}}}};
  const Received received = complete(body(1, 20, fields));
  EXPECT_EQ(received.status, 400);
  const Json error = Json::parse(received.body)["error"];
  EXPECT_EQ(error["param"], "response_format.json_schema.schema");
  EXPECT_EQ(error["code"], "unsupported_value");
  EXPECT_EQ(text_of(complete_ok(body(1, 20, {{"regex", "ab"}}))), "ab");
}

}  // namespace
}  // namespace halfbyte::server
