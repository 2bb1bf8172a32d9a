// SPDX-License-Identifier: Apache-2.0
//
// Paths for whoever runs the server: what it is, what it does, and what it shall stop doing.
#include <utility>

#include "server/api.h"
#include "server/expert_usage.h"
#include "server/health_probe.h"

namespace halfbyte::server {
namespace {

constexpr std::chrono::seconds kProbeLimit{20};

Json describe(const EngineInfo& info) {
  return {{"architecture", info.model_name},
          {"backend", info.backend},
          {"transport", info.transport},
          {"activation_mode", info.activation_mode},
          {"ep_size", info.ep_size},
          {"vocab_size", info.vocab_size},
          {"eos_token_ids", info.eos_token_ids},
          {"max_context_tokens", info.max_context_tokens},
          {"max_sequence_tokens", info.max_sequence_tokens}};
}

Json describe(const SamplingDefaults& defaults) {
  return {{"temperature", defaults.temperature},
          {"top_p", defaults.top_p},
          {"top_k", defaults.top_k},
          {"min_p", defaults.min_p},
          {"repetition_penalty", defaults.repetition_penalty}};
}

Json describe(const EngineStats& stats) {
  return {{"num_running_reqs", stats.running},
          {"num_queue_reqs", stats.waiting},
          {"num_steps", stats.steps},
          {"max_total_num_tokens", stats.total_blocks * stats.block_tokens},
          {"num_free_tokens", stats.free_blocks * stats.block_tokens}};
}

EngineCounts counts_of(const EngineDriver& engine) {
  return {.time = std::chrono::steady_clock::now(),
          .stats = engine.stats(),
          .histograms = engine.histograms(),
          .load = engine.expert_load()};
}

Json format_name(std::optional<ToolCallFormat> format) {
  if (!format) return nullptr;
  return *format == ToolCallFormat::kQwen3 ? "qwen3" : "deepseek";
}

}  // namespace

HttpReply Api::health_generate(const HttpRequest&) {
  auto started = HealthProbe::start(driver(), kProbeLimit);
  if (const auto* error = std::get_if<ApiError>(&started)) return error_response(*error);
  return std::get<std::shared_ptr<PendingAnswer>>(std::move(started));
}

HttpReply Api::server_info(const HttpRequest&) {
  const auto engine = driver();
  return json_response({{"version", options_.version},
                        {"model_path", options_.model_path},
                        {"served_model_names", options_.model_names},
                        {"engine", describe(engine->info())},
                        {"sampling_defaults", describe(text_->defaults())},
                        {"tool_call_parser", format_name(text_->tool_call_format())},
                        {"parses_reasoning", text_->has_reasoning()},
                        {"request_timeout_ms", options_.request_timeout.count()},
                        {"stats", describe(engine->stats())}});
}

HttpReply Api::model_info(const HttpRequest&) {
  return json_response(
      {{"model_path", options_.model_path},
       {"tokenizer_path",
        options_.tokenizer_path.empty() ? options_.model_path : options_.tokenizer_path},
       {"is_generation", true},
       {"max_model_len", scope_.context_tokens},
       {"vocab_size", scope_.vocab_size},
       {"has_chat_template", text_->chat_template() != nullptr},
       {"preferred_sampling_params", describe(text_->defaults())}});
}

HttpReply Api::load(const HttpRequest&) {
  const EngineStats stats = driver()->stats();
  return json_response(Json::array(
      {{{"dp_rank", 0},
        {"num_reqs", stats.running + stats.waiting},
        {"num_waiting_reqs", stats.waiting},
        {"num_tokens", (stats.total_blocks - stats.free_blocks) * stats.block_tokens}}}));
}

HttpReply Api::expert_load(const HttpRequest&) {
  return json_response(expert_load_json(driver()->expert_load()));
}

HttpReply Api::flush_cache(const HttpRequest&) {
  driver()->flush_cache();
  return json_response({{"success", true}});
}

HttpReply Api::abort_request(const HttpRequest& request) {
  const auto body = read_body(request);
  if (const auto* error = std::get_if<ApiError>(&body)) return error_response(*error);
  std::optional<ApiError> error;
  FieldReader reader(std::get<Json>(body), "", error);
  const auto id = reader.string("rid");
  const bool all = reader.boolean("abort_all").value_or(false);
  if (!id && !all) {
    reader.fail("rid", "rid is required: the id of an answer; or abort_all true");
  }
  if (error) return error_response(*error);
  return json_response(
      {{"num_aborted", all ? driver()->abort_all() : driver()->abort_request(*id)}});
}

HttpReply Api::start_profile(const HttpRequest&) {
  const auto engine = driver();
  const std::lock_guard lock(mutex_);
  if (profile_) {
    return error_response({400, "a profile runs already: POST /stop_profile ends it", "", ""});
  }
  profile_ = counts_of(*engine);
  return json_response({{"success", true}});
}

HttpReply Api::stop_profile(const HttpRequest&) {
  const auto engine = driver();
  const std::lock_guard lock(mutex_);
  if (!profile_) {
    return error_response({400, "no profile runs: POST /start_profile begins one", "", ""});
  }
  const EngineCounts begin = std::move(*profile_);
  profile_.reset();
  return json_response(profile_json(begin, counts_of(*engine)));
}

}  // namespace halfbyte::server
