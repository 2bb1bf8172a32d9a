// SPDX-License-Identifier: Apache-2.0
//
// docs/openapi.json says what the code says.
#include "server/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "server/api.h"
#include "server/api_format.h"
#include "server/shared_fields.h"

namespace halfbyte::server {
namespace {

using ::testing::ContainerEq;
using ::testing::IsEmpty;
using Names = std::set<std::string>;

const Json& file() {
  static const Json parsed =
      Json::parse(std::ifstream(std::string(HALFBYTE_SOURCE_DIR) + "/docs/openapi.json"));
  return parsed;
}

const Json& schema(const std::string& name) {
  return file().at("components").at("schemas").at(name);
}

// "#/components/schemas/Error" as a pointer into the file.
const Json& resolve(const Json& reference) {
  return file().at(Json::json_pointer(reference.get<std::string>().substr(1)));
}

// Properties of a schema, and of those that it is all of.
void add_fields(const Json& described, Names& names) {
  if (described.contains("$ref")) return add_fields(resolve(described["$ref"]), names);
  if (described.contains("allOf")) {
    for (const Json& part : described["allOf"])
      add_fields(part, names);
  }
  if (!described.contains("properties")) return;
  for (const auto& item : described["properties"].items())
    names.insert(item.key());
}

Names fields_of(std::initializer_list<const char*> schemas) {
  Names names;
  for (const char* name : schemas)
    add_fields(schema(name), names);
  return names;
}

void expect_references_lead_somewhere(const Json& json) {
  for (const auto& item : json.items()) {
    if (item.key() == "$ref" && item.value().is_string()) {
      EXPECT_NO_THROW(resolve(item.value())) << item.value();
    } else if (item.value().is_structured()) {
      expect_references_lead_somewhere(item.value());
    }
  }
}

TEST(OpenApi, HasThePathsAndMethodsThatAreServed) {
  Names described, served;
  for (const auto& path : file().at("paths").items())
    for (const auto& method : path.value().items())
      described.insert(path.key() + " " + method.key());
  for (const auto& [path, method] : Api::endpoints()) {
    std::string lower(method);
    for (char& c : lower)
      c = static_cast<char>(c - 'A' + 'a');
    served.insert(std::string(path) + " " + lower);
  }
  EXPECT_THAT(described, ContainerEq(served));
}

TEST(OpenApi, HasTheFieldsThatChatsAndCompletionsRead) {
  Names known;
  for (const std::string_view name : known_fields())
    known.emplace(name);
  EXPECT_THAT(fields_of({"ChatCompletionRequest", "CompletionRequest"}), ContainerEq(known));
}

TEST(OpenApi, HasTheFieldsThatAllFormatsShare) {
  Names shared;
  for (const std::string_view name : shared_field_names())
    shared.emplace(name);
  EXPECT_THAT(fields_of({"SharedFields"}), ContainerEq(shared));
}

// A field that is described and not known would be ignored.
TEST(OpenApi, HasNoFieldThatAFormatDoesNotKnow) {
  const auto unknown = [](const ApiFormat& format, const char* name) {
    Json body = Json::object();
    for (const std::string& field : fields_of({name}))
      body[field] = nullptr;
    return format.unknown_fields(body);
  };
  EXPECT_THAT(unknown(*make_responses_format(nullptr), "ResponseRequest"), IsEmpty());
  EXPECT_THAT(unknown(*make_messages_format(), "MessagesRequest"), IsEmpty());
  EXPECT_THAT(unknown(*make_generate_format(), "GenerateRequest"), IsEmpty());
  const Json& sampling = schema("GenerateRequest").at("properties").at("sampling_params");
  EXPECT_THAT(
      make_generate_format()->unknown_fields({{"sampling_params", sampling.at("properties")}}),
      IsEmpty());
}

TEST(OpenApi, RefersToWhatItHas) {
  expect_references_lead_somewhere(file());
}

TEST(OpenApi, IsServedAsItIs) {
  const HttpResponse response = openapi_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_EQ(Json::parse(response.body), file());
}

}  // namespace
}  // namespace halfbyte::server
