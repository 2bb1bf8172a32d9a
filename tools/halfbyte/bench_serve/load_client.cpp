// SPDX-License-Identifier: Apache-2.0
//
// The one translation unit of the tools that sees Boost: it takes a minute to compile.
#include "bench_serve/load_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <ctime>

#include "bench_serve/answer_reader.h"

// Asio's calls report through their last argument, and return the same again.
// NOLINTBEGIN(bugprone-unused-return-value)
namespace halfbyte::tool {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kConnectTimeout{30};
constexpr std::chrono::hours kSilenceTimeout{1};  // without a byte of an answer
constexpr std::chrono::milliseconds kLagPeriod{5};

struct Resolved {
  tcp::resolver::results_type endpoints;
  error_code error;
};

Resolved resolve(asio::io_context& context, const ServerAddress& server) {
  Resolved resolved;
  tcp::resolver resolver(context);
  resolved.endpoints = resolver.resolve(server.host, server.port, resolved.error);
  return resolved;
}

Status connection_error(const ServerAddress& server, const error_code& error) {
  return {StatusCode::kTransportError,
          fmt::format("{}:{}: {}", server.host, server.port, error.message())};
}

http::request<http::string_body> make_request(http::verb method,
                                              const ServerAddress& server,
                                              const std::string& path,
                                              const std::string& api_key,
                                              std::string body) {
  http::request<http::string_body> request(method, server.prefix + path, 11);
  request.set(http::field::host, fmt::format("{}:{}", server.host, server.port));
  request.keep_alive(false);
  if (!api_key.empty()) request.set(http::field::authorization, "Bearer " + api_key);
  if (!body.empty()) {
    request.set(http::field::content_type, "application/json");
    request.body() = std::move(body);
  }
  request.prepare_payload();
  return request;
}

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// Everything on the one thread that calls run().
class Load {
 public:
  Load(const LoadOptions& options,
       std::span<const std::string> bodies,
       std::span<const double> arrivals)
      : options_(options), bodies_(bodies), arrivals_(arrivals), ended_(context_) {
    result_.outcomes.resize(bodies.size());
  }

  Result<LoadResult> run() {
    const Resolved resolved = resolve(context_, options_.server);
    if (resolved.error) {
      return Status(StatusCode::kNotFound,
                    fmt::format("{}: {}", options_.server.host, resolved.error.message()));
    }
    endpoints_ = resolved.endpoints;
    start_ = Clock::now();
    const double cpu_before = cpu_seconds();
    asio::co_spawn(context_, send_all(), asio::detached);
    asio::co_spawn(context_, measure_lag(), asio::detached);
    context_.run();
    result_.cpu_share = (cpu_seconds() - cpu_before) / std::max(now(), 1e-9);
    return std::move(result_);
  }

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  asio::awaitable<void> send_all() {
    asio::steady_timer timer(context_);
    error_code ignored;
    for (std::size_t i = 0; i < bodies_.size(); ++i) {
      timer.expires_at(start_ + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(arrivals_[i])));
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      while (options_.max_concurrency > 0 && under_way_ >= options_.max_concurrency) {
        ended_.expires_at(Clock::time_point::max());  // until one ends
        co_await ended_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      }
      result_.max_under_way = std::max(result_.max_under_way, ++under_way_);
      asio::co_spawn(context_, send_one(i), asio::detached);
    }
  }

  asio::awaitable<void> send_one(std::size_t i) {
    Outcome& outcome = result_.outcomes[i];
    outcome.sent = now();
    error_code error;
    co_await exchange(bodies_[i], outcome, error);
    if (error && outcome.error.empty()) outcome.error = error.message();
    if (outcome.done == 0.0) outcome.done = now();
    --under_way_;
    ++num_ended_;
    ended_.cancel();
  }

  asio::awaitable<void> exchange(const std::string& body, Outcome& outcome, error_code& error) {
    beast::tcp_stream stream(context_);
    stream.expires_after(kConnectTimeout);
    co_await stream.async_connect(endpoints_, asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return;
    stream.socket().set_option(tcp::no_delay(true), error);
    const auto request =
        make_request(http::verb::post, options_.server, options_.path, options_.api_key, body);
    co_await http::async_write(stream, request, asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return;
    stream.expires_after(kSilenceTimeout);
    co_await read_answer(stream, outcome, error);
  }

  asio::awaitable<void> read_answer(beast::tcp_stream& stream,
                                    Outcome& outcome,
                                    error_code& error) {
    beast::flat_buffer buffer;
    http::response_parser<http::string_body> parser;
    parser.body_limit(boost::none);
    parser.eager(true);
    co_await http::async_read_header(stream, buffer, parser,
                                     asio::redirect_error(asio::use_awaitable, error));
    AnswerReader reader(options_.streams, outcome);
    std::string refusal;
    while (!error) {
      std::string piece = std::move(parser.get().body());
      parser.get().body().clear();
      if (parser.get().result() != http::status::ok) {
        refusal += piece;
      } else if (!piece.empty()) {
        reader.feed(piece, now());
      }
      if (parser.is_done()) break;
      stream.expires_after(kSilenceTimeout);
      co_await http::async_read_some(stream, buffer, parser,
                                     asio::redirect_error(asio::use_awaitable, error));
    }
    if (error) co_return;
    if (parser.get().result() != http::status::ok) {
      reader.refuse(static_cast<int>(parser.get().result_int()), refusal);
    } else {
      reader.finish(now());
    }
  }

  // A timer that fires late says that this thread had no time for answers either.
  asio::awaitable<void> measure_lag() {
    asio::steady_timer timer(context_);
    error_code ignored;
    while (num_ended_ < bodies_.size()) {
      timer.expires_after(kLagPeriod);
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      const std::chrono::duration<double, std::milli> lag = Clock::now() - timer.expiry();
      result_.loop_lags_ms.push_back(lag.count());
    }
  }

  const LoadOptions& options_;
  std::span<const std::string> bodies_;
  std::span<const double> arrivals_;
  asio::io_context context_{1};
  asio::steady_timer ended_;  // cancelled whenever a request ends
  tcp::resolver::results_type endpoints_;
  Clock::time_point start_;
  std::int64_t under_way_ = 0;
  std::size_t num_ended_ = 0;
  LoadResult result_;
};

}  // namespace

Result<LoadResult> run_load(const LoadOptions& options,
                            std::span<const std::string> bodies,
                            std::span<const double> arrivals) {
  return Load(options, bodies, arrivals).run();
}

Result<HttpAnswer> http_call(const ServerAddress& server,
                             const std::string& api_key,
                             const std::string& method,
                             const std::string& path,
                             const std::string& body) {
  asio::io_context context;
  Resolved resolved = resolve(context, server);
  if (resolved.error) return connection_error(server, resolved.error);
  error_code error;
  beast::tcp_stream stream(context);
  stream.connect(resolved.endpoints, error);
  if (error) return connection_error(server, error);
  const auto request = make_request(http::string_to_verb(method), server, path, api_key, body);
  http::write(stream, request, error);
  beast::flat_buffer buffer;
  http::response<http::string_body> response;
  if (!error) http::read(stream, buffer, response, error);
  if (error) return connection_error(server, error);
  return HttpAnswer{static_cast<int>(response.result_int()), std::move(response.body())};
}

}  // namespace halfbyte::tool
// NOLINTEND(bugprone-unused-return-value)
