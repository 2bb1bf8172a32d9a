// SPDX-License-Identifier: Apache-2.0
//
// The one translation unit that sees Boost: it takes a minute to compile.
#include "server/http.h"

#include <fmt/format.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <exception>
#include <thread>

#include "server/http_guards.h"
#include "server/http_message.h"
#include "server/http_peer.h"
#include "server/random_id.h"

// Asio's calls report through their last argument, and return the same again.
// NOLINTBEGIN(bugprone-unused-return-value)
namespace halfbyte::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMaxHeaderBytes = 64U << 10;
// Escaped, they and the rest of a line fit the 4 KiB that a pipe takes at once.
constexpr std::size_t kMaxLoggedMethod = 32;
constexpr std::size_t kMaxLoggedPath = 512;
// How often a quiet connection is looked at when no event would tell that its client has gone.
constexpr std::chrono::milliseconds kWatchInterval{500};
constexpr std::string_view kComment = ": keep-alive\n\n";  // of a stream of events

struct Shared {
  HttpOptions options;
  HttpHandler handler;
  HttpErrorBody error_body;
  std::atomic<std::int64_t> num_active{0};
};

// Lets a coroutine wait for a call from another thread. Everything but wake() runs on the strand.
struct Waiter {
  explicit Waiter(const asio::any_io_executor& executor) : timer(executor) {}
  void signal() {
    signalled = true;
    timer.cancel();
  }
  asio::steady_timer timer;
  bool signalled = false;
  HangUp hang_up = HangUp::kNone;
};

constexpr int kClientLeft = 499;  // as nginx logs it

// One connection, from accept to close, on its strand.
class Connection {
 public:
  Connection(tcp::socket socket, std::shared_ptr<Shared> shared)
      : stream_(std::move(socket)),
        shared_(std::move(shared)),
        client_(address_of(stream_.socket())),
        waiter_(std::make_shared<Waiter>(stream_.get_executor())) {}

  asio::awaitable<void> run() {
    while (open_) {
      co_await serve_one();
    }
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  asio::awaitable<void> serve_one() {
    Parser parser;
    parser.body_limit(shared_->options.max_body_bytes);
    parser.header_limit(kMaxHeaderBytes);
    error_code error;
    co_await read(parser, error);
    if (error) {
      open_ = false;
      co_await refuse(error, parser);
      co_return;
    }
    const ActiveRequest active(shared_->num_active);
    begin_request(parser);
    keep_alive_ = parser.get().keep_alive();
    is_head_ = parser.get().method() == http::verb::head;
    version_ = parser.get().version();
    HttpReply reply =
        is_preflight(parser)
            ? preflight_response(text_of(parser.get()[http::field::access_control_request_headers]))
            : call_handler(to_request(parser.get()));
    if (auto* response = std::get_if<HttpResponse>(&reply)) {
      co_await write(*response);
    } else {
      co_await answer(std::get<std::shared_ptr<PendingAnswer>>(reply));
    }
    end_record();
  }

  void begin_request(const Parser& parser) {
    const auto& request = parser.get();
    begin_ = Clock::now();
    record_ = {.time = std::chrono::system_clock::now(),
               .client = client_,
               .method = text_of(request.method_string()).substr(0, kMaxLoggedMethod),
               .path = path_of(text_of(request.target())).substr(0, kMaxLoggedPath),
               .status = kClientLeft,
               .request_bytes = request.body().size()};
    cors_ = cors_of(shared_->options.allowed_origins, text_of(request[http::field::origin]));
  }

  void end_record() {
    record_.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (shared_->options.on_request) shared_->options.on_request(record_);
  }

  asio::awaitable<void> read(Parser& parser, error_code& error) {
    stream_.expires_after(shared_->options.idle_timeout);
    co_await http::async_read_header(stream_, buffer_, parser,
                                     asio::redirect_error(asio::use_awaitable, error));
    // A body in an encoding that Beast does not know would be read as the next request.
    const bool has_encoding = parser.get().count(http::field::transfer_encoding) > 0;
    if (!error && has_encoding && !parser.chunked()) error = http::error::bad_transfer_encoding;
    if (error) co_return;
    begin_transfer();
    if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      http::response<http::empty_body> go_on(http::status::continue_, 11);
      co_await http::async_write(stream_, go_on, asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return;
    }
    while (!error && !parser.is_done()) {
      begin_transfer();
      co_await http::async_read_some(stream_, buffer_, parser,
                                     asio::redirect_error(asio::use_awaitable, error));
    }
  }

  // Of one piece: a client that is slow and goes on is not one that has stopped.
  void begin_transfer() { stream_.expires_after(shared_->options.transfer_timeout); }

  // What the client did wrong, where it can still be told.
  asio::awaitable<void> refuse(error_code error, const Parser& parser) {
    const bool silent = error == http::error::end_of_stream || error == beast::error::timeout ||
                        error.category() != make_error_code(http::error::bad_method).category();
    if (silent) co_return;
    const bool too_large = error == http::error::body_limit;
    const int status = too_large ? 413 : error == http::error::header_limit ? 431 : 400;
    const std::string message =
        too_large ? fmt::format("the body is larger than {} bytes", shared_->options.max_body_bytes)
                  : fmt::format("not an HTTP request: {}", error.message());
    keep_alive_ = false;
    begin_request(parser);
    record_.error = message;
    HttpResponse response{.status = status, .body = shared_->error_body(status, message)};
    co_await write(response);
    end_record();
    co_await drop_rest();
  }

  // A close with unread input would reset the connection before the client has read the refusal.
  asio::awaitable<void> drop_rest() {
    error_code error;
    stream_.socket().shutdown(tcp::socket::shutdown_send, error);
    stream_.expires_after(std::chrono::seconds(2));
    std::vector<char> rest(64U << 10);
    while (!error) {
      co_await stream_.async_read_some(asio::buffer(rest),
                                       asio::redirect_error(asio::use_awaitable, error));
    }
  }

  // A page of another origin that may ask wants to know what.
  bool is_preflight(const Parser& parser) const {
    return cors_.may_ask && parser.get().method() == http::verb::options &&
           parser.get().count(http::field::access_control_request_method) > 0;
  }

  HttpReply call_handler(const HttpRequest& request) {
    try {
      return shared_->handler(request);
    } catch (const std::exception& e) {
      return defect(e.what());
    }
  }

  // The client is told where the access log has it.
  HttpResponse defect(const std::string& what) {
    record_.id = random_id("error-");
    record_.error = what;
    const std::string message = fmt::format("{}: {}", record_.id, what);
    return {.status = 500, .body = shared_->error_body(500, message)};
  }

  template <typename Message>
  void set_cors(Message& message) const {
    for (const auto& [name, value] : cors_.headers) {
      message.set(name, value);
    }
  }

  asio::awaitable<void> write(HttpResponse& response) {
    http::response<http::string_body> message(static_cast<http::status>(response.status), version_);
    message.set(http::field::content_type, response.content_type);
    for (const auto& [name, value] : response.headers) {
      message.set(name, value);
    }
    set_cors(message);
    message.keep_alive(keep_alive_);
    record_.response_bytes = is_head_ ? 0 : response.body.size();
    message.body() = std::move(response.body);
    message.prepare_payload();
    if (is_head_) message.body().clear();  // the length says what a GET would have had
    http::response_serializer<http::string_body> serializer(message);
    error_code error;
    while (!error && !serializer.is_done()) {
      begin_transfer();
      co_await http::async_write_some(stream_, serializer,
                                      asio::redirect_error(asio::use_awaitable, error));
    }
    if (!error) record_.status = response.status;
    open_ = open_ && keep_alive_ && !error;
  }

  asio::awaitable<void> answer(std::shared_ptr<PendingAnswer> pending) {
    waiter_->signalled = true;  // it may have something already
    const WakeGuard guard(*pending, [waiter = waiter_, executor = stream_.get_executor()] {
      asio::post(executor, [waiter] { waiter->signal(); });
    });
    stream_.expires_never();
    hang_up_ = waiter_->hang_up = HangUp::kNone;
    watch_client(tcp::socket::wait_read);
    streams_ = pending->streams();
    if (streams_) {
      co_await send_events(*pending);
    } else {
      co_await send_whole(*pending);
    }
    if (!open_) pending->cancel();  // no effect on what has ended
    pending->describe(record_);
  }

  // A client that closes wakes the coroutine. A request that is sent ahead makes the socket
  // readable too: from then on wait() looks every kWatchInterval.
  void watch_client(tcp::socket::wait_type wanted) {
    stream_.socket().async_wait(
        wanted,
        [waiter = waiter_, descriptor = stream_.socket().native_handle()](error_code error) {
          if (error) return;
          waiter->hang_up = std::max(waiter->hang_up, hang_up_of(descriptor));
          if (waiter->hang_up != HangUp::kNone) waiter->signal();
        });
  }

  // Ends the watch, which must not see the next request.
  void unwatch_client() {
    error_code ignored;
    stream_.socket().cancel(ignored);
  }

  // Until there is progress, the client has gone, or `limit` has passed.
  asio::awaitable<void> wait(Clock::time_point limit) {
    while (!waiter_->signalled && Clock::now() < limit) {
      waiter_->timer.expires_at(std::min(limit, Clock::now() + kWatchInterval));
      error_code ignored;
      co_await waiter_->timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      waiter_->hang_up = std::max(waiter_->hang_up, hang_up_of(stream_.socket().native_handle()));
      if (waiter_->hang_up > hang_up_) break;
    }
    waiter_->signalled = false;
    if (waiter_->hang_up > hang_up_) co_await look_after_hang_up();
  }

  // A client that sends no more may still read: it is sent what no client minds, and is gone when
  // that is not taken. HTTP/1.0 has nothing of the kind before an answer: there it counts as gone.
  asio::awaitable<void> look_after_hang_up() {
    hang_up_ = waiter_->hang_up;
    const bool can_ask = streams_ || version_ >= 11;
    if (hang_up_ == HangUp::kBoth || !can_ask) {
      open_ = false;
      co_return;
    }
    watch_client(tcp::socket::wait_error);
    if (streams_) {
      co_await write_piece(std::string(kComment), false);
    } else {
      http::response<http::empty_body> interim(http::status::continue_, 11);
      error_code error;
      co_await http::async_write(stream_, interim,
                                 asio::redirect_error(asio::use_awaitable, error));
      if (error) open_ = false;
    }
  }

  asio::awaitable<void> send_whole(PendingAnswer& pending) {
    while (open_) {
      co_await wait(pending.deadline());
      PendingAnswer::Progress progress = pending.advance();
      if (!open_ || !progress.done) continue;
      unwatch_client();
      HttpResponse response =
          progress.response ? std::move(*progress.response)
                            : HttpResponse{.status = 500, .body = shared_->error_body(500, "")};
      co_await write(response);
      co_return;
    }
  }

  asio::awaitable<void> send_events(PendingAnswer& pending) {
    co_await write_head();
    const auto quiet = shared_->options.keep_alive_interval;
    while (open_) {
      const bool comments = quiet.count() > 0;
      co_await wait(comments ? std::min(Clock::now() + quiet, pending.deadline())
                             : pending.deadline());
      PendingAnswer::Progress progress = pending.advance();
      if (!open_) co_return;
      if (progress.done) unwatch_client();
      if (progress.bytes.empty() && !progress.done && comments &&
          quiet_since_ + quiet <= Clock::now())
        progress.bytes = kComment;
      co_await write_piece(progress.bytes, progress.done);
      if (!progress.done) continue;
      if (open_) record_.status = 200;
      open_ = open_ && keep_alive_ && !progress.close;
      co_return;
    }
  }

  asio::awaitable<void> write_head() {
    http::response<http::empty_body> head(http::status::ok, version_);
    head.set(http::field::content_type, "text/event-stream; charset=utf-8");
    head.set(http::field::cache_control, "no-cache");
    set_cors(head);
    chunked_ = version_ >= 11;
    keep_alive_ = keep_alive_ && chunked_;
    head.keep_alive(keep_alive_);
    if (chunked_) head.chunked(true);
    http::response_serializer<http::empty_body> serializer(head);
    begin_transfer();
    error_code error;
    co_await http::async_write_header(stream_, serializer,
                                      asio::redirect_error(asio::use_awaitable, error));
    stream_.expires_never();
    quiet_since_ = Clock::now();
    if (error) open_ = false;
  }

  asio::awaitable<void> write_piece(const std::string& bytes, bool is_last) {
    std::string wire;
    if (!bytes.empty()) {
      wire = chunked_ ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes) : bytes;
      record_.response_bytes += bytes.size();
      quiet_since_ = Clock::now();
    }
    if (is_last && chunked_) wire += "0\r\n\r\n";
    asio::const_buffer rest = asio::buffer(wire);
    error_code error;
    while (!error && rest.size() > 0) {
      begin_transfer();
      rest +=
          co_await stream_.async_write_some(rest, asio::redirect_error(asio::use_awaitable, error));
    }
    stream_.expires_never();
    if (error) open_ = false;
  }

  beast::tcp_stream stream_;
  std::shared_ptr<Shared> shared_;
  std::string client_;
  std::shared_ptr<Waiter> waiter_;
  beast::flat_buffer buffer_;
  bool open_ = true;
  bool keep_alive_ = true;
  bool is_head_ = false;  // of the request under way
  bool streams_ = false;  // the same
  bool chunked_ = true;
  unsigned version_ = 11;
  HangUp hang_up_ = HangUp::kNone;  // what has been acted upon
  Cors cors_;                       // of the request under way
  Clock::time_point quiet_since_;
  AccessRecord record_;  // of the request under way
  Clock::time_point begin_;
};

asio::awaitable<void> run_connection(tcp::socket socket, std::shared_ptr<Shared> shared) {
  Connection connection(std::move(socket), std::move(shared));
  co_await connection.run();
}

// An exception here is a failed allocation: it ends its own connection only.
void ignore_failure(const std::exception_ptr&) {}

asio::awaitable<void> accept_all(tcp::acceptor& acceptor, std::shared_ptr<Shared> shared) {
  while (acceptor.is_open()) {
    auto strand = asio::make_strand(acceptor.get_executor());
    tcp::socket socket(strand);
    error_code error;
    co_await acceptor.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted) co_return;
    if (error) {  // out of descriptors: wait until some are closed
      asio::steady_timer pause(acceptor.get_executor(), std::chrono::milliseconds(50));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    socket.set_option(tcp::no_delay(true), error);
    asio::co_spawn(strand, run_connection(std::move(socket), shared), ignore_failure);
  }
}

error_code listen(tcp::acceptor& acceptor, const tcp::endpoint& endpoint) {
  try {
    acceptor = tcp::acceptor(acceptor.get_executor(), endpoint);  // reuses the address
    return {};
  } catch (const boost::system::system_error& failure) {
    return failure.code();
  }
}

}  // namespace

struct HttpServer::Impl {
  asio::io_context context;
  tcp::acceptor acceptor{context};
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  std::uint16_t port = 0;
  std::vector<std::thread> threads;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  stop();
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpOptions& options,
                                                      HttpHandler handler,
                                                      HttpErrorBody error_body) {
  auto impl = std::make_unique<Impl>();
  impl->shared->options = options;
  impl->shared->handler = std::move(handler);
  impl->shared->error_body = std::move(error_body);
  error_code error;
  tcp::resolver resolver(impl->context);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port),
                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (!error) error = listen(impl->acceptor, found.begin()->endpoint());
  if (error) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("cannot listen on {}:{}: {}; give another --host or --port",
                              options.host, options.port, error.message()));
  }
  impl->port = impl->acceptor.local_endpoint(error).port();
  asio::co_spawn(impl->context, accept_all(impl->acceptor, impl->shared), asio::detached);
  for (int i = 0; i < options.num_threads; ++i) {
    impl->threads.emplace_back([context = &impl->context] { context->run(); });
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

std::uint16_t HttpServer::port() const {
  return impl_->port;
}

std::int64_t HttpServer::num_active() const {
  return impl_->shared->num_active;
}

void HttpServer::stop() {
  impl_->context.stop();
  for (std::thread& thread : impl_->threads) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace halfbyte::server
// NOLINTEND(bugprone-unused-return-value)
