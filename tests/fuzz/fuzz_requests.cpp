// SPDX-License-Identifier: Apache-2.0
//
// Bodies of requests: whatever they hold, they are accepted or refused with 400 or 404, and a
// refusal says why.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "server/api_format.h"
#include "server/response_store.h"

namespace halfbyte::server {
namespace {

const ModelText& model_text() {
  static const std::unique_ptr<ModelText> text = [] {
    auto loaded = ModelText::load(HALFBYTE_SOURCE_DIR "/models/gsm-mini-qwen3moe-nvfp4",
                                  {.tool_call_parser = "qwen3", .reasoning_parser = "qwen3"});
    if (!loaded.ok()) std::abort();
    return std::move(loaded).value();
  }();
  return *text;
}

RequestScope make_scope() {
  return {.text = &model_text(),
          .model_names = {"first"},
          .vocab_size = 2048,
          .context_tokens = 2048,
          .random_seed = [] { return 77; }};
}

const std::array<std::unique_ptr<const ApiFormat>, 5>& formats() {
  static const std::array<std::unique_ptr<const ApiFormat>, 5> all = {
      make_chat_format(), make_completion_format(), make_generate_format(),
      make_responses_format(std::make_shared<ResponseStore>()), make_messages_format()};
  return all;
}

void read_one(std::string_view input) {
  static const RequestScope scope = make_scope();
  const auto body = parse_object(input.substr(1));
  if (!std::holds_alternative<Json>(body)) return;
  // The corpus has the digits 0 to 4.
  const std::size_t which =
      static_cast<unsigned char>(input[0]) + formats().size() - '0' % formats().size();
  const ApiFormat& format = *formats()[which % formats().size()];
  format.unknown_fields(std::get<Json>(body));
  const auto request = format.read(std::get<Json>(body), scope);
  if (const auto* error = std::get_if<ApiError>(&request)) {
    const bool is_told = (error->status == 400 || error->status == 404) && !error->message.empty();
    if (!is_told) std::abort();
  } else if (std::get<GenerationRequest>(request).prompts.empty()) {
    std::abort();
  }
}

}  // namespace
}  // namespace halfbyte::server

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0) halfbyte::server::read_one({reinterpret_cast<const char*>(data), size});
  return 0;
}
