// SPDX-License-Identifier: Apache-2.0
#include "server/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>

#include "server/generation.h"
#include "server/messages_format.h"
#include "server/openapi.h"
#include "server/page.h"
#include "server/random_id.h"

namespace halfbyte::server {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

// Takes as long for a wrong key as for the right one of the same length.
bool equal_in_constant_time(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char expected = key.empty() ? '\0' : key[i % key.size()];
    difference |= static_cast<unsigned char>(given[i] ^ expected);
  }
  return difference == 0;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

bool is_json_type(std::string_view content_type) {
  std::string media = lower_case(content_type.substr(0, content_type.find(';')));
  std::erase(media, ' ');
  return media == "application/json";
}

// KEY of "Bearer KEY"; empty when it is something else. RFC 9110: the scheme is of any case.
std::string_view bearer_key(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (lower_case(authorization.substr(0, kScheme.size())) != kScheme) return {};
  const std::string_view rest = authorization.substr(kScheme.size());
  return rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
}

// "{id}" in a route stands for one part of a path, "{model}" at its end for all that is left.
bool matches(std::string_view route, std::string_view path) {
  const std::size_t open = route.find('{');
  if (open == std::string_view::npos) return path == route;
  const std::string_view behind = route.substr(route.find('}') + 1);
  const bool fits = path.size() > open + behind.size() && path.starts_with(route.substr(0, open)) &&
                    path.ends_with(behind);
  if (!fits || route.ends_with("{model}")) return fits;
  const std::string_view part = path.substr(open, path.size() - open - behind.size());
  return part.find('/') == std::string_view::npos;
}

}  // namespace

std::string_view server_state_name(ServerState state) {
  switch (state) {
    case ServerState::kLoading:
      return "loading";
    case ServerState::kReady:
      return "ready";
    case ServerState::kDraining:
      return "draining";
    case ServerState::kFailed:
      return "failed";
  }
  return "unknown";
}

Api::Api(ApiOptions options, std::unique_ptr<ModelText> text)
    : options_(std::move(options)),
      text_(std::move(text)),
      created_(std::time(nullptr)),
      metrics_(std::make_shared<Metrics>(options_.model_names.front(), options_.expert_metrics)),
      field_notices_(options_.notice) {
  scope_.text = text_.get();
  scope_.model_names = options_.model_names;
  scope_.random_seed = [this] { return random(); };
}

// ---------------------------------------------------------------- life cycle

void Api::set_progress(double done) {
  progress_ = done;
}

void Api::set_ready(std::unique_ptr<Engine> engine,
                    std::int64_t context_tokens,
                    DriverOptions options) {
  auto driver = std::make_shared<EngineDriver>(std::move(engine), std::move(options));
  metrics_->set_model(driver->info());
  scope_.vocab_size = driver->info().vocab_size;
  scope_.context_tokens = context_tokens;
  if (options_.constrains_output) {
    grammars_ = std::make_unique<GrammarCompiler>(answer_vocabulary(
        text_->tokenizer(), driver->info().vocab_size, driver->info().eos_token_ids));
    scope_.grammars = grammars_.get();
  }
  metrics_->set_startup_seconds(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  const std::lock_guard lock(mutex_);
  driver_ = std::move(driver);  // from here on scope_ is read, by whoever has seen it
}

void Api::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

void Api::end_all(const std::string& why) {
  if (const auto engine = driver()) engine->end_all(why);
}

ServerState Api::state() const {
  const std::lock_guard lock(mutex_);
  if (driver_ != nullptr && !driver_->failure().ok()) return ServerState::kFailed;
  if (draining_) return ServerState::kDraining;
  return driver_ == nullptr ? ServerState::kLoading : ServerState::kReady;
}

bool Api::is_stuck() const {
  const auto engine = driver();
  return engine != nullptr && engine->is_stuck();
}

std::shared_ptr<EngineDriver> Api::driver() const {
  const std::lock_guard lock(mutex_);
  return driver_;
}

std::uint64_t Api::random() {
  const std::lock_guard lock(mutex_);
  return random_();
}

// ---------------------------------------------------------------- routes

const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> routes = {
      {"/", "GET", Access::kOpen, &Api::page},
      {"/openapi.json", "GET", Access::kOpen, &Api::openapi},
      {"/health", "GET", Access::kOpen, &Api::health},
      {"/version", "GET", Access::kOpen, &Api::version},
      {"/metrics", "GET", Access::kOpen, &Api::metrics},
      {"/v1/models", "GET", Access::kReady, &Api::models},
      {"/v1/models/{model}", "GET", Access::kReady, &Api::model},
      {"/v1/chat/completions", "POST", Access::kReady, &Api::chat},
      {"/v1/completions", "POST", Access::kReady, &Api::completion},
      {"/v1/responses", "POST", Access::kReady, &Api::responses},
      {"/v1/responses/{id}", "GET", Access::kReady, &Api::stored_response},
      {"/v1/responses/{id}", "DELETE", Access::kReady, &Api::delete_response},
      {"/v1/responses/{id}/cancel", "POST", Access::kReady, &Api::cancel_response},
      {"/v1/messages", "POST", Access::kReady, &Api::messages, messages_refusal},
      {"/v1/messages/count_tokens", "POST", Access::kReady, &Api::count_tokens, messages_refusal},
      {"/generate", "POST", Access::kReady, &Api::generate},
      {"/tokenize", "POST", Access::kReady, &Api::tokenize},
      {"/detokenize", "POST", Access::kReady, &Api::detokenize},
      {"/health_generate", "GET", Access::kReady, &Api::health_generate},
      {"/server_info", "GET", Access::kReady, &Api::server_info},
      {"/model_info", "GET", Access::kReady, &Api::model_info},
      {"/get_server_info", "GET", Access::kReady, &Api::server_info},
      {"/get_model_info", "GET", Access::kReady, &Api::model_info},
      {"/get_load", "GET", Access::kReady, &Api::load},
      {"/expert_load", "GET", Access::kReady, &Api::expert_load},
      {"/flush_cache", "POST", Access::kAdmin, &Api::flush_cache},
      {"/flush_cache", "GET", Access::kAdmin, &Api::flush_cache},
      {"/abort_request", "POST", Access::kAdmin, &Api::abort_request},
      {"/start_profile", "POST", Access::kAdmin, &Api::start_profile},
      {"/stop_profile", "POST", Access::kAdmin, &Api::stop_profile},
  };
  return routes;
}

std::vector<std::pair<std::string_view, std::string_view>> Api::endpoints() {
  std::vector<std::pair<std::string_view, std::string_view>> endpoints;
  for (const Route& route : routes()) {
    endpoints.emplace_back(route.path, route.method);
  }
  return endpoints;
}

HttpReply Api::handle(const HttpRequest& request) {
  HttpReply reply = route(request);
  const auto* response = std::get_if<HttpResponse>(&reply);
  if (response != nullptr && response->status >= 400 && request.path != "/health") {
    metrics_->count_rejected(response->status);
  }
  return reply;
}

std::string Api::refusal_body(int status, const std::string& message) {
  metrics_->count_rejected(status);
  return error_body({status, message, "", ""});
}

HttpReply Api::route(const HttpRequest& request) {
  std::string allowed;  // methods of the path
  HttpResponse (*refuse)(const ApiError&) = error_response;
  for (const Route& route : routes()) {
    if (!matches(route.path, request.path)) continue;
    // The body is left out where it is written. What changes something is not for HEAD to do.
    const bool is_head =
        request.method == "HEAD" && route.method == "GET" && route.access != Access::kAdmin;
    if (request.method == route.method || is_head) return call(route, request);
    refuse = route.refuse;
    if (!allowed.empty()) allowed += ", ";
    allowed += route.method;
  }
  if (allowed.empty()) {
    return error_response({404, fmt::format("there is nothing at {}", request.path), "", ""});
  }
  HttpResponse response = refuse(
      {405, fmt::format("{} takes {}, not {}", request.path, allowed, request.method), "", ""});
  response.headers.emplace_back("Allow", allowed);
  return response;
}

HttpReply Api::call(const Route& route, const HttpRequest& request) {
  const bool is_control = route.access == Access::kAdmin;
  const bool is_protected = options_.protect_metrics && route.handler == &Api::metrics;
  if (route.access != Access::kOpen || is_protected) {
    if (auto error = check_key(request, is_control)) return route.refuse(*error);
  }
  if (route.access != Access::kOpen) {
    const bool can_control = is_control && driver() != nullptr;  // also while it shuts down
    if (auto error = can_control ? std::nullopt : check_ready()) return route.refuse(*error);
  }
  return (this->*route.handler)(request);
}

// The admin key opens everything. Control asks for it wherever there is any key: what one client
// may send is not to end another's request.
std::optional<ApiError> Api::check_key(const HttpRequest& request, bool is_control) const {
  const std::string& admin_key = options_.admin_api_key;
  const bool has_keys = !options_.api_keys.empty();
  if (admin_key.empty() && !has_keys) return std::nullopt;
  const std::string_view bearer = bearer_key(request.authorization);
  const std::string_view given = bearer.empty() ? std::string_view(request.api_key) : bearer;
  bool is_right = !admin_key.empty() && equal_in_constant_time(given, admin_key);
  if (!is_control) is_right = is_right || !has_keys || is_api_key(given);
  if (is_right) return std::nullopt;
  if (is_control && admin_key.empty()) {
    return ApiError{
        401,
        fmt::format("{} needs an admin key: start the server with --admin-api-key", request.path),
        "", "invalid_api_key"};
  }
  return ApiError{401,
                  request.authorization.empty() && request.api_key.empty()
                      ? "an API key is required: Authorization: Bearer KEY"
                      : "the API key is wrong",
                  "", "invalid_api_key"};
}

bool Api::is_api_key(std::string_view given) const {
  bool is_right = false;
  for (const std::string& key : options_.api_keys) {
    const bool equal = equal_in_constant_time(given, key);
    is_right = is_right || equal;
  }
  return is_right;
}

std::optional<ApiError> Api::check_ready() const {
  switch (state()) {
    case ServerState::kReady:
      return std::nullopt;
    case ServerState::kLoading:
      return ApiError{503, fmt::format("the model is loading: {:.0f} %", 100.0 * progress_), "",
                      ""};
    case ServerState::kDraining:
      return ApiError{503, "the server is shutting down", "", ""};
    case ServerState::kFailed:
      return ApiError{503, driver()->failure().to_string(), "", ""};
  }
  return std::nullopt;
}

// ---------------------------------------------------------------- small answers

HttpReply Api::page(const HttpRequest&) {
  return page_response(random_id(""));
}

HttpReply Api::openapi(const HttpRequest&) {
  return openapi_response();
}

HttpReply Api::health(const HttpRequest&) {
  const ServerState now = state();
  Json json = {{"status", server_state_name(now)}};
  if (now == ServerState::kLoading) json["progress"] = progress_.load();
  if (now == ServerState::kFailed) json["error"] = driver()->failure().to_string();
  HttpResponse response = json_response(json, now == ServerState::kReady ? 200 : 503);
  if (now != ServerState::kReady) response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpReply Api::version(const HttpRequest&) {
  return json_response({{"version", options_.version}});
}

HttpReply Api::metrics(const HttpRequest&) {
  const auto engine = driver();
  const EngineStats stats = engine != nullptr ? engine->stats() : EngineStats{};
  const std::vector<ExpertLoad> load =
      engine != nullptr ? engine->expert_load() : std::vector<ExpertLoad>{};
  const EngineHistograms histograms = engine != nullptr ? engine->histograms() : EngineHistograms{};
  return HttpResponse{
      .status = 200,
      .content_type = "text/plain; version=0.0.4; charset=utf-8",
      .body = metrics_->render(stats, std::string(server_state_name(state())), load, histograms)};
}

Json Api::describe_model(const std::string& name) const {
  return {{"id", name},
          {"object", "model"},
          {"created", created_},
          {"owned_by", "halfbyte"},
          {"max_model_len", scope_.context_tokens}};
}

HttpReply Api::models(const HttpRequest&) {
  Json list = Json::array();
  for (const std::string& name : options_.model_names) {
    list.push_back(describe_model(name));
  }
  return json_response({{"object", "list"}, {"data", std::move(list)}});
}

HttpReply Api::model(const HttpRequest& request) {
  const Json body = {{"model", request.path.substr(kModelPrefix.size())}};
  std::optional<ApiError> error;
  const std::string name = read_model_name(body, scope_, error);
  return error ? error_response(*error) : json_response(describe_model(name));
}

// ---------------------------------------------------------------- bodies

std::variant<Json, ApiError> Api::read_body(const HttpRequest& request) {
  if (!is_json_type(request.content_type)) {
    return ApiError{
        415, fmt::format("Content-Type is \"{}\", want application/json", request.content_type), "",
        ""};
  }
  return parse_object(request.body);
}

HttpReply Api::chat(const HttpRequest& request) {
  return start_answer(request, *chat_format_);
}

HttpReply Api::completion(const HttpRequest& request) {
  return start_answer(request, *completion_format_);
}

HttpReply Api::generate(const HttpRequest& request) {
  return start_answer(request, *generate_format_);
}

HttpReply Api::messages(const HttpRequest& request) {
  return start_answer(request, *messages_format_);
}

HttpReply Api::responses(const HttpRequest& request) {
  return start_answer(request, *responses_format_);
}

HttpReply Api::start_answer(const HttpRequest& request, const ApiFormat& format) {
  const auto body = read_body(request);
  if (const auto* error = std::get_if<ApiError>(&body)) return format.refusal(*error);
  const Json& json = std::get<Json>(body);
  field_notices_.tell(format.unknown_fields(json));
  auto parsed = format.read(json, scope_);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return format.refusal(*error);
  auto& wanted = std::get<GenerationRequest>(parsed);
  std::string id = wanted.id.empty() ? random_id(format.id_prefix()) : wanted.id;
  auto started = Generation::start(std::move(wanted), format,
                                   {driver(), metrics_, &text_->tokenizer(), scope_.context_tokens,
                                    options_.request_timeout, options_.stream_interval},
                                   std::move(id));
  if (const auto* error = std::get_if<ApiError>(&started)) return format.refusal(*error);
  return std::get<std::shared_ptr<PendingAnswer>>(std::move(started));
}

HttpReply Api::tokenize(const HttpRequest& request) {
  const auto body = read_body(request);
  if (const auto* error = std::get_if<ApiError>(&body)) return error_response(*error);
  const Json& json = std::get<Json>(body);
  std::optional<ApiError> error;
  read_model_name(json, scope_, error);
  FieldReader reader(json, "", error);
  std::vector<std::int32_t> ids;
  if (reader.find("messages") != nullptr) {
    ids = read_conversation(json, scope_, error).ids;
  } else if (const auto prompt = reader.string("prompt")) {
    auto encoded = text_->encode_prompt(*prompt, read_prompt_encoding(reader));
    if (!encoded.ok()) reader.fail("prompt", std::string(encoded.status().message()));
    if (encoded.ok()) ids = std::move(encoded).value();
  } else {
    reader.fail("prompt", "prompt or messages is required");
  }
  if (error) return error_response(*error);
  return json_response(
      {{"count", ids.size()}, {"max_model_len", scope_.context_tokens}, {"tokens", ids}});
}

HttpReply Api::detokenize(const HttpRequest& request) {
  const auto body = read_body(request);
  if (const auto* error = std::get_if<ApiError>(&body)) return error_response(*error);
  const Json& json = std::get<Json>(body);
  std::optional<ApiError> error;
  read_model_name(json, scope_, error);
  FieldReader reader(json, "", error);
  const Json* tokens = reader.array("tokens");
  if (tokens == nullptr) reader.fail("tokens", "tokens is required: a list of ids");
  const bool skip_special = reader.boolean("skip_special_tokens").value_or(false);
  std::vector<std::int32_t> ids;
  if (!error) ids = read_token_ids(reader, "tokens", *tokens, scope_.vocab_size);
  if (error) return error_response(*error);
  const std::string text = text_->tokenizer().decode(ids, skip_special);
  return json_response({{"prompt", text}, {"text", text}});
}

}  // namespace halfbyte::server
