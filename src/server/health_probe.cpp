// SPDX-License-Identifier: Apache-2.0
#include "server/health_probe.h"

#include <utility>

#include "server/json.h"

namespace halfbyte::server {
namespace {

PendingAnswer::Progress end_with(HttpResponse response) {
  PendingAnswer::Progress end;
  end.done = true;
  end.response = std::move(response);
  return end;
}

}  // namespace

std::variant<std::shared_ptr<PendingAnswer>, ApiError> HealthProbe::start(
    std::shared_ptr<EngineDriver> driver, std::chrono::milliseconds limit) {
  auto probe = std::make_shared<HealthProbe>(std::move(driver), limit);
  SamplingParams one_token;
  one_token.max_new_tokens = 1;
  const auto request_id = probe->driver_->submit(
      {.prompt_ids = {0}, .sampling = std::move(one_token), .cache_salt = "health"},
      probe->events_);
  if (!request_id.ok()) return ApiError{503, std::string(request_id.status().message()), "", ""};
  probe->request_id_ = *request_id;
  return probe;
}

PendingAnswer::Progress HealthProbe::advance() {
  for (const TokenEvent& event : events_->take()) {
    if (event.finish_reason == FinishReason::kNone) continue;
    if (event.token_id >= 0) return end_with({.status = 200, .body = R"({"status":"ready"})"});
    return end_with(error_response({503, "the engine gave no token: " + event.error, "", ""}));
  }
  if (std::chrono::steady_clock::now() < deadline_) return {};
  cancel();
  return end_with(error_response({503, "the engine gave no token in time", "", ""}));
}

}  // namespace halfbyte::server
