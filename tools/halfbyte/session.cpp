// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "checkpoint/model_config.h"

namespace halfbyte::tool {
namespace {

// A model without a template still completes raw text; a template that cannot be read is an error.
std::unique_ptr<ChatTemplate> load_template(const std::string& path) {
  auto chat_template = ChatTemplate::load(path);
  if (!chat_template.ok() && chat_template.status().code() == StatusCode::kNotFound) return nullptr;
  return value_or_exit(std::move(chat_template));
}

}  // namespace

std::vector<std::int32_t> Session::encode_chat(const nlohmann::ordered_json& messages) const {
  if (chat_template == nullptr) {
    exit_on_error({StatusCode::kNotFound,
                   "the model has no chat template (chat_template.jinja, or chat_template in "
                   "tokenizer_config.json): only `run --raw` works"});
  }
  const nlohmann::ordered_json variables = {{"messages", messages},
                                            {"add_generation_prompt", true}};
  return value_or_exit(tokenizer->encode(value_or_exit(chat_template->render(variables.dump()))));
}

Session open_text(const std::string& model_path) {
  exit_unless_folder(model_path);
  Session session;
  session.tokenizer = value_or_exit(Tokenizer::load(model_path));
  session.chat_template = load_template(model_path);
  return session;
}

void check_prompt_fits(std::size_t prompt_tokens, const EngineOptions& options) {
  NoticeSink later(nullptr);  // the engine reads the config again, and says what it notices
  const auto config = read_model_config(options.model_path, later, options.config_overrides);
  if (!config.ok()) return;  // its error as well
  const std::int64_t context =
      options.max_context_tokens > 0
          ? std::min(options.max_context_tokens, config->max_position_embeddings)
          : config->max_position_embeddings;
  const auto tokens = static_cast<std::int64_t>(prompt_tokens);
  if (tokens < context) return;
  exit_on_error(
      {StatusCode::kInvalidArgument,
       fmt::format("the prompt has {} tokens, want fewer than the context of {}: shorten it",
                   tokens, context)});
}

void open_engine(Session& session, EngineOptions options) {
  options.num_sampled_ids = session.tokenizer->vocab_size();
  options.notice = print_notice;
  options.load_progress = [](std::int64_t done, std::int64_t total) {
    print_progress("loading layer", done, total);
  };
  session.engine = value_or_exit(Engine::create(options));
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

}  // namespace halfbyte::tool
