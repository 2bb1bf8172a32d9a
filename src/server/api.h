// SPDX-License-Identifier: Apache-2.0
//
// Paths, keys and the life cycle: from a request to a response or a generation.
#ifndef HALFBYTE_SERVER_API_H_
#define HALFBYTE_SERVER_API_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/api_format.h"
#include "server/engine_driver.h"
#include "server/field_notices.h"
#include "server/generation_request.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/response_store.h"
#include "server/step_profile.h"
#include "text/grammar.h"

namespace halfbyte::server {

struct ApiOptions {
  std::vector<std::string> model_names;  // at least one
  std::vector<std::string> api_keys;     // none, and no admin key: open
  std::string admin_api_key;             // for control routes; empty: see check_key()
  std::string model_path;                // shown, as the next is
  std::string tokenizer_path = {};       // empty: the model's
  std::string version;
  bool expert_metrics = false;  // /metrics has a series for each expert of each layer
  std::chrono::milliseconds request_timeout{0};   // until a request's first token; 0: none
  std::int64_t stream_interval = 1;               // tokens between events of a stream
  bool constrains_output = true;                  // else requests for it are refused
  bool protect_metrics = false;                   // /metrics wants a key
  std::optional<std::uint64_t> random_seed = {};  // of requests without one: none is random
  std::function<void(std::string_view)> notice;   // one line each; may be null
};

enum class ServerState { kLoading, kReady, kDraining, kFailed };
std::string_view server_state_name(ServerState state);

/// Thread-safe. States: loading -> ready -> draining, and failed from any.
class Api {
 public:
  Api(ApiOptions options, std::unique_ptr<ModelText> text);

  HttpReply handle(const HttpRequest& request);
  /// The body of what the HTTP layer refuses by itself; it counts as rejected, as handle()'s do.
  std::string refusal_body(int status, const std::string& message);
  /// What handle() takes: path ("/v1/models/{model}") and method.
  static std::vector<std::pair<std::string_view, std::string_view>> endpoints();

  void set_progress(double done);  // of loading, 0 to 1
  /// `context_tokens`: of one sequence at most, prompt and answer.
  void set_ready(std::unique_ptr<Engine> engine,
                 std::int64_t context_tokens,
                 DriverOptions options);
  /// New work is refused, what runs goes on.
  void drain();
  /// Ends what runs with an error that says `why`.
  void end_all(const std::string& why);
  ServerState state() const;
  /// True when a step of the engine has not returned: this cannot be destroyed.
  bool is_stuck() const;

 private:
  // What a route asks for: nothing; a key and a model that is ready; the admin's key and a model.
  enum class Access { kOpen, kReady, kAdmin };
  struct Route {
    std::string_view path;
    std::string_view method;
    Access access;
    HttpReply (Api::*handler)(const HttpRequest&);
    HttpResponse (*refuse)(const ApiError& error) = error_response;  // what stops it before that
  };
  static const std::vector<Route>& routes();

  HttpReply route(const HttpRequest& request);
  HttpReply call(const Route& route, const HttpRequest& request);
  std::optional<ApiError> check_key(const HttpRequest& request, bool is_control) const;
  bool is_api_key(std::string_view given) const;
  std::optional<ApiError> check_ready() const;

  HttpReply page(const HttpRequest& request);
  HttpReply openapi(const HttpRequest& request);
  HttpReply health(const HttpRequest& request);
  HttpReply version(const HttpRequest& request);
  HttpReply metrics(const HttpRequest& request);
  HttpReply models(const HttpRequest& request);
  HttpReply model(const HttpRequest& request);
  HttpReply chat(const HttpRequest& request);
  HttpReply completion(const HttpRequest& request);
  HttpReply generate(const HttpRequest& request);
  HttpReply messages(const HttpRequest& request);
  HttpReply responses(const HttpRequest& request);
  HttpReply tokenize(const HttpRequest& request);
  HttpReply detokenize(const HttpRequest& request);

  // control.cpp
  HttpReply health_generate(const HttpRequest& request);
  HttpReply server_info(const HttpRequest& request);
  HttpReply model_info(const HttpRequest& request);
  HttpReply load(const HttpRequest& request);
  HttpReply expert_load(const HttpRequest& request);
  HttpReply flush_cache(const HttpRequest& request);
  HttpReply abort_request(const HttpRequest& request);
  HttpReply start_profile(const HttpRequest& request);
  HttpReply stop_profile(const HttpRequest& request);

  // response_routes.cpp
  HttpReply count_tokens(const HttpRequest& request);
  HttpReply stored_response(const HttpRequest& request);
  HttpReply cancel_response(const HttpRequest& request);
  HttpReply delete_response(const HttpRequest& request);

  HttpReply start_answer(const HttpRequest& request, const ApiFormat& format);
  std::variant<Json, ApiError> read_body(const HttpRequest& request);
  Json describe_model(const std::string& name) const;
  std::shared_ptr<EngineDriver> driver() const;
  std::uint64_t random();

  const ApiOptions options_;
  const std::unique_ptr<ModelText> text_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const std::int64_t created_;
  const std::shared_ptr<Metrics> metrics_;
  FieldNotices field_notices_;
  std::atomic<double> progress_ = 0.0;
  std::unique_ptr<GrammarCompiler> grammars_;
  RequestScope scope_;  // complete when ready
  const std::shared_ptr<ResponseStore> responses_ = std::make_shared<ResponseStore>();
  const std::unique_ptr<const ApiFormat> chat_format_ = make_chat_format();
  const std::unique_ptr<const ApiFormat> completion_format_ = make_completion_format();
  const std::unique_ptr<const ApiFormat> generate_format_ = make_generate_format();
  const std::unique_ptr<const ApiFormat> messages_format_ = make_messages_format();
  const std::unique_ptr<const ApiFormat> responses_format_ = make_responses_format(responses_);

  mutable std::mutex mutex_;  // of the following
  std::shared_ptr<EngineDriver> driver_;
  bool draining_ = false;
  std::optional<EngineCounts> profile_;  // since when one runs
  std::mt19937_64 random_{options_.random_seed.value_or(std::random_device()())};
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_API_H_
