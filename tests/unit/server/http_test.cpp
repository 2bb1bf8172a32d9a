// SPDX-License-Identifier: Apache-2.0
//
// The HTTP layer alone: sockets on one side, a scripted handler on the other.
#include "server/http.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace halfbyte::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

// A client's socket; reads wait 20 s at most.
class Client {
 public:
  explicit Client(std::uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const timeval limit{.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send_text(const std::string& text) {
    EXPECT_EQ(send(socket_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  void end_sending() { shutdown(socket_, SHUT_WR); }
  // What comes until `mark`, or the end.
  std::string read_until(const std::string& mark) {
    std::string text;
    char buffer[4096];
    while (text.find(mark) == std::string::npos) {
      const ssize_t size = recv(socket_, buffer, sizeof(buffer), 0);
      if (size <= 0) break;
      text.append(buffer, static_cast<std::size_t>(size));
    }
    return text;
  }
  std::string read_all() { return read_until("no such text"); }
  // The bytes that come until the end, to one who takes at most 10 MiB of them a second.
  std::size_t read_slowly() {
    std::vector<char> buffer(1U << 20);
    std::size_t total = 0;
    while (true) {
      const ssize_t size = recv(socket_, buffer.data(), buffer.size(), MSG_WAITALL);
      if (size <= 0) return total;
      total += static_cast<std::size_t>(size);
      std::this_thread::sleep_for(100ms);
    }
  }

 private:
  int socket_;
};

// An answer that the test makes, piece by piece.
class Scripted : public PendingAnswer {
 public:
  explicit Scripted(bool is_stream) : streams_(is_stream) {}
  void on_progress(std::function<void()> wake) override {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  bool streams() const override { return streams_; }
  Progress advance() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(next_, {});
  }
  void cancel() override { cancelled = true; }

  void give(Progress progress) {
    const std::lock_guard lock(mutex_);
    next_ = std::move(progress);
    if (wake_) wake_();
  }
  bool wait_for_cancel() const {
    for (int i = 0; i < 2000 && !cancelled; ++i)
      std::this_thread::sleep_for(10ms);
    return cancelled;
  }
  std::atomic<bool> cancelled = false;

 private:
  const bool streams_;
  std::mutex mutex_;
  std::function<void()> wake_;
  Progress next_;
};

PendingAnswer::Progress piece(std::string bytes, bool done) {
  PendingAnswer::Progress progress;
  progress.bytes = std::move(bytes);
  progress.done = done;
  return progress;
}

std::string request_for(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n";
}

class HttpTest : public ::testing::Test {
 protected:
  void start(HttpOptions options = {}) {
    options.port = 0;
    options.num_threads = 2;
    options.on_request = [this](const AccessRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
    };
    auto server = HttpServer::start(
        options, [this](const HttpRequest& request) { return handle(request); },
        [](int, const std::string& message) { return message; });
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = std::move(server).value();
  }
  HttpReply handle(const HttpRequest& request) {
    if (request.path == "/stream") return stream_;
    if (request.path == "/whole") return whole_;
    if (request.path == "/throw") throw std::runtime_error("a defect");
    return HttpResponse{.status = 200, .body = request.method + " " + request.path + request.body};
  }

  // The first records, once there are so many; what comes later is another test's affair.
  std::vector<AccessRecord> wait_for_records(std::size_t count) {
    for (int i = 0; i < 2000; ++i) {
      {
        const std::lock_guard lock(mutex_);
        if (records_.size() >= count) return records_;
      }
      std::this_thread::sleep_for(10ms);
    }
    ADD_FAILURE() << "fewer than " << count << " records";
    return std::vector<AccessRecord>(count);
  }

  // A stream that has begun, and a whole answer that has not come.
  void ask_for_both(Client& stream, Client& whole) {
    stream.send_text(request_for("/stream"));
    stream.read_until("\r\n\r\n");
    whole.send_text(request_for("/whole"));
    while (server_->num_active() < 2)
      std::this_thread::sleep_for(1ms);
  }

  std::shared_ptr<Scripted> stream_ = std::make_shared<Scripted>(true);
  std::shared_ptr<Scripted> whole_ = std::make_shared<Scripted>(false);
  std::mutex mutex_;
  std::vector<AccessRecord> records_;
  std::unique_ptr<HttpServer> server_;  // last: its threads use the above
};

TEST_F(HttpTest, AnswersSeveralRequestsOfAConnection) {
  start();
  Client client(server_->port());
  client.send_text(request_for("/a?b=c") + request_for("/d"));
  EXPECT_THAT(client.read_until("GET /d"), HasSubstr("GET /a"));
  client.send_text("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_THAT(client.read_until("POST /ehi"), HasSubstr("POST /ehi"));
}

// RFC 9112, 3.2.2: a server must take the absolute form.
TEST_F(HttpTest, TakesWholeUrlsAsTargets) {
  start();
  Client client(server_->port());
  client.send_text(request_for("http://host:1/a/b?c=d"));
  EXPECT_THAT(client.read_until("GET /a/b"), HasSubstr("GET /a/b"));
  client.send_text(request_for("HTTPS://host"));
  EXPECT_THAT(client.read_until("GET /"), HasSubstr("GET /"));
}

// RFC 3986, 2.1: clients escape what a name of a model has beside letters, digits and - . _ ~
TEST_F(HttpTest, TakesEscapesInPathsForWhatTheyStandFor) {
  start();
  Client client(server_->port());
  client.send_text(request_for("/a%2Fb%20%C3%a4%25/%zz%4?c=%41"));
  EXPECT_THAT(client.read_until("%zz%4"), HasSubstr("GET /a/b \xC3\xA4%/%zz%4"));
}

TEST_F(HttpTest, AnswersAClientThatOnlyReadsFromNowOn) {
  start();
  Client whole(server_->port());
  whole.send_text(request_for("/whole"));
  whole.end_sending();
  EXPECT_EQ(whole.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  PendingAnswer::Progress answer;
  answer.done = true;
  answer.response = HttpResponse{.status = 200, .body = "the answer"};
  whole_->give(std::move(answer));
  EXPECT_THAT(whole.read_all(), HasSubstr("the answer"));
  EXPECT_FALSE(whole_->cancelled);

  Client streaming(server_->port());
  streaming.send_text(request_for("/stream"));
  streaming.end_sending();
  EXPECT_THAT(streaming.read_until(": keep-alive\n\n"), HasSubstr(": keep-alive"));
  stream_->give(piece("one", false));
  streaming.read_until("one");
  stream_->give(piece("two", true));
  EXPECT_THAT(streaming.read_all(), HasSubstr("two"));
  EXPECT_FALSE(stream_->cancelled);
}

// Nothing can be sent before an answer of HTTP/1.0 to find out whether anybody reads it.
TEST_F(HttpTest, TakesAnOldClientThatSendsNoMoreForGone) {
  start();
  Client client(server_->port());
  client.send_text("GET /whole HTTP/1.0\r\n\r\n");
  client.end_sending();
  EXPECT_TRUE(whole_->wait_for_cancel());
}

TEST_F(HttpTest, SendsEventsAsTheyCome) {
  start();
  Client client(server_->port());
  client.send_text(request_for("/stream"));
  EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("text/event-stream"));
  stream_->give(piece("one", false));
  EXPECT_EQ(client.read_until("one\r\n"), "3\r\none\r\n");
  stream_->give(piece("two", true));
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "3\r\ntwo\r\n0\r\n\r\n");
  client.send_text(request_for("/next"));
  EXPECT_THAT(client.read_until("GET /next"), HasSubstr("GET /next"));
  EXPECT_FALSE(stream_->cancelled);
}

TEST_F(HttpTest, WritesCommentsIntoAQuietStream) {
  start({.keep_alive_interval = 20ms});
  Client client(server_->port());
  client.send_text(request_for("/stream"));
  EXPECT_THAT(client.read_until(": keep-alive\n\n"), HasSubstr(": keep-alive\n\n"));
  stream_->give(piece("x", true));
  EXPECT_THAT(client.read_until("0\r\n\r\n"), HasSubstr("1\r\nx\r\n"));
}

TEST_F(HttpTest, CancelsWhenAClientLeaves) {
  start();
  {
    Client first(server_->port());
    Client second(server_->port());
    first.send_text(request_for("/stream"));
    first.read_until("\r\n\r\n");
    second.send_text(request_for("/whole"));
  }
  EXPECT_TRUE(stream_->wait_for_cancel());
  EXPECT_TRUE(whole_->wait_for_cancel());
}

// A request that is sent ahead hides the close from a plain wait for input.
TEST_F(HttpTest, CancelsWhenAClientLeavesThatHasSentAhead) {
  start();
  {
    Client client(server_->port());
    client.send_text(request_for("/whole") + request_for("/a"));
    std::this_thread::sleep_for(50ms);
    client.send_text(request_for("/b"));
  }
  EXPECT_TRUE(whole_->wait_for_cancel());
}

TEST_F(HttpTest, StopsInTheMiddleOfAnswers) {
  start();
  Client first(server_->port());
  Client second(server_->port());
  ask_for_both(first, second);
  server_.reset();
  stream_->give(piece("late", true));  // reaches nobody, and nothing that is gone
  whole_->give(piece("late", true));
  EXPECT_EQ(second.read_all(), "");
}

TEST_F(HttpTest, TurnsAnExceptionIntoAResponse) {
  start();
  Client client(server_->port());
  client.send_text(request_for("/throw"));
  const std::string answer = client.read_until("a defect");
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 500"));
  const AccessRecord record = wait_for_records(1).front();
  EXPECT_EQ(record.status, 500);
  EXPECT_EQ(record.error, "a defect");
  EXPECT_TRUE(record.id.starts_with("error-")) << record.id;
  EXPECT_THAT(answer, HasSubstr(record.id + ": a defect"));
}

TEST_F(HttpTest, DropsAClientThatDoesNotFinishItsRequest) {
  start({.transfer_timeout = 50ms});
  Client client(server_->port());
  client.send_text("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf");
  EXPECT_EQ(client.read_all(), "");
}

TEST_F(HttpTest, DropsAClientThatDoesNotRead) {
  start({.transfer_timeout = 500ms});
  std::optional<Client> client;
  do {  // on a busy machine a request may take as long, too
    client.emplace(server_->port());
    client->send_text(request_for("/stream"));
  } while (client->read_until("\r\n\r\n").empty());
  stream_->give(piece(std::string(64U << 20, 'x'), false));  // more than sockets hold
  EXPECT_TRUE(stream_->wait_for_cancel());
}

// All of it takes longer than a transfer may stand still.
TEST_F(HttpTest, TakesARequestThatComesSlowly) {
  start({.transfer_timeout = 1s});
  Client client(server_->port());
  client.send_text("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n");
  for (const char c : std::string("slowly")) {
    std::this_thread::sleep_for(300ms);
    client.send_text({c});
  }
  EXPECT_THAT(client.read_until("slowly"), HasSubstr("POST /aslowly"));
}

TEST_F(HttpTest, GivesAnAnswerToAClientThatReadsSlowly) {
  start({.transfer_timeout = 1s});
  constexpr std::size_t kBytes = 32U << 20;  // more than sockets hold by some seconds
  for (const bool streams : {false, true}) {
    Client client(server_->port());
    client.send_text("GET /" + std::string(streams ? "stream" : "whole") +
                     " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    PendingAnswer::Progress end = piece("", true);
    const std::string text(kBytes, 'x');
    if (streams) {
      end.bytes = text;
    } else {
      end.response = HttpResponse{.status = 200, .body = text};
    }
    (streams ? stream_ : whole_)->give(std::move(end));
    EXPECT_GT(client.read_slowly(), kBytes);
    EXPECT_EQ(wait_for_records(streams ? 2 : 1).back().status, 200);
  }
}

TEST_F(HttpTest, RefusesABodyOverItsLimit) {
  start({.max_body_bytes = 10});
  Client client(server_->port());
  client.send_text("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n");
  EXPECT_THAT(client.read_all(), HasSubstr("HTTP/1.1 413"));
  Client chunked(server_->port());
  chunked.send_text("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n");
  chunked.send_text("01234567890\r\n0\r\n\r\n");
  EXPECT_THAT(chunked.read_all(), HasSubstr("HTTP/1.1 413"));
}

// RFC 9112, 6.1 and 6.3: nobody knows where such a body ends.
TEST_F(HttpTest, RefusesABodyInAnEncodingThatItDoesNotKnow) {
  start();
  Client client(server_->port());
  client.send_text("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n" +
                   request_for("/b"));
  EXPECT_THAT(client.read_all(), AllOf(HasSubstr("HTTP/1.1 400"), Not(HasSubstr("GET /b"))));
}

std::string request_from(const std::string& origin, const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: a\r\nOrigin: " + origin +
         "\r\nConnection: close\r\n\r\n";
}

TEST_F(HttpTest, LetsPagesOfOtherOriginsAskWhereTheyMay) {
  start({.allowed_origins = {"http://friend"}});
  const auto answer = [this](const std::string& request) {
    Client client(server_->port());
    client.send_text(request);
    return client.read_all();
  };
  const std::string allow = "Access-Control-Allow-Origin: http://friend\r\n";
  const std::string vary = "Vary: Origin\r\n";
  EXPECT_THAT(answer(request_from("http://friend", "/a")),
              AllOf(HasSubstr(allow), HasSubstr(vary)));
  EXPECT_THAT(answer(request_from("http://other", "/a")),
              AllOf(Not(HasSubstr("Access-Control")), HasSubstr(vary)));
  EXPECT_THAT(answer("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), HasSubstr(vary))
      << "a cache would give it to those";
  EXPECT_THAT(answer("OPTIONS /a HTTP/1.1\r\nHost: a\r\nOrigin: http://friend\r\n"
                     "Connection: close\r\nAccess-Control-Request-Method: POST\r\n"
                     "Access-Control-Request-Headers: authorization\r\n\r\n"),
              AllOf(HasSubstr("HTTP/1.1 200"), HasSubstr(allow), HasSubstr("GET, POST, DELETE"),
                    HasSubstr("Access-Control-Allow-Headers: authorization\r\n")));
  Client streaming(server_->port());
  streaming.send_text(request_from("http://friend", "/stream"));
  EXPECT_THAT(streaming.read_until("\r\n\r\n"), HasSubstr(allow));
  stream_->give(piece("x", true));
}

TEST_F(HttpTest, LetsNoPageOfAnotherOriginAskUnlessToldTo) {
  start();
  Client client(server_->port());
  client.send_text(request_from("http://friend", "/a"));
  EXPECT_THAT(client.read_all(), AllOf(Not(HasSubstr("Access-Control")), Not(HasSubstr("Vary"))));
}

TEST_F(HttpTest, TellsEveryOriginTheSameWhereAllMayAsk) {
  start({.allowed_origins = {"*"}});
  Client client(server_->port());
  client.send_text(request_from("http://friend", "/a"));
  EXPECT_THAT(client.read_all(),
              AllOf(HasSubstr("Access-Control-Allow-Origin: *\r\n"), Not(HasSubstr("Vary"))));
}

TEST_F(HttpTest, RecordsEachRequestAndWhatCameOfIt) {
  start({.max_body_bytes = 10});
  {
    Client client(server_->port());
    client.send_text("POST /e?secret=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    client.read_until("POST /ehi");
    client.send_text(request_for("/stream"));
    stream_->give(piece("four", true));
    client.read_until("0\r\n\r\n");
    wait_for_records(2);
    client.send_text("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n");
    EXPECT_THAT(client.read_all(), HasSubstr("HTTP/1.1 413"));
  }
  const std::vector<AccessRecord> records = wait_for_records(3);
  EXPECT_EQ(records[0].client, "127.0.0.1");
  EXPECT_EQ(records[0].method, "POST");
  EXPECT_EQ(records[0].path, "/e") << "without the query";
  EXPECT_EQ(records[0].status, 200);
  EXPECT_EQ(records[0].request_bytes, 2U);
  EXPECT_EQ(records[0].response_bytes, 9U);
  EXPECT_GE(records[0].seconds, 0.0);
  EXPECT_EQ(records[1].path, "/stream");
  EXPECT_EQ(records[1].status, 200);
  EXPECT_EQ(records[1].response_bytes, 4U);
  EXPECT_EQ(records[2].status, 413);
  EXPECT_THAT(records[2].error, HasSubstr("larger than 10 bytes"));
}

TEST_F(HttpTest, RecordsThatAClientLeft) {
  start();
  {
    Client first(server_->port());
    Client second(server_->port());
    ask_for_both(first, second);
  }
  for (const AccessRecord& record : wait_for_records(2))
    EXPECT_EQ(record.status, 499) << record.path;
}

TEST_F(HttpTest, SaysWhyItCannotListen) {
  start();
  HttpOptions options;
  options.port = server_->port();
  const auto second = HttpServer::start(options, nullptr, nullptr);
  EXPECT_EQ(second.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("give another --host or --port"));
}

}  // namespace
}  // namespace halfbyte::server
