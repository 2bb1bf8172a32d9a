// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "command.h"
#include "server/api.h"
#include "server/http.h"

namespace halfbyte::tool {
namespace {

using Clock = std::chrono::steady_clock;
using server::Api;
using server::HttpServer;

constexpr const char* kDescription =
    "Serves a model over HTTP, with OpenAI's API.\n\n"
    "The port listens at once; GET /health is 200 when the model is loaded. What requests may ask "
    "for,\n"
    "and what is refused, is in docs/server-api.md.\n\n"
    "Examples:\n"
    "  halfbyte serve models/gsm-mini-qwen3moe-nvfp4\n"
    "  halfbyte serve MODEL --host 0.0.0.0 --port 8000 --served-model-name my-model --api-key-file "
    "KEYS\n"
    "  curl http://127.0.0.1:30000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
    "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"What is 12 / 4?\"}]}'\n\n"
    "SIGTERM or Ctrl-C: new requests are refused, what runs may end; a second signal, or\n"
    "--shutdown-timeout, ends it.\n\n"
    "Exit status: 0 after a shutdown, 1 on an error.";

constexpr const char* kServerGroup = "Server";
constexpr std::chrono::milliseconds kSignalPoll{100};
constexpr std::chrono::seconds kFlushTime{5};  // for the last events to reach clients that read

struct ServeOptions {
  EngineOptions engine;
  server::HttpOptions http;
  std::vector<std::string> model_names;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::string access_log = "-";  // a file; "-": standard error, "none"
  std::int64_t max_queued_requests = 4096;
  std::int64_t shutdown_timeout_s = 120;
  std::int64_t sse_keepalive_s = 15;
  std::int64_t request_timeout_s = 0;
  std::int64_t watchdog_timeout_s = 300;
  std::int64_t stream_interval = 1;
  bool constrains_output = true;
  bool protect_metrics = false;
  bool exit_on_failure = false;
  std::string admin_api_key;
  std::optional<std::uint64_t> random_seed;
  server::TextOptions text;
  bool expert_metrics = false;
};

// Signals are taken by wait_for_signal() alone: blocked before any thread starts.
sigset_t shutdown_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

bool wait_for_signal(std::chrono::milliseconds limit) {
  const sigset_t signals = shutdown_signals();
  const timespec time{limit.count() / 1000, (limit.count() % 1000) * 1'000'000};
  return sigtimedwait(&signals, nullptr, &time) > 0;
}

void add_keys_of_file(ServeOptions& options) {
  if (options.api_key_file.empty()) return;
  std::ifstream file(options.api_key_file);
  const std::size_t before = options.api_keys.size();
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) options.api_keys.push_back(line);
  }
  if (options.api_keys.size() > before) return;
  exit_on_error({StatusCode::kNotFound,
                 fmt::format("{}: no API key in it; want one a line", options.api_key_file)});
}

std::string directory_name(const std::string& path) {
  return std::filesystem::weakly_canonical(path).filename().string();
}

std::unique_ptr<Engine> load(const EngineOptions& given, Api& api) {
  EngineOptions options = given;
  options.notice = print_notice;
  options.load_progress = [&api](std::int64_t done, std::int64_t total) {
    api.set_progress(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0.0);
    print_progress("loading layer", done, total);
  };
  return value_or_exit(Engine::create(options));
}

// Loads while the port answers already. A signal ends the process: nothing has begun.
void load_and_get_ready(const ServeOptions& options, Api& api) {
  auto loading = std::async(std::launch::async, [&] { return load(options.engine, api); });
  while (loading.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    if (!wait_for_signal(kSignalPoll)) continue;
    std::fflush(nullptr);
    std::_Exit(0);
  }
  std::unique_ptr<Engine> engine = loading.get();
  const std::int64_t context = engine->info().max_sequence_tokens;
  api.set_ready(std::move(engine), context,
                {.max_queued_requests = options.max_queued_requests,
                 .watchdog_timeout = std::chrono::seconds(options.watchdog_timeout_s),
                 .notice = print_notice});
}

// Until nothing is under way, `limit` has passed (false), or a signal comes (false).
bool wait_until_idle(const HttpServer& http, Clock::duration limit) {
  const auto deadline = Clock::now() + limit;
  while (http.num_active() > 0) {
    if (wait_for_signal(kSignalPoll) || Clock::now() >= deadline) return false;
  }
  return true;
}

void shut_down(Api& api, HttpServer& http, std::chrono::seconds timeout) {
  api.drain();
  fmt::print(stderr, "shutting down: {} requests under way\n", http.num_active());
  if (!wait_until_idle(http, timeout)) {
    fmt::print(stderr, "ending {} requests\n", http.num_active());
    api.end_all("the server is shutting down");
    wait_until_idle(http, kFlushTime);
  }
  http.stop();
}

server::ApiOptions api_options(const ServeOptions& options) {
  server::ApiOptions api;
  api.model_names = options.model_names;
  api.api_keys = options.api_keys;
  api.admin_api_key = options.admin_api_key;
  api.model_path = options.engine.model_path;
  api.tokenizer_path = options.text.tokenizer_path;
  api.random_seed = options.random_seed;
  api.request_timeout = std::chrono::seconds(options.request_timeout_s);
  api.stream_interval = options.stream_interval;
  api.constrains_output = options.constrains_output;
  api.protect_metrics = options.protect_metrics;
  api.version = HALFBYTE_VERSION;
  api.notice = print_notice;
  api.expert_metrics = options.expert_metrics;
  return api;
}

void print_ready(const ServeOptions& options, const server::SamplingDefaults& defaults) {
  fmt::print(
      stderr,
      "ready: {}; requests that do not say get temperature {}, top_p {}, top_k {}, min_p {}, "
      "repetition_penalty {} ({})\n",
      options.model_names.front(), defaults.temperature, defaults.top_p, defaults.top_k,
      defaults.min_p, defaults.repetition_penalty,
      options.text.openai_defaults ? "--sampling-defaults" : "generation_config.json");
}

// At once: nothing that runs can still get an answer.
void exit_if_failed(const Api& api) {
  if (api.state() != server::ServerState::kFailed) return;
  fmt::print(stderr, "error: the engine has failed; GET /health would tell why\n");
  std::fflush(nullptr);
  std::_Exit(1);
}

// With its own threshold glibc keeps what the first large body took, once per thread, for good.
void return_large_buffers() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 18);
#endif
}

// A connection is a descriptor, and a shell gives 1024.
void allow_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Null: none is wanted. A line is written at once and whole, or not at all: who reads the log may
// have stopped reading, and no request waits for that.
std::unique_ptr<server::AccessLog> open_access_log(const std::string& path) {
  if (path == "none") return nullptr;
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK;
  const int file = path == "-" ? STDERR_FILENO : ::open(path.c_str(), kFlags, 0644);
  if (file < 0) {
    exit_on_error(
        {StatusCode::kNotFound, fmt::format("--access-log {}: {}", path, std::strerror(errno))});
  }
  return std::make_unique<server::AccessLog>([file](std::string_view line) {
    pollfd ready = {.fd = file, .events = POLLOUT, .revents = 0};
    return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0 &&
           ::write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  });
}

void serve(ServeOptions options) {
  return_large_buffers();
  allow_descriptors();
  std::signal(SIGPIPE, SIG_IGN);  // whoever read the log may be gone
  const sigset_t signals = shutdown_signals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  exit_unless_folder(options.engine.model_path);
  if (!options.text.tokenizer_path.empty()) exit_unless_folder(options.text.tokenizer_path);
  add_keys_of_file(options);
  if (options.model_names.empty()) {
    options.model_names.push_back(directory_name(options.engine.model_path));
  }
  options.http.keep_alive_interval = std::chrono::seconds(options.sse_keepalive_s);
  const auto access_log = open_access_log(options.access_log);
  if (access_log != nullptr) {
    options.http.on_request = [&log = *access_log](const server::AccessRecord& record) {
      log.add(record);
    };
  }
  auto text = value_or_exit(server::ModelText::load(options.engine.model_path, options.text));
  const server::SamplingDefaults defaults = text->defaults();
  Api api(api_options(options), std::move(text));
  const auto http = value_or_exit(HttpServer::start(
      options.http, [&api](const server::HttpRequest& request) { return api.handle(request); },
      [&api](int status, const std::string& message) {
        return api.refusal_body(status, message);
      }));
  fmt::print(stderr, "listening on http://{}:{}\n", options.http.host, http->port());
  load_and_get_ready(options, api);
  print_ready(options, defaults);
  while (!wait_for_signal(std::chrono::seconds(1))) {
    if (options.exit_on_failure) exit_if_failed(api);
  }
  shut_down(api, *http, std::chrono::seconds(options.shutdown_timeout_s));
  if (!api.is_stuck()) return;
  fmt::print(stderr, "error: the engine's step never returned\n");
  std::fflush(nullptr);
  std::_Exit(1);  // its thread cannot be joined
}

std::string not_empty(const std::string& given) {
  return given.empty() ? "want some text, got none" : "";
}

class ServerOptions {
 public:
  ServerOptions(CLI::App& command, ServeOptions& options) : command_(command), options_(options) {}

  void add_all() {
    add_address_and_keys();
    add_limits();
    add_answers();
    add_text();
    add_accepted();
    add_flag("--protect-metrics", options_.protect_metrics, "/metrics wants a key too");
    add_flag("--exit-on-failure", options_.exit_on_failure,
             "end with status 1 when the engine has failed, instead of staying for inspection");
    add_flag("--enable-expert-metrics", options_.expert_metrics,
             "/metrics has the tokens of each expert of each layer: as many lines as there are");
  }

 private:
  template <typename T>
  CLI::Option* add(const char* names, T& value, const char* help) {
    return command_.add_option(names, value, help)->group(kServerGroup);
  }
  void add_flag(const char* names, bool& value, const char* help) {
    command_.add_flag(names, value, help)->group(kServerGroup);
  }
  template <typename T>
  void add_number(
      const char* names, T& value, std::int64_t low, std::int64_t high, const char* help) {
    add(names, value, help)->check(CLI::Range(low, high))->capture_default_str();
  }

  void add_address_and_keys() {
    add("--host", options_.http.host, "address to listen on")->capture_default_str();
    add_number("--port", options_.http.port, 0, 65535, "port; 0: any free one");
    add("--served-model-name", options_.model_names,
        "names that requests may use (default: the folder's); may be repeated")
        ->allow_extra_args(false)
        ->check(not_empty);
    add("--api-key", options_.api_keys, "a key that requests must bring; may be repeated")
        ->allow_extra_args(false)
        ->check(not_empty);
    add("--admin-api-key", options_.admin_api_key,
        "the key of /flush_cache, /abort_request and the profile; opens everything else too")
        ->check(not_empty);
    add("--api-key-file", options_.api_key_file, "a file of keys, one a line");
    add("--allowed-origins", options_.http.allowed_origins,
        "origins whose pages may ask from a browser (CORS), or *; may be repeated; default: none")
        ->allow_extra_args(false)
        ->check(not_empty);
    add("--access-log", options_.access_log,
        "a line of JSON for each request, without what was said: a file to add to, - for standard "
        "error, or none")
        ->capture_default_str()
        ->check(not_empty);
  }

  void add_limits() {
    add_number("--max-queued-requests", options_.max_queued_requests, 1, std::int64_t{1} << 30,
               "requests that may wait; more are refused with 429");
    add_number("--shutdown-timeout", options_.shutdown_timeout_s, 0, 86400,
               "seconds that requests under way have to end after a signal");
    add_number("--request-timeout", options_.request_timeout_s, 0, 86400,
               "seconds until a request's first token, else 408; 0: any");
    add_number("--watchdog-timeout", options_.watchdog_timeout_s, 0, 86400,
               "seconds that a step may take before a notice, and twice that before the engine "
               "counts as failed; 0: any");
  }

  void add_answers() {
    add_number("--sse-keepalive", options_.sse_keepalive_s, 0, 3600,
               "seconds between comments in a stream that waits; 0: none");
    add_number("--stream-interval", options_.stream_interval, 1, 1 << 20,
               "tokens between the events of a stream");
    command_
        .add_option_function<std::string>(
            "--sampling-defaults",
            [options = &options_](const std::string& name) {
              options->text.openai_defaults = name == "openai";
            },
            "temperature, top_p, top_k, min_p and repetition_penalty of requests without them: "
            "the model's generation_config.json, or 1, 1, off, 0 and 1")
        ->check(CLI::IsMember({"model", "openai"}))
        ->group(kServerGroup);
    command_
        .add_option_function<std::string>(
            "--grammar-backend",
            [options = &options_](const std::string& name) {
              options->constrains_output = name == "xgrammar";
            },
            "what holds answers to schemas and grammars; none: requests for it are refused")
        ->check(CLI::IsMember({"xgrammar", "none"}))
        ->default_str("xgrammar")
        ->group(kServerGroup);
  }

  void add_text() {
    add("--tokenizer-path,--tokenizer", options_.text.tokenizer_path,
        "a folder with the tokenizer and its chat template, instead of the model's");
    add("--chat-template", options_.text.chat_template, "a file in Jinja, instead of the model's");
    add("--random-seed", options_.random_seed,
        "requests without a seed get theirs from this one, in the order in which they come");
    add("--tool-call-parser", options_.text.tool_call_parser,
        "how the model writes tool calls; auto: by its vocabulary")
        ->check(CLI::IsMember(server::tool_call_parsers()))
        ->capture_default_str();
    add("--reasoning-parser", options_.text.reasoning_parser,
        "how the model writes its reasoning; auto: by its vocabulary")
        ->check(CLI::IsMember(server::reasoning_parsers()))
        ->capture_default_str();
  }

  // Of other servers; what they ask for is so in any case.
  void add_accepted() {
    struct Accepted {
      const char* name;
      const char* why;
    };
    for (const auto& [name, why] :
         {Accepted{"--trust-remote-code", "no code of a checkpoint is ever run"},
          Accepted{"--disable-cuda-graph", "there are no captured graphs"},
          Accepted{"--disable-overlap-schedule", "steps do not overlap"},
          Accepted{"--skip-server-warmup", "there is none"},
          Accepted{"--enable-metrics", "/metrics is always there"}}) {
      const std::string notice = fmt::format("{} has no effect: {}", name, why);
      command_
          .add_flag_function(
              name, [notice](std::int64_t) { print_notice(notice); },
              fmt::format("accepted: {}", why))
          ->group(kServerGroup);
    }
  }

  CLI::App& command_;
  ServeOptions& options_;
};

}  // namespace

void add_serve(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("serve", kDescription);
  command
      ->add_option("model,--model-path,--model", options->engine.model_path, "Folder of the model")
      ->required();
  ServerOptions(*command, *options).add_all();
  add_engine_options(*command, options->engine);
  add_moe_options(*command, options->engine.moe);
  command->callback([options] { serve(*options); });
}

}  // namespace halfbyte::tool
