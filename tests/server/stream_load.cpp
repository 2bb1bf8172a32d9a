// SPDX-License-Identifier: Apache-2.0
//
// Many streams at once over sockets, of an engine that costs next to nothing (fake_model.h):
// stream_load [STREAMS [TOKENS]]. Every stream must carry exactly the tokens of its answer, in
// their order. Prints events a second, and the server's memory before and at its most. The client
// is a process of its own.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "server/api.h"
#include "unit/engine/fake_model.h"
#include "unit/server/shipped_text.h"

namespace halfbyte::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kPromptTokens = 8;
constexpr int kPatienceMs = 60'000;  // without a byte

struct Load {
  std::int64_t num_streams = 1000;
  std::int64_t num_tokens = 64;  // of each

  std::int64_t context_tokens() const { return kPromptTokens + num_tokens + 1; }
};

// A failure of this program's own; its exit status says so.
void require(bool is_true, const char* what) {
  if (is_true) return;
  fmt::print(stderr, "error: {}\n", what);
  std::_Exit(2);
}

// Twice a thousand sockets are more than a shell gives.
void allow_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

Request request_of(const Load& load, std::int64_t idx) {
  Request request =
      test::make_request(kPromptTokens, static_cast<std::uint32_t>(idx), load.num_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

// ---------------------------------------------------------------- the client

struct Stream {
  int socket = -1;
  std::string received;
  bool has_ended() const { return received.ends_with("0\r\n\r\n"); }
};

std::string http_request(const Load& load, std::int64_t idx) {
  const Json body = {{"prompt", request_of(load, idx).prompt_ids},
                     {"max_tokens", load.num_tokens},
                     {"temperature", 0},
                     {"ignore_eos", true},
                     {"stream", true},
                     {"return_token_ids", true}};
  const std::string text = to_text(body);
  return fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      text.size(), text);
}

Stream open_stream(std::uint16_t port) {
  Stream stream{.socket = socket(AF_INET, SOCK_STREAM, 0), .received = {}};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  require(connect(stream.socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
          "cannot connect");
  return stream;
}

std::vector<Stream> open_streams(const Load& load, std::uint16_t port, int poll) {
  std::vector<Stream> streams;
  for (std::int64_t i = 0; i < load.num_streams; ++i) {
    streams.push_back(open_stream(port));
    epoll_event wanted{.events = EPOLLIN, .data = {.u64 = static_cast<std::uint64_t>(i)}};
    require(epoll_ctl(poll, EPOLL_CTL_ADD, streams.back().socket, &wanted) == 0, "epoll_ctl");
  }
  return streams;
}

// What has come, until each stream has ended.
void receive(std::vector<Stream>& streams, int poll) {
  std::vector<char> buffer(64U << 10);
  std::array<epoll_event, 256> events{};
  for (std::size_t left = streams.size(); left > 0;) {
    const int count = epoll_wait(poll, events.data(), static_cast<int>(events.size()), kPatienceMs);
    require(count > 0, "nothing comes any more");
    for (int i = 0; i < count; ++i) {
      Stream& stream = streams[events[static_cast<std::size_t>(i)].data.u64];
      const ssize_t size = recv(stream.socket, buffer.data(), buffer.size(), 0);
      require(size > 0, "a connection was closed");
      stream.received.append(buffer.data(), static_cast<std::size_t>(size));
      if (!stream.has_ended()) continue;
      epoll_ctl(poll, EPOLL_CTL_DEL, stream.socket, nullptr);
      --left;
    }
  }
}

// The JSON of each event, without chunks and [DONE].
std::vector<Json> events_of(const std::string& received) {
  std::vector<Json> events;
  constexpr std::string_view kBegin = "data: {";
  for (std::size_t at = received.find(kBegin); at != std::string::npos;
       at = received.find(kBegin, at)) {
    const std::size_t end = received.find("\n\n", at);
    at += kBegin.size() - 1;
    events.push_back(Json::parse(received.substr(at, end - at), nullptr, false));
  }
  return events;
}

// The number of its events; 0 when it is not the answer.
std::int64_t check_stream(const Load& load, std::int64_t idx, const Stream& stream) {
  std::vector<std::int32_t> tokens;
  int num_finishes = 0;
  const std::vector<Json> events = events_of(stream.received);
  for (const Json& event : events) {
    if (!event.contains("choices")) return 0;
    const Json& choice = event["choices"][0];
    for (const Json& id : choice["token_ids"])
      tokens.push_back(id.get<std::int32_t>());
    if (!choice["finish_reason"].is_null()) ++num_finishes;
  }
  const bool is_whole =
      stream.received.find("data: [DONE]\n\n") != std::string::npos && num_finishes == 1 &&
      tokens == test::expected_tokens(request_of(load, idx), load.context_tokens());
  return is_whole ? static_cast<std::int64_t>(events.size()) : 0;
}

int run_client(const Load& load, std::uint16_t port) {
  const int poll = epoll_create1(0);
  std::vector<Stream> streams = open_streams(load, port, poll);
  std::vector<std::string> requests;
  for (std::int64_t i = 0; i < load.num_streams; ++i)
    requests.push_back(http_request(load, i));
  const auto start = Clock::now();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const std::string& text = requests[i];
    require(send(streams[i].socket, text.data(), text.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(text.size()),
            "cannot send");
  }
  receive(streams, poll);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::int64_t num_events = 0, num_wrong = 0;
  for (std::int64_t i = 0; i < load.num_streams; ++i) {
    const std::int64_t events = check_stream(load, i, streams[static_cast<std::size_t>(i)]);
    num_events += events;
    num_wrong += events == 0 ? 1 : 0;
  }
  fmt::print("{} streams of {} tokens: {} wrong, {} events in {:.2f} s, {:.0f} a second\n",
             load.num_streams, load.num_tokens, num_wrong, num_events, seconds,
             static_cast<double>(num_events) / seconds);
  std::fflush(stdout);
  return num_wrong == 0 ? 0 : 1;
}

// ---------------------------------------------------------------- the server

// "VmHWM", "VmRSS"
std::int64_t status_kib(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::atoll(line.c_str() + name.size() + 1);
  }
  return 0;
}

std::unique_ptr<Engine> start_engine(const Load& load, test::FakeControl& control) {
  test::FakeOptions options;
  options.max_context_tokens = load.context_tokens();
  options.num_blocks = load.num_streams * (load.context_tokens() / kKvBlockTokens + 1);
  options.max_running_requests = load.num_streams;
  options.max_step_tokens = load.num_streams * kPromptTokens;
  options.max_prefill_tokens = options.max_step_tokens;
  return test::start_fake_engine(options, control);
}

// Until the child, which is told the port, has ended; its exit status.
int run_server(const Load& load, int port_pipe, pid_t client) {
  test::FakeControl control;
  ApiOptions options;
  options.model_names = {"fake"};
  Api api(options, load_text());
  api.set_ready(start_engine(load, control), load.context_tokens(), {});
  const auto http = HttpServer::start(
      {.port = 0}, [&api](const HttpRequest& request) { return api.handle(request); },
      [](int status, const std::string& message) { return error_body({status, message, "", ""}); });
  require(http.ok(), "cannot listen");
  const std::int64_t before = status_kib("VmRSS");
  const std::uint16_t port = (*http)->port();
  require(write(port_pipe, &port, sizeof(port)) == sizeof(port), "cannot tell the port");
  int status = 1;
  waitpid(client, &status, 0);
  fmt::print("memory of the server: {} KiB before, {} at its most\n", before, status_kib("VmHWM"));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int run(const Load& load) {
  allow_descriptors();
  std::array<int, 2> port_pipe{};
  require(pipe(port_pipe.data()) == 0, "pipe");
  const pid_t client = fork();  // before there is any thread
  require(client >= 0, "fork");
  if (client != 0) return run_server(load, port_pipe[1], client);
  close(port_pipe[1]);
  std::uint16_t port = 0;
  if (read(port_pipe[0], &port, sizeof(port)) != sizeof(port)) return 1;  // no server came up
  return run_client(load, port);
}

}  // namespace
}  // namespace halfbyte::server

int main(int argc, char** argv) {
  halfbyte::server::Load load;
  if (argc > 1) load.num_streams = std::atoll(argv[1]);
  if (argc > 2) load.num_tokens = std::atoll(argv[2]);
  return halfbyte::server::run(load);
}
