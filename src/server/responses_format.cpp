// SPDX-License-Identifier: Apache-2.0
//
// OpenAI's /v1/responses.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "server/api_format.h"
#include "server/block_writer.h"
#include "server/logprobs.h"
#include "server/response_store.h"
#include "server/responses_request.h"
#include "server/shared_fields.h"

namespace halfbyte::server {
namespace {

constexpr auto kOwnFields = std::to_array<std::string_view>({"input",
                                                             "instructions",
                                                             "max_output_tokens",
                                                             "max_tool_calls",
                                                             "metadata",
                                                             "parallel_tool_calls",
                                                             "previous_response_id",
                                                             "reasoning",
                                                             "store",
                                                             "text",
                                                             "tool_choice",
                                                             "tools",
                                                             "top_logprobs",
                                                             "truncation",
                                                             "include",
                                                             "background",
                                                             "conversation",
                                                             "prompt",
                                                             "user",
                                                             "safety_identifier",
                                                             "prompt_cache_key",
                                                             "service_tier",
                                                             "stream_options"});

// Of a kind of block: the prefix of its ids, and the name of the events that carry its text.
struct ItemForm {
  std::string_view id_prefix;
  std::string_view event;
};
constexpr std::array<ItemForm, 3> kForms = {{{"rs_", "response.reasoning_text"},
                                             {"msg_", "response.output_text"},
                                             {"fc_", "response.function_call_arguments"}}};

Json to_json(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

std::string_view status_of(const Choice& choice) {
  if (choice.finish_reason() == "length") return "incomplete";
  return choice.finish_reason() == "abort" ? "cancelled" : "completed";
}

// What the request's `answer_fields` are: {shown, messages}, the fields of the request that the
// response repeats, and the conversation.
class ResponsesWriter : public BlockWriter {
 public:
  ResponsesWriter(AnswerSource source, std::shared_ptr<ResponseStore> store)
      : BlockWriter(std::move(source)), store_(std::move(store)) {}
  // A client that leaves cancels its response.
  ~ResponsesWriter() override { keep("cancelled"); }

  std::string begin() override;
  std::string first_event(const Place&) override { return {}; }
  std::string error_events(const ApiError& error) override;
  HttpResponse error_response(const ApiError& error) override;

 private:
  std::string open_event(const Block& block) override;
  Json logprobs_of(const Tokens& tokens) const override;
  std::string more_event(const Block& block,
                         const std::string& text,
                         const Json& logprobs) override;
  std::string close_event(const Block& block) override;
  std::string final_events(const Place& place) override;
  Json whole(const Place&) override { return response_; }

  std::string event(std::string_view type, const Json& members);
  std::string item_event(std::string_view type, const Json& members);
  static const ItemForm& form_of(const Block& block) {
    return kForms.at(static_cast<std::size_t>(block.kind));
  }
  Json part_of(const Block& block, bool is_whole) const;
  Json item_of(std::size_t idx, bool is_whole) const;
  std::string item_id(std::size_t idx) const;
  std::size_t last_idx() const { return blocks().size() - 1; }
  Json answer_message() const;
  void keep(std::string_view status);
  void fail(const ApiError& error);

  const std::shared_ptr<ResponseStore> store_;
  Json response_;  // as it stands
  int sequence_number_ = 0;
  bool has_begun_ = false;
  bool has_ended_ = false;
};

// ---------------------------------------------------------------- the response

std::string ResponsesWriter::begin() {
  const Json& shown = request().answer_fields.at("shown");
  response_ = {{"id", id()},
               {"object", "response"},
               {"created_at", created()},
               {"status", "in_progress"},
               {"background", false},
               {"error", nullptr},
               {"incomplete_details", nullptr},
               {"model", request().model},
               {"output", Json::array()}};
  response_.update(shown);
  response_["usage"] = nullptr;
  has_begun_ = true;
  if (shown.at("store") == true) store_->add(id(), {response_, Json::array()});
  std::string events = event("response.created", {{"response", response_}});
  events += event("response.in_progress", {{"response", response_}});
  return events;
}

// The end, for later requests; only once.
void ResponsesWriter::keep(std::string_view status) {
  if (!has_begun_ || std::exchange(has_ended_, true)) return;
  response_["status"] = status;
  if (response_["store"] != true) return;
  Json messages = request().answer_fields.at("messages");
  messages.push_back(answer_message());
  store_->replace(id(), {response_, std::move(messages)});
}

Json ResponsesWriter::answer_message() const {
  std::string reasoning, content;
  Json calls = Json::array();
  for (const Block& block : blocks()) {
    if (block.kind == BlockKind::kReasoning) reasoning += block.text;
    if (block.kind == BlockKind::kText) content += block.text;
    if (block.kind != BlockKind::kCall) continue;
    calls.push_back({{"id", block.call_id},
                     {"type", "function"},
                     {"function", {{"name", block.name}, {"arguments", block.text}}}});
  }
  Json message = {{"role", "assistant"}, {"content", content}};
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

std::string ResponsesWriter::final_events(const Place& place) {
  const std::string_view status = status_of(place.choice);
  for (std::size_t i = 0; i < blocks().size(); ++i) {
    response_["output"].push_back(item_of(i, true));
  }
  if (status == "incomplete") response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
  response_["usage"] = to_json(place.usage);
  keep(status);
  return event(status == "completed" ? "response.completed" : "response.incomplete",
               {{"response", response_}});
}

void ResponsesWriter::fail(const ApiError& error) {
  response_["error"] = {{"code", error_type(error.status)}, {"message", error.message}};
  keep("failed");
}

std::string ResponsesWriter::error_events(const ApiError& error) {
  fail(error);
  std::string events =
      event("error",
            {{"code", error_type(error.status)}, {"message", error.message}, {"param", nullptr}});
  events += event("response.failed", {{"response", response_}});
  return events;
}

HttpResponse ResponsesWriter::error_response(const ApiError& error) {
  fail(error);
  return server::error_response(error);
}

// ---------------------------------------------------------------- items

std::string ResponsesWriter::item_id(std::size_t idx) const {
  const std::string_view random = std::string_view(id()).substr(id().find('_') + 1);
  return fmt::format("{}{}{:02x}", form_of(blocks()[idx]).id_prefix, random, idx);
}

Json ResponsesWriter::logprobs_of(const Tokens& tokens) const {
  if (request().sampling.num_logprobs < 0) return Json::array();
  Json logprobs = chat_logprobs(tokens, tokenizer());
  return std::move(logprobs["content"]);
}

Json ResponsesWriter::part_of(const Block& block, bool is_whole) const {
  const std::string text = is_whole ? block.text : "";
  if (block.kind == BlockKind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", is_whole ? block.logprobs : Json::array()}};
}

Json ResponsesWriter::item_of(std::size_t idx, bool is_whole) const {
  const Block& block = blocks()[idx];
  const char* status = !is_whole ? "in_progress" : block.is_cut ? "incomplete" : "completed";
  if (block.kind == BlockKind::kCall) {
    return {{"id", item_id(idx)}, {"type", "function_call"},
            {"status", status},   {"call_id", block.call_id},
            {"name", block.name}, {"arguments", is_whole ? block.text : ""}};
  }
  Json content = Json::array();
  if (is_whole) content.push_back(part_of(block, true));
  if (block.kind == BlockKind::kReasoning) {
    return {{"id", item_id(idx)},           {"type", "reasoning"},
            {"summary", Json::array()},     {"content", std::move(content)},
            {"encrypted_content", nullptr}, {"status", status}};
  }
  return {{"id", item_id(idx)},
          {"type", "message"},
          {"status", status},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

// ---------------------------------------------------------------- events

std::string ResponsesWriter::event(std::string_view type, const Json& members) {
  Json json = {{"type", type}, {"sequence_number", sequence_number_++}};
  json.update(members);
  return to_typed_event(json);
}

// About what is in the last item.
std::string ResponsesWriter::item_event(std::string_view type, const Json& members) {
  Json json = {{"item_id", item_id(last_idx())}, {"output_index", last_idx()}};
  if (blocks().back().kind != BlockKind::kCall) json["content_index"] = 0;
  json.update(members);
  return event(type, json);
}

std::string ResponsesWriter::open_event(const Block& block) {
  std::string events = event("response.output_item.added",
                             {{"output_index", last_idx()}, {"item", item_of(last_idx(), false)}});
  if (block.kind == BlockKind::kCall) return events;
  return events + item_event("response.content_part.added", {{"part", part_of(block, false)}});
}

std::string ResponsesWriter::more_event(const Block& block,
                                        const std::string& text,
                                        const Json& logprobs) {
  Json members = {{"delta", text}};
  if (block.kind == BlockKind::kText) members["logprobs"] = logprobs;
  return item_event(fmt::format("{}.delta", form_of(block).event), members);
}

std::string ResponsesWriter::close_event(const Block& block) {
  const bool is_call = block.kind == BlockKind::kCall;
  Json members = {{is_call ? "arguments" : "text", block.text}};
  if (is_call) members["name"] = block.name;
  if (block.kind == BlockKind::kText) members["logprobs"] = block.logprobs;
  std::string events = item_event(fmt::format("{}.done", form_of(block).event), members);
  if (!is_call) {
    events += item_event("response.content_part.done", {{"part", part_of(block, true)}});
  }
  return events + event("response.output_item.done",
                        {{"output_index", last_idx()}, {"item", item_of(last_idx(), true)}});
}

// ---------------------------------------------------------------- requests

Json given_or(const Json& body, std::string_view name, const Json& otherwise) {
  const Json& given = member_of(body, name);
  return given.is_null() ? otherwise : given;
}

// Fields of the request that the response repeats, with what stood in for absent ones.
Json shown_fields(const Json& body, const SamplingDefaults& defaults) {
  return {{"instructions", member_of(body, "instructions")},
          {"max_output_tokens", member_of(body, "max_output_tokens")},
          {"metadata", given_or(body, "metadata", Json::object())},
          {"parallel_tool_calls", given_or(body, "parallel_tool_calls", true)},
          {"previous_response_id", member_of(body, "previous_response_id")},
          {"reasoning", given_or(body, "reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
          {"service_tier", "default"},
          {"store", given_or(body, "store", true)},
          {"temperature", given_or(body, "temperature", defaults.temperature)},
          {"text", given_or(body, "text", {{"format", {{"type", "text"}}}})},
          {"tool_choice", given_or(body, "tool_choice", "auto")},
          {"tools", given_or(body, "tools", Json::array())},
          {"top_logprobs", given_or(body, "top_logprobs", 0)},
          {"top_p", given_or(body, "top_p", defaults.top_p)},
          {"truncation", "disabled"},
          {"user", member_of(body, "user")}};
}

class ResponsesFormat : public ApiFormat {
 public:
  explicit ResponsesFormat(std::shared_ptr<ResponseStore> store) : store_(std::move(store)) {}
  std::string_view id_prefix() const override { return "resp_"; }
  std::variant<GenerationRequest, ApiError> read(const Json& body,
                                                 const RequestScope& scope) const override;
  std::vector<std::string> unknown_fields(const Json& body) const override {
    return fields_beyond(body, kOwnFields);
  }
  std::unique_ptr<AnswerWriter> make_writer(AnswerSource source) const override {
    return std::make_unique<ResponsesWriter>(std::move(source), store_);
  }

 private:
  Json earlier_messages(FieldReader& reader) const;

  const std::shared_ptr<ResponseStore> store_;
};

// The conversation that the request goes on from.
Json ResponsesFormat::earlier_messages(FieldReader& reader) const {
  constexpr std::string_view kField = "previous_response_id";
  const auto id = reader.string(kField);
  if (!id) return Json::array();
  const auto stored = store_->find(*id);
  if (stored == nullptr) {
    reader.fail(kField,
                fmt::format("there is no response {}: it was not stored, or is forgotten",
                            Json(*id).dump()),
                "previous_response_not_found");
    return Json::array();
  }
  if (stored->response["status"] == "in_progress") {
    reader.fail(kField, fmt::format("the response {} has not ended", *id));
  }
  return stored->messages;
}

std::variant<GenerationRequest, ApiError> ResponsesFormat::read(const Json& body,
                                                                const RequestScope& scope) const {
  PathMap paths;
  std::optional<ApiError> error;
  FieldReader reader(body, "", error);
  reader.boolean("store");
  reader.object("metadata");
  reader.string("user");
  Json chat = chat_of_responses(body, earlier_messages(reader), paths, error);
  if (error) return std::move(*error);
  auto result = as_written(read_chat_request(chat, scope), paths);
  auto* request = std::get_if<GenerationRequest>(&result);
  if (request == nullptr) return result;
  Json messages = std::move(chat["messages"]);
  // Those are of this request only.
  if (reader.find("instructions") != nullptr) messages.erase(messages.begin());
  request->answer_fields = {{"shown", shown_fields(body, scope.text->defaults())},
                            {"messages", std::move(messages)}};
  return result;
}

}  // namespace

std::unique_ptr<const ApiFormat> make_responses_format(std::shared_ptr<ResponseStore> store) {
  return std::make_unique<ResponsesFormat>(std::move(store));
}

}  // namespace halfbyte::server
