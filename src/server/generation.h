// SPDX-License-Identifier: Apache-2.0
//
// One client's request from the engine's queue to its last byte.
#ifndef HALFBYTE_SERVER_GENERATION_H_
#define HALFBYTE_SERVER_GENERATION_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "server/api_format.h"
#include "server/engine_driver.h"
#include "server/http.h"
#include "server/metrics.h"

namespace halfbyte::server {

/// What generations use, all of it shared.
struct GenerationServices {
  std::shared_ptr<EngineDriver> driver;
  std::shared_ptr<Metrics> metrics;
  const Tokenizer* tokenizer = nullptr;
  std::int64_t context_tokens = 0;
  std::chrono::milliseconds request_timeout{0};  // until the first token; 0: none
  std::int64_t stream_interval = 1;              // tokens between events of a choice
};

/// Every prompt n times, decoded together; streamed or whole from the same pieces of text.
class Generation : public PendingAnswer {
 public:
  /// Hands all sequences to the engine, or none; the answer is of `format` and has the id `id`. 429
  /// when the engine's queue is full; 503 when it takes nothing; 400 when it refuses. What the
  /// engine fails at is an answer: 500 with its id, streaming or not.
  static std::variant<std::shared_ptr<PendingAnswer>, ApiError> start(GenerationRequest request,
                                                                      const ApiFormat& format,
                                                                      GenerationServices services,
                                                                      std::string id);
  Generation(GenerationRequest request,
             const ApiFormat& format,
             GenerationServices services,
             std::string id);

  /// Makes it the answer that the engine failed to take the request.
  void fail_to_begin(const Status& status);
  void on_progress(std::function<void()> wake) override { events_->on_push(std::move(wake)); }
  bool streams() const override { return request_.stream && !failed_to_begin_; }
  Progress advance() override;
  std::chrono::steady_clock::time_point deadline() const override;
  void cancel() override;
  void describe(AccessRecord& record) const override;

 private:
  using Clock = std::chrono::steady_clock;

  Status submit();
  Status submit_one(std::size_t prompt_idx, std::int64_t n_idx);
  std::string take(const TokenEvent& event);
  std::string deliver(std::size_t choice_idx, AnswerPart news, bool is_first);
  std::string write_events(std::size_t choice_idx, bool is_first);
  void observe_token(std::size_t choice_idx, Clock::time_point time);
  void count(const Choice& choice);
  void cancel_open();
  Progress finish();
  Progress fail();
  ApiError failure() const;
  Usage usage() const;

  const GenerationRequest request_;
  const GenerationServices services_;
  const std::unique_ptr<AnswerWriter> writer_;
  const std::shared_ptr<EventQueue> events_ = std::make_shared<EventQueue>(writer_->id());
  const Clock::time_point start_ = Clock::now();

  std::unordered_map<RequestId, std::size_t> choice_of_;  // of sequences in the engine
  std::vector<Choice> choices_;
  std::vector<AnswerParts> answers_;           // whole; of streams, what no event has carried yet
  std::vector<Clock::time_point> last_token_;  // of each choice
  std::string begin_;                          // of a stream, until it is given
  bool has_token_ = false;                     // of any choice
  bool timed_out_ = false;
  bool failed_to_begin_ = false;
  std::optional<std::string> error_;
  StatusCode error_code_ = StatusCode::kOk;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_GENERATION_H_
