// SPDX-License-Identifier: Apache-2.0
#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <mutex>

#include "server/engine_metrics.h"
#include "server/expert_usage.h"

namespace halfbyte::server {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using Histogram = prometheus::Histogram;  // not the engine's
using Buckets = Histogram::BucketBoundaries;

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
constexpr std::array kStates = {"loading", "ready", "draining", "failed"};

const Buckets& seconds_buckets() {
  static const Buckets buckets = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,  0.2,
                                  0.5,   1.0,   2.0,   5.0,  10.0, 30.0, 60.0, 300.0};
  return buckets;
}

const Buckets& token_buckets() {
  static const Buckets buckets = {1,    4,    16,   64,   128,   256,   512,
                                  1024, 2048, 4096, 8192, 16384, 32768, 131072};
  return buckets;
}

}  // namespace

struct Metrics::Impl {
  Impl(const std::string& model_name, bool expert_tokens)
      : labels{{"model_name", model_name}}, with_expert_tokens(expert_tokens) {}

  Family<Gauge>& gauges(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(labels).Register(registry);
  }
  Gauge& gauge(const char* name, const char* help) { return gauges(name, help).Add({}); }
  Family<Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels).Register(registry);
  }
  Counter& counter(const char* name, const char* help) { return counters(name, help).Add({}); }
  Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels).Register(registry).Add(
        {}, buckets);
  }

  void show_cache(const EngineStats& stats);
  void count_since_last(const EngineStats& stats);

  std::mutex mutex;  // of the next three
  EngineStats last;
  std::int64_t last_decode_tokens = 0;
  std::chrono::steady_clock::time_point last_throughput = std::chrono::steady_clock::now();

  const prometheus::Labels labels;
  const bool with_expert_tokens;
  prometheus::Registry registry;
  Gauge& running = gauge("halfbyte:num_running_reqs", "Sequences that are decoded or prefilled");
  Gauge& queued = gauge("halfbyte:num_queue_reqs", "Sequences that wait");
  Gauge& preempted = gauge("halfbyte:num_retracted_reqs",
                           "Of the sequences that wait, those that ran and were sent back");
  Gauge& paused = gauge("halfbyte:num_paused_reqs", "Sequences whose client reads too slowly");
  Gauge& usage = gauge("halfbyte:token_usage", "Share of the KV cache in use, 0 to 1");
  Gauge& capacity = gauge("halfbyte:max_total_num_tokens", "Tokens that the KV cache holds");
  Gauge& used_tokens =
      gauge("halfbyte:num_used_tokens", "Tokens of the KV cache in use, in whole blocks");
  Gauge& free_blocks = gauge("halfbyte:num_free_blocks", "Blocks of the KV cache that are free");
  Gauge& steps = gauge("halfbyte:num_steps", "Steps of the engine since start");
  Gauge& prefill = gauge("halfbyte:num_prefill_tokens", "Tokens prefilled since start");
  Gauge& decode = gauge("halfbyte:num_decode_tokens", "Tokens decoded since start");
  Gauge& hit_rate = gauge("halfbyte:cache_hit_rate",
                          "Share of prompt tokens found in the prefix cache since start, 0 to 1");
  Gauge& throughput = gauge("halfbyte:gen_throughput", "Generated tokens a second");
  Counter& cached =
      counter("halfbyte:cached_tokens_total", "Prompt tokens found in the prefix cache");
  Counter& evicted =
      counter("halfbyte:evicted_tokens_total", "Tokens dropped from the prefix cache");
  Counter& retracted = counter("halfbyte:num_retracted_requests_total",
                               "Running sequences sent back to wait for memory");
  Gauge& startup = gauge("halfbyte:startup_time_seconds", "From start to ready");
  Gauge& weight_load =
      gauge("halfbyte:weight_load_duration_seconds", "Reading and preparing the weights");
  Gauge& weight_bytes = gauge("halfbyte:weight_load_bytes", "Weights that were read");
  Gauge& weight_memory =
      gauge("halfbyte:weight_memory_usage_gb", "Memory of the weights, of all ranks, in GiB");
  Gauge& cache_memory =
      gauge("halfbyte:kv_cache_memory_usage_gb", "Memory of the KV cache, of all ranks, in GiB");
  Family<Gauge>& states = gauges("halfbyte:engine_state", "1 for the state that it is in");
  Counter& prompt_tokens =
      counter("halfbyte:prompt_tokens_total", "Prompt tokens of finished sequences");
  Counter& generated =
      counter("halfbyte:generation_tokens_total", "Generated tokens of finished sequences");
  Counter& aborted = counter("halfbyte:num_aborted_requests_total",
                             "Sequences whose client left, or that a shutdown ended");
  Family<Counter>& finished = counters("halfbyte:num_requests_total", "Sequences that ended");
  Family<Counter>& rejected =
      counters("halfbyte:num_rejected_requests_total", "Requests that got an error, by its status");
  Histogram& first_token = histogram("halfbyte:time_to_first_token_seconds",
                                     "From a request to its first token",
                                     seconds_buckets());
  Histogram& inter_token = histogram(
      "halfbyte:inter_token_latency_seconds", "Between tokens of a sequence", seconds_buckets());
  Histogram& end_to_end = histogram(
      "halfbyte:e2e_request_latency_seconds", "From a request to its end", seconds_buckets());
  Histogram& prompt_lengths =
      histogram("halfbyte:prompt_tokens_histogram", "Tokens of a prompt", token_buckets());
  Histogram& answer_lengths =
      histogram("halfbyte:generation_tokens_histogram", "Tokens of an answer", token_buckets());
};

Metrics::Metrics(const std::string& model_name, bool expert_tokens)
    : impl_(std::make_unique<Impl>(model_name, expert_tokens)) {}
Metrics::~Metrics() = default;

void Metrics::count_finished(const std::string& reason,
                             std::int64_t prompt_tokens,
                             std::int64_t generated_tokens,
                             double seconds) {
  impl_->finished.Add({{"finished_reason", reason}}).Increment();
  if (reason == "abort") impl_->aborted.Increment();
  impl_->prompt_tokens.Increment(static_cast<double>(prompt_tokens));
  impl_->generated.Increment(static_cast<double>(generated_tokens));
  impl_->end_to_end.Observe(seconds);
  impl_->prompt_lengths.Observe(static_cast<double>(prompt_tokens));
  impl_->answer_lengths.Observe(static_cast<double>(generated_tokens));
}

void Metrics::count_rejected(int status) {
  impl_->rejected.Add({{"status", std::to_string(status)}}).Increment();
}

void Metrics::observe_first_token(double seconds) {
  impl_->first_token.Observe(seconds);
}

void Metrics::observe_inter_token(double seconds) {
  impl_->inter_token.Observe(seconds);
}

void Metrics::set_startup_seconds(double seconds) {
  impl_->startup.Set(seconds);
}

void Metrics::set_model(const EngineInfo& info) {
  impl_->weight_load.Set(info.weight_load_seconds);
  impl_->weight_bytes.Set(static_cast<double>(info.weight_bytes));
  impl_->weight_memory.Set(static_cast<double>(info.weight_bytes) / kGibibyte);
  impl_->cache_memory.Set(static_cast<double>(info.kv_cache_bytes) / kGibibyte);
}

void Metrics::Impl::show_cache(const EngineStats& stats) {
  const auto used = static_cast<double>(stats.total_blocks - stats.free_blocks);
  const auto block_tokens = static_cast<double>(stats.block_tokens);
  const auto total = static_cast<double>(stats.total_blocks);
  usage.Set(total > 0 ? used / total : 0.0);
  capacity.Set(total * block_tokens);
  used_tokens.Set(used * block_tokens);
  free_blocks.Set(static_cast<double>(stats.free_blocks));
  const auto found = static_cast<double>(stats.cached_prompt_tokens);
  const double wanted = found + static_cast<double>(stats.prefill_tokens);
  hit_rate.Set(wanted > 0 ? found / wanted : 0.0);
}

// Counters take differences only.
void Metrics::Impl::count_since_last(const EngineStats& stats) {
  const std::lock_guard lock(mutex);
  const auto add = [](Counter& counter, std::int64_t now, std::int64_t before) {
    if (now > before) counter.Increment(static_cast<double>(now - before));
  };
  add(cached, stats.cached_prompt_tokens, last.cached_prompt_tokens);
  add(evicted, stats.evicted_tokens, last.evicted_tokens);
  add(retracted, stats.preemptions, last.preemptions);
  last = stats;
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> seconds = now - last_throughput;
  if (seconds < std::chrono::seconds(1)) return;
  throughput.Set(static_cast<double>(stats.decode_tokens - last_decode_tokens) / seconds.count());
  last_decode_tokens = stats.decode_tokens;
  last_throughput = now;
}

std::string Metrics::render(const EngineStats& stats,
                            const std::string& state,
                            std::span<const ExpertLoad> load,
                            const EngineHistograms& histograms) {
  impl_->running.Set(static_cast<double>(stats.running));
  impl_->queued.Set(static_cast<double>(stats.waiting));
  impl_->preempted.Set(static_cast<double>(stats.preempted));
  impl_->paused.Set(static_cast<double>(stats.paused));
  impl_->steps.Set(static_cast<double>(stats.steps));
  impl_->prefill.Set(static_cast<double>(stats.prefill_tokens));
  impl_->decode.Set(static_cast<double>(stats.decode_tokens));
  impl_->show_cache(stats);
  impl_->count_since_last(stats);
  for (const char* name : kStates) {
    impl_->states.Add({{"state", name}}).Set(state == name ? 1.0 : 0.0);
  }
  const std::string& model_name = impl_->labels.at("model_name");
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  std::ranges::move(engine_metrics(histograms, model_name), std::back_inserter(families));
  std::ranges::move(expert_metrics(load, model_name, impl_->with_expert_tokens),
                    std::back_inserter(families));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace halfbyte::server
