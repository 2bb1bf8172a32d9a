// SPDX-License-Identifier: Apache-2.0
//
// HTTP/1.1: requests in, responses or event streams out. Nothing here knows what is served, and
// nothing else knows what serves it (Boost.Beast, in http.cpp alone).
#ifndef HALFBYTE_SERVER_HTTP_H_
#define HALFBYTE_SERVER_HTTP_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "halfbyte/result.h"
#include "server/access_log.h"

namespace halfbyte::server {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // without the query
  std::string content_type;
  std::string authorization;
  std::string body;
  std::string api_key = {};  // of X-Api-Key
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // beyond type and length
};

/// An answer that is still being made. Thread rule: one thread at a time; the callback comes
/// from elsewhere.
class PendingAnswer {
 public:
  struct Progress {
    std::string bytes;                     // of the body; for streams
    std::optional<HttpResponse> response;  // whole; for what does not stream. Ends it
    bool done = false;                     // nothing comes after this
    bool close = false;                    // with done: the connection ends too
  };
  virtual ~PendingAnswer() = default;
  /// `wake` may be called from any thread when advance() has more to give; null: no more calls,
  /// and none is under way when this returns.
  virtual void on_progress(std::function<void()> wake) = 0;
  /// True: 200 with events as they come. False: one response at the end.
  virtual bool streams() const = 0;
  /// What came since the last call; may be nothing.
  virtual Progress advance() = 0;
  /// advance() is called then, if not before.
  virtual std::chrono::steady_clock::time_point deadline() const {
    return std::chrono::steady_clock::time_point::max();
  }
  /// The client has gone: whatever makes the answer stops.
  virtual void cancel() = 0;
  /// Adds what only it knows; after its end.
  virtual void describe(AccessRecord&) const {}
};

using HttpReply = std::variant<HttpResponse, std::shared_ptr<PendingAnswer>>;

/// Called on any of the HTTP threads, several at a time.
using HttpHandler = std::function<HttpReply(const HttpRequest&)>;

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 30000;  // 0: any free one
  int num_threads = 4;         // of which a long prompt holds one while it is tokenised
  std::uint64_t max_body_bytes = 32ULL << 20;
  std::chrono::milliseconds idle_timeout{75'000};         // between requests of a connection
  std::chrono::milliseconds transfer_timeout{30'000};     // for reading a request, or for a write
  std::chrono::milliseconds keep_alive_interval{15'000};  // comments in a quiet stream; 0: none
  std::vector<std::string> allowed_origins = {};          // whose pages may ask; "*": all
  std::function<void(const AccessRecord&)> on_request = {};  // once each, on any thread; or null
};

/// The error body of this HTTP layer's own refusals (400, 413, 431): status and message -> body.
using HttpErrorBody = std::function<std::string(int status, const std::string& message)>;

/// Listens from start() to its destruction, or stop(). Thread rule: one owner.
class HttpServer {
 public:
  /// @return kInvalidArgument: the host is no address of this machine, or the port is taken.
  static Result<std::unique_ptr<HttpServer>> start(const HttpOptions& options,
                                                   HttpHandler handler,
                                                   HttpErrorBody error_body);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The port that it listens on.
  std::uint16_t port() const;
  /// Requests whose answer is not on the wire yet.
  std::int64_t num_active() const;
  /// Closes every connection and joins the threads; a second call has no effect.
  void stop();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_HTTP_H_
