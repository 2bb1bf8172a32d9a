// SPDX-License-Identifier: Apache-2.0
#include "bench_serve/report.h"

#include <algorithm>

namespace halfbyte::tool {
namespace {

constexpr double kBusyShare = 0.9;       // of a core: a client at that has answers waiting
constexpr double kLagShare = 0.1;        // of what is measured
constexpr double kUnimportantLagMs = 1;  // what any system does now and then

std::int64_t num_output_tokens(const Outcome& outcome) {
  return outcome.completion_tokens >= 0 ? outcome.completion_tokens : std::ssize(outcome.chunks);
}

// Milliseconds of one request.
struct Latency {
  double ttft = 0.0, tpot = 0.0, e2e = 0.0;
};

// An answer without text has its first token when it ends.
Latency latency_of(const Outcome& outcome) {
  const double first = outcome.chunks.empty() ? outcome.done : outcome.chunks.front();
  const double last = outcome.chunks.empty() ? outcome.done : outcome.chunks.back();
  const std::int64_t later = num_output_tokens(outcome) - 1;
  Latency latency;
  latency.ttft = 1e3 * (first - outcome.sent);
  latency.e2e = 1e3 * (outcome.done - outcome.sent);
  latency.tpot = later > 0 ? 1e3 * (last - first) / static_cast<double>(later) : 0.0;
  return latency;
}

bool is_good(const Latency& latency, const GoodputLimits& limits) {
  return latency.ttft <= limits.ttft_ms && latency.tpot <= limits.tpot_ms &&
         latency.e2e <= limits.e2e_ms;
}

struct Samples {
  std::vector<double> ttft, tpot, itl, e2e;
  double under_way_s = 0.0;  // of all requests together
  std::int64_t num_chunks = 0, chunk_tokens = 0;

  void add(const Outcome& outcome, const Latency& latency) {
    ttft.push_back(latency.ttft);
    e2e.push_back(latency.e2e);
    if (num_output_tokens(outcome) > 1) tpot.push_back(latency.tpot);
    for (std::size_t i = 1; i < outcome.chunks.size(); ++i)
      itl.push_back(1e3 * (outcome.chunks[i] - outcome.chunks[i - 1]));
    num_chunks += std::ssize(outcome.chunks);
    chunk_tokens += num_output_tokens(outcome);
  }
};

void count_tokens(const Outcome& outcome,
                  const Prompt& prompt,
                  const DatasetOptions& dataset,
                  ServeReport& report) {
  report.input_tokens += std::max<std::int64_t>(0, outcome.prompt_tokens);
  report.cached_tokens += outcome.cached_tokens;
  report.output_tokens += num_output_tokens(outcome);
  report.has_usage = report.has_usage && outcome.completion_tokens >= 0;
  const bool differs = prompt.num_tokens >= 0 && outcome.prompt_tokens >= 0 &&
                       prompt.num_tokens != outcome.prompt_tokens;
  report.num_prompts_counted_otherwise += differs ? 1 : 0;
  if (!dataset.count_tokens) return;
  const auto counted = dataset.count_tokens(outcome.text);
  if (!counted.ok()) return;  // half a character at the end of an answer
  report.local_output_tokens =
      std::max<std::int64_t>(0, report.local_output_tokens) + counted.value();
}

void judge_client(const LoadResult& load, ServeReport& report) {
  const Summary lags = summarize(load.loop_lags_ms);
  report.lag_p99_ms = lags.p99;
  for (const double lag : load.loop_lags_ms)
    report.lag_max_ms = std::max(report.lag_max_ms, lag);
  report.cpu_share = load.cpu_share;
  const double measured = report.itl.median > 0.0 ? report.itl.median : report.ttft.median;
  const bool is_late = lags.p99 > std::max(kUnimportantLagMs, kLagShare * measured);
  report.client_bound = is_late || load.cpu_share > kBusyShare;
}

}  // namespace

double ServeReport::per_second(std::int64_t count) const {
  return duration_s > 0.0 ? static_cast<double>(count) / duration_s : 0.0;
}

ServeReport make_report(const LoadResult& load,
                        std::span<const Prompt> prompts,
                        const GoodputLimits& limits,
                        const DatasetOptions& dataset) {
  ServeReport report;
  Samples samples;
  for (std::size_t i = 0; i < load.outcomes.size(); ++i) {
    const Outcome& outcome = load.outcomes[i];
    report.duration_s = std::max(report.duration_s, outcome.done);
    samples.under_way_s += outcome.done - outcome.sent;
    if (!outcome.error.empty()) {
      if (report.num_failed++ == 0) report.first_error = outcome.error;
      continue;
    }
    if (outcome.finish_reason == "abort") {
      ++report.num_aborted;
      continue;
    }
    const Latency latency = latency_of(outcome);
    ++report.num_successful;
    report.num_good += is_good(latency, limits) ? 1 : 0;
    samples.add(outcome, latency);
    count_tokens(outcome, prompts[i], dataset, report);
  }
  report.max_under_way = load.max_under_way;
  report.mean_under_way = report.duration_s > 0.0 ? samples.under_way_s / report.duration_s : 0.0;
  report.ttft = summarize(std::move(samples.ttft));
  report.tpot = summarize(std::move(samples.tpot));
  report.itl = summarize(std::move(samples.itl));
  report.e2e = summarize(std::move(samples.e2e));
  if (samples.num_chunks > 0) {
    report.tokens_per_chunk =
        static_cast<double>(samples.chunk_tokens) / static_cast<double>(samples.num_chunks);
  }
  judge_client(load, report);
  return report;
}

}  // namespace halfbyte::tool
