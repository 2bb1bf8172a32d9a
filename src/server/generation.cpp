// SPDX-License-Identifier: Apache-2.0
#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <limits>
#include <utility>

#include "text/grammar.h"

namespace halfbyte::server {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

ApiError refusal(const Status& status, const std::string& prompt_field) {
  if (status.code() == StatusCode::kCapacityExceeded) {
    return {429, std::string(status.message()), "", ""};
  }
  return to_api_error(status, prompt_field);
}

}  // namespace

Generation::Generation(GenerationRequest request,
                       const ApiFormat& format,
                       GenerationServices services,
                       std::string id)
    : request_(std::move(request)),
      services_(std::move(services)),
      writer_(
          format.make_writer({request_, *services_.tokenizer, std::move(id), std::time(nullptr)})) {
}

std::variant<std::shared_ptr<PendingAnswer>, ApiError> Generation::start(
    GenerationRequest request,
    const ApiFormat& format,
    GenerationServices services,
    std::string id) {
  auto generation =
      std::make_shared<Generation>(std::move(request), format, std::move(services), std::move(id));
  if (const Status status = generation->submit(); !status.ok()) {
    generation->cancel_open();
    ApiError refused = refusal(status, generation->request_.prompt_field);
    if (refused.status != 500) return refused;
    generation->fail_to_begin(status);
    return generation;
  }
  std::string begin = generation->writer_->begin();
  if (generation->request_.stream) generation->begin_ = std::move(begin);
  return generation;
}

Status Generation::submit() {
  for (std::size_t prompt_idx = 0; prompt_idx < request_.prompts.size(); ++prompt_idx) {
    for (std::int64_t n_idx = 0; n_idx < request_.n; ++n_idx) {
      HALFBYTE_RETURN_IF_ERROR(submit_one(prompt_idx, n_idx));
    }
  }
  return {};
}

Status Generation::submit_one(std::size_t prompt_idx, std::int64_t n_idx) {
  Request sequence{.prompt_ids = request_.prompts[prompt_idx],
                   .sampling = request_.sampling,
                   .cache_salt = request_.cache_salt};
  const std::int64_t room =
      services_.context_tokens - static_cast<std::int64_t>(sequence.prompt_ids.size());
  sequence.sampling.max_new_tokens = std::min(request_.max_tokens.value_or(room), room);
  sequence.sampling.seed += static_cast<std::uint64_t>(n_idx);
  if (request_.grammar) sequence.constraint = request_.grammar->make_constraint(request_.reasoning);
  HALFBYTE_ASSIGN_OR_RETURN(const RequestId id,
                            services_.driver->submit(std::move(sequence), events_));
  choice_of_.emplace(id, choices_.size());
  choices_.emplace_back(*services_.tokenizer, request_, prompt_idx);
  answers_.emplace_back();
  last_token_.emplace_back();
  return {};
}

void Generation::fail_to_begin(const Status& status) {
  failed_to_begin_ = true;
  error_ = status.to_string();
  error_code_ = status.code();
}

PendingAnswer::Progress Generation::advance() {
  Progress progress;
  progress.bytes = std::exchange(begin_, {});
  for (const TokenEvent& event : events_->take()) {
    progress.bytes += take(event);
    if (error_) break;
  }
  if (!error_ && Clock::now() >= deadline()) {
    timed_out_ = true;
    error_ = fmt::format("no token within the {} ms that --request-timeout allows",
                         services_.request_timeout.count());
  }
  if (!error_ && !choice_of_.empty()) return progress;
  Progress end = error_ ? fail() : finish();
  end.bytes.insert(0, progress.bytes);
  return end;
}

std::chrono::steady_clock::time_point Generation::deadline() const {
  const bool is_limited = services_.request_timeout.count() > 0 && !has_token_ && !timed_out_;
  return is_limited ? start_ + services_.request_timeout : Clock::time_point::max();
}

// Events of a sequence that ended here (a stop string) may still come: they are nobody's.
std::string Generation::take(const TokenEvent& event) {
  const auto found = choice_of_.find(event.request_id);
  if (found == choice_of_.end()) return {};
  const std::size_t index = found->second;
  Choice& choice = choices_[index];
  const bool is_first = choice.num_tokens() == 0;
  AnswerPart news = choice.take(event);
  if (event.token_id >= 0) observe_token(index, event.time);
  if (event.finish_reason == FinishReason::kError) {
    error_ = event.error;
    error_code_ = event.error_code;
  }
  if (choice.finished()) {
    choice_of_.erase(found);
    if (event.finish_reason == FinishReason::kNone) services_.driver->cancel(event.request_id);
    count(choice);
  }
  return deliver(index, std::move(news), is_first);
}

// Events for a stream, when they are due; else kept for the end.
std::string Generation::deliver(std::size_t choice_idx, AnswerPart news, bool is_first) {
  append(std::move(news), answers_[choice_idx]);
  if (!request_.stream) return {};
  const Choice& choice = choices_[choice_idx];
  const bool is_due =
      is_first || choice.finished() || choice.num_tokens() % services_.stream_interval == 0;
  return is_due ? write_events(choice_idx, is_first) : std::string();
}

// A stop string, a half character or the head of a call holds text back: the next event carries
// the tokens too.
std::string Generation::write_events(std::size_t choice_idx, bool is_first) {
  const Choice& choice = choices_[choice_idx];
  const Usage so_far = usage();
  const AnswerWriter::Place place{choice_idx, choice, so_far};
  std::string events;
  if (is_first && !error_) events = writer_->first_event(place);
  AnswerWriter::Tokens unsent;
  for (AnswerPart& part : std::exchange(answers_[choice_idx], {})) {
    events += writer_->part_events(place, std::move(part), unsent);
  }
  if (choice.finished() && !error_) {
    events += writer_->finish_event(place, unsent);
  } else {
    append({.tokens = std::move(unsent)}, answers_[choice_idx]);
  }
  return events;
}

void Generation::observe_token(std::size_t choice_idx, Clock::time_point time) {
  has_token_ = true;
  Clock::time_point& last = last_token_[choice_idx];
  if (last == Clock::time_point()) {
    services_.metrics->observe_first_token(seconds_between(start_, time));
  } else {
    services_.metrics->observe_inter_token(seconds_between(last, time));
  }
  last = time;
}

// What an error ended counts as aborted, as do the others of its request.
void Generation::count(const Choice& choice) {
  const bool has_ended = choice.finished() && choice.finish_reason() != "error";
  services_.metrics->count_finished(
      has_ended ? choice.finish_reason() : "abort",
      static_cast<std::int64_t>(request_.prompts[choice.prompt_idx()].size()), choice.num_tokens(),
      seconds_between(start_, Clock::now()));
}

void Generation::cancel_open() {
  for (const auto& [request_id, index] : choice_of_) {
    services_.driver->cancel(request_id);
  }
  choice_of_.clear();
}

void Generation::cancel() {
  for (const auto& [request_id, index] : choice_of_) {
    count(choices_[index]);
  }
  cancel_open();
}

void Generation::describe(AccessRecord& record) const {
  const Usage used = usage();
  record.id = writer_->id();
  record.prompt_tokens = used.prompt_tokens;
  record.completion_tokens = used.completion_tokens;
  record.error = error_.value_or("");
}

PendingAnswer::Progress Generation::finish() {
  Progress end;
  end.done = true;
  if (request_.stream) {
    end.bytes = writer_->end_events(usage());
  } else {
    end.response =
        HttpResponse{.status = 200, .body = writer_->response(choices_, answers_, usage())};
  }
  return end;
}

ApiError Generation::failure() const {
  const std::string message = writer_->id() + ": " + *error_;
  if (timed_out_) return {408, message, "", ""};
  if (services_.driver->is_closed()) return {503, message, "", ""};
  const bool is_own = error_code_ == StatusCode::kInvalidArgument;
  return {is_own ? 400 : 500, message, is_own ? request_.constraint_field : "", ""};
}

// One sequence that fails ends the whole request.
PendingAnswer::Progress Generation::fail() {
  cancel();
  const ApiError error = failure();
  services_.metrics->count_rejected(error.status);
  Progress end;
  end.done = true;
  end.close = true;
  if (streams()) {
    end.bytes = writer_->error_events(error);
  } else {
    end.response = writer_->error_response(error);
  }
  return end;
}

// A prompt is counted once however many answers it has; so is what the cache had of it.
Usage Generation::usage() const {
  Usage usage;
  for (const auto& prompt : request_.prompts) {
    usage.prompt_tokens += static_cast<std::int64_t>(prompt.size());
  }
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    usage.completion_tokens += choice.num_tokens();
    usage.reasoning_tokens += choice.num_reasoning_tokens();
    const bool is_first_of_prompt = i % static_cast<std::size_t>(request_.n) == 0;
    if (is_first_of_prompt) usage.cached_tokens += choice.num_cached_tokens();
  }
  return usage;
}

}  // namespace halfbyte::server
