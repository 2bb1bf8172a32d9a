// SPDX-License-Identifier: Apache-2.0
#include "server/messages_format.h"

#include <array>
#include <utility>

#include "server/api_format.h"
#include "server/block_writer.h"
#include "server/messages_request.h"
#include "server/shared_fields.h"

namespace halfbyte::server {
namespace {

constexpr auto kOwnFields =
    std::to_array<std::string_view>({"messages", "system", "max_tokens", "stop_sequences", "tools",
                                     "tool_choice", "thinking", "output_config", "metadata"});

// Anthropic's word for a status.
std::string_view messages_error_type(int status) {
  switch (status) {
    case 413:
      return "request_too_large";
    case 408:
      return "timeout_error";
    case 500:
      return "api_error";
    case 503:
      return "overloaded_error";
    default:
      return error_type(status);
  }
}

Json error_json(const ApiError& error) {
  Json inner = {{"type", messages_error_type(error.status)}, {"message", error.message}};
  if (!error.param.empty()) inner["param"] = error.param;
  return {{"type", "error"}, {"error", std::move(inner)}};
}

Json to_json(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

// null: from outside (an abort).
Json stop_reason_of(const Choice& choice) {
  const std::string& reason = choice.finish_reason();
  if (reason == "stop") return choice.stop_reason().is_string() ? "stop_sequence" : "end_turn";
  if (reason == "length") return "max_tokens";
  return reason == "tool_calls" ? Json("tool_use") : Json();
}

Json stop_sequence_of(const Choice& choice) {
  return choice.stop_reason().is_string() ? choice.stop_reason() : Json();
}

// A limit may cut arguments, and nobody checks them: Anthropic's guide wraps what is no JSON so.
Json input_of(const std::string& arguments) {
  auto input = parse_object(arguments);
  if (auto* object = std::get_if<Json>(&input)) return std::move(*object);
  return {{"INVALID_JSON", arguments}};
}

class MessagesWriter : public BlockWriter {
 public:
  using BlockWriter::BlockWriter;

  std::string first_event(const Place& place) override {
    return to_typed_event({{"type", "message_start"}, {"message", message(place, false)}}) +
           to_typed_event({{"type", "ping"}});
  }
  std::string error_events(const ApiError& error) override {
    return to_typed_event(error_json(error));
  }
  HttpResponse error_response(const ApiError& error) override { return messages_refusal(error); }

 private:
  Json message(const Place& place, bool is_whole) const;
  static Json describe(const Block& block, bool is_whole);
  std::size_t last_idx() const { return blocks().size() - 1; }

  std::string open_event(const Block& block) override {
    return to_typed_event({{"type", "content_block_start"},
                           {"index", last_idx()},
                           {"content_block", describe(block, false)}});
  }
  std::string more_event(const Block& block, const std::string& text, const Json&) override;
  std::string close_event(const Block&) override {
    return to_typed_event({{"type", "content_block_stop"}, {"index", last_idx()}});
  }
  std::string final_events(const Place& place) override;
  Json whole(const Place& place) override { return message(place, true); }
};

Json MessagesWriter::describe(const Block& block, bool is_whole) {
  const std::string text = is_whole ? block.text : "";
  if (block.kind == BlockKind::kText) return {{"type", "text"}, {"text", text}};
  if (block.kind == BlockKind::kReasoning) {
    return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
  }
  return {{"type", "tool_use"},
          {"id", block.call_id},
          {"name", block.name},
          {"input", text.empty() ? Json::object() : input_of(text)}};
}

std::string MessagesWriter::more_event(const Block& block, const std::string& text, const Json&) {
  struct Delta {
    const char* type;
    const char* member;
  };
  static constexpr std::array<Delta, 3> kDeltas = {{{"thinking_delta", "thinking"},
                                                    {"text_delta", "text"},
                                                    {"input_json_delta", "partial_json"}}};
  const auto& [type, member] = kDeltas.at(static_cast<std::size_t>(block.kind));
  return to_typed_event({{"type", "content_block_delta"},
                         {"index", last_idx()},
                         {"delta", {{"type", type}, {member, text}}}});
}

std::string MessagesWriter::final_events(const Place& place) {
  return to_typed_event({{"type", "message_delta"},
                         {"delta",
                          {{"stop_reason", stop_reason_of(place.choice)},
                           {"stop_sequence", stop_sequence_of(place.choice)}}},
                         {"usage", to_json(place.usage)}}) +
         to_typed_event({{"type", "message_stop"}});
}

Json MessagesWriter::message(const Place& place, bool is_whole) const {
  Json content = Json::array();
  for (const Block& block : blocks()) {
    content.push_back(describe(block, is_whole));
  }
  return {{"id", id()},
          {"type", "message"},
          {"role", "assistant"},
          {"model", request().model},
          {"content", std::move(content)},
          {"stop_reason", is_whole ? stop_reason_of(place.choice) : Json()},
          {"stop_sequence", is_whole ? stop_sequence_of(place.choice) : Json()},
          {"usage", to_json(place.usage)}};
}

class MessagesFormat : public ApiFormat {
 public:
  std::string_view id_prefix() const override { return "msg_"; }
  std::variant<GenerationRequest, ApiError> read(const Json& body,
                                                 const RequestScope& scope) const override;
  std::vector<std::string> unknown_fields(const Json& body) const override {
    return fields_beyond(body, kOwnFields);
  }
  std::unique_ptr<AnswerWriter> make_writer(AnswerSource source) const override {
    return std::make_unique<MessagesWriter>(std::move(source));
  }
  HttpResponse refusal(const ApiError& error) const override { return messages_refusal(error); }
};

std::variant<GenerationRequest, ApiError> MessagesFormat::read(const Json& body,
                                                               const RequestScope& scope) const {
  PathMap paths;
  std::optional<ApiError> error;
  Json chat = chat_of_messages(body, paths, error);
  FieldReader reader(body, "", error);
  const Json* limit = reader.find("max_tokens");
  if (limit == nullptr) reader.fail("max_tokens", "max_tokens is required");
  if (error) return std::move(*error);
  chat["max_tokens"] = *limit;
  return as_written(read_chat_request(chat, scope), paths);
}

}  // namespace

HttpResponse messages_refusal(const ApiError& error) {
  HttpResponse response = error_response(error);
  response.body = to_text(error_json(error));
  return response;
}

std::variant<std::int64_t, ApiError> count_message_tokens(const Json& body,
                                                          const RequestScope& scope) {
  PathMap paths;
  std::optional<ApiError> error;
  const Json chat = chat_of_messages(body, paths, error);
  if (error) return std::move(*error);
  read_model_name(chat, scope, error);
  const Conversation conversation = read_conversation(chat, scope, error);
  if (error) return paths.as_written(std::move(*error));
  return static_cast<std::int64_t>(conversation.ids.size());
}

std::unique_ptr<const ApiFormat> make_messages_format() {
  return std::make_unique<MessagesFormat>();
}

}  // namespace halfbyte::server
