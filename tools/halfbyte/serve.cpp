// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
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
#include <utility>

#include "command.h"
#include "serve_options.h"
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

constexpr std::chrono::milliseconds kSignalPoll{100};
constexpr std::chrono::seconds kFlushTime{5};  // for the last events to reach clients that read
constexpr std::size_t kMaxLogLine = PIPE_BUF;  // as much as is written to a pipe in one piece

// What goes on, with its newline.
template <typename... Args>
void say(const ServeOptions& options, fmt::format_string<Args...> format, Args&&... args) {
  if (options.log_level == LogLevel::kInfo) {
    fmt::print(stderr, format, std::forward<Args>(args)...);
  }
}

// Null where notices are not wanted.
std::function<void(std::string_view)> notice_of(const ServeOptions& options) {
  if (options.log_level == LogLevel::kError) return nullptr;
  return print_notice;
}

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
  if (!file) {
    exit_on_error({StatusCode::kNotFound, fmt::format("--api-key-file {}: {}", options.api_key_file,
                                                      std::strerror(errno))});
  }
  const std::size_t before = options.api_keys.size();
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();  // a file of Windows
    if (!line.empty()) options.api_keys.push_back(line);
  }
  if (options.api_keys.size() > before) return;
  exit_on_error({StatusCode::kNotFound,
                 fmt::format("{}: no API key in it; want one a line", options.api_key_file)});
}

// An address of IPv6 stands in brackets.
std::string url_of(const server::HttpOptions& http, std::uint16_t port) {
  const bool has_colon = http.host.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(has_colon ? "http://[{}]:{}" : "http://{}:{}"), http.host, port);
}

std::string directory_name(const std::string& path) {
  return std::filesystem::weakly_canonical(path).filename().string();
}

std::unique_ptr<Engine> load(const ServeOptions& options, Api& api) {
  EngineOptions engine = options.engine;
  engine.notice = notice_of(options);
  const bool is_told = options.log_level == LogLevel::kInfo;
  engine.load_progress = [&api, is_told](std::int64_t done, std::int64_t total) {
    api.set_progress(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0.0);
    if (is_told) print_progress("loading layer", done, total);
  };
  return value_or_exit(Engine::create(engine));
}

// What --mem-fraction-static is about, whether it was given or not.
void print_memory(const ServeOptions& options, const Engine& engine) {
  constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
  const EngineInfo& info = engine.info();
  const EngineStats stats = engine.stats();
  const auto weights = static_cast<double>(info.weight_bytes);
  const auto cache = static_cast<double>(info.kv_cache_bytes);
  say(options, "memory: weights {:.2f} GiB; KV cache {:.2f} GiB, {} tokens\n", weights / kGibibyte,
      cache / kGibibyte, stats.total_blocks * stats.block_tokens);
  if (info.available_bytes == 0) return;
  const auto available = static_cast<double>(info.available_bytes);
  say(options, "memory: {:.2f} GiB were available; both are {:.2f} of it (--mem-fraction-static)\n",
      available / kGibibyte, (weights + cache) / available);
}

// Loads while the port answers already. A signal ends the process: nothing has begun.
void load_and_get_ready(const ServeOptions& options, Api& api) {
  auto loading = std::async(std::launch::async, [&] { return load(options, api); });
  while (loading.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    if (!wait_for_signal(kSignalPoll)) continue;
    std::fflush(nullptr);
    std::_Exit(0);
  }
  std::unique_ptr<Engine> engine = loading.get();
  print_memory(options, *engine);
  const std::int64_t context = engine->info().max_sequence_tokens;
  api.set_ready(std::move(engine), context,
                {.max_queued_requests = options.max_queued_requests,
                 .watchdog_timeout = std::chrono::seconds(options.watchdog_timeout_s),
                 .notice = notice_of(options)});
}

// Until nothing is under way, `limit` has passed (false), or a signal comes (false).
bool wait_until_idle(const HttpServer& http, Clock::duration limit) {
  const auto deadline = Clock::now() + limit;
  while (http.num_active() > 0) {
    if (wait_for_signal(kSignalPoll) || Clock::now() >= deadline) return false;
  }
  return true;
}

void shut_down(const ServeOptions& options, Api& api, HttpServer& http) {
  api.drain();
  say(options, "shutting down: {} requests under way\n", http.num_active());
  if (!wait_until_idle(http, std::chrono::seconds(options.shutdown_timeout_s))) {
    say(options, "ending {} requests\n", http.num_active());
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
  api.notice = notice_of(options);
  api.expert_metrics = options.expert_metrics;
  return api;
}

void print_ready(const ServeOptions& options, const server::SamplingDefaults& defaults) {
  say(options,
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

// At once and whole, or not at all: who reads the log may have stopped reading, and no request
// waits for that.
bool write_line(int file, std::string_view line) {
  pollfd ready = {.fd = file, .events = POLLOUT, .revents = 0};
  return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0 &&
         ::write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

// For --log-requests: as much of the body as makes a line that is written in one piece.
std::string request_line(const server::HttpRequest& request) {
  for (std::size_t length = 2048;; length /= 2) {
    const nlohmann::ordered_json json = {{"request", request.path.substr(0, 200)},
                                         {"body_bytes", request.body.size()},
                                         {"body", request.body.substr(0, length)}};
    std::string line =
        json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
    if (line.size() <= kMaxLogLine || length == 0) return line;
  }
}

// Null: none is wanted.
std::unique_ptr<server::AccessLog> open_access_log(const std::string& path) {
  if (path == "none") return nullptr;
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK;
  const int file = path == "-" ? STDERR_FILENO : ::open(path.c_str(), kFlags, 0644);
  if (file < 0) {
    exit_on_error(
        {StatusCode::kNotFound, fmt::format("--access-log {}: {}", path, std::strerror(errno))});
  }
  return std::make_unique<server::AccessLog>(
      [file](std::string_view line) { return write_line(file, line); });
}

server::HttpReply handle(const ServeOptions& options,
                         Api& api,
                         const server::HttpRequest& request) {
  if (options.log_requests && !request.body.empty()) {
    write_line(STDERR_FILENO, request_line(request));  // what cannot be written is lost
  }
  return api.handle(request);
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
  if (options.protect_metrics && options.api_keys.empty() && options.admin_api_key.empty()) {
    options.notices.emplace_back("--protect-metrics has no effect: there is no key");
  }
  if (const auto notice = notice_of(options)) std::ranges::for_each(options.notices, notice);
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
  options.engine.num_sampled_ids = text->tokenizer().vocab_size();
  Api api(api_options(options), std::move(text));
  const auto http = value_or_exit(HttpServer::start(
      options.http,
      [&](const server::HttpRequest& request) { return handle(options, api, request); },
      [&api](int status, const std::string& message) {
        return api.refusal_body(status, message);
      }));
  say(options, "listening on {}\n", url_of(options.http, http->port()));
  load_and_get_ready(options, api);
  print_ready(options, defaults);
  while (!wait_for_signal(std::chrono::seconds(1))) {
    if (options.exit_on_failure) exit_if_failed(api);
  }
  shut_down(options, api, *http);
  if (!api.is_stuck()) return;
  fmt::print(stderr, "error: the engine's step never returned\n");
  std::fflush(nullptr);
  std::_Exit(1);  // its thread cannot be joined
}

}  // namespace

void add_serve(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("serve", kDescription);
  add_serve_options(*command, *options);
  command
      ->add_option_function<std::string>(
          "--cuda-graph-max-bs",
          [options](const std::string&) {
            options->notices.emplace_back(
                "--cuda-graph-max-bs has no effect: there are no captured graphs");
          },
          "accepted: there are no captured graphs")
      ->group("Options of other servers");
  command->callback([options] { serve(*options); });
}

}  // namespace halfbyte::tool
