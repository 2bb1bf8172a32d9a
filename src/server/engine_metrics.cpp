// SPDX-License-Identifier: Apache-2.0
#include "server/engine_metrics.h"

#include <cstdint>
#include <utility>

namespace halfbyte::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Prometheus counts what is at most each bound; the text has a last line for all.
ClientMetric::Histogram cumulative(const halfbyte::Histogram& histogram) {
  ClientMetric::Histogram result;
  result.sample_sum = histogram.sum;
  for (std::size_t i = 0; i < histogram.bounds.size(); ++i) {
    result.sample_count += static_cast<std::uint64_t>(histogram.counts[i]);
    result.bucket.push_back({result.sample_count, histogram.bounds[i]});
  }
  result.sample_count += static_cast<std::uint64_t>(histogram.counts.back());
  return result;
}

ClientMetric metric(const halfbyte::Histogram& histogram,
                    std::vector<ClientMetric::Label> labels,
                    const std::string& model_name) {
  ClientMetric result;
  result.label = std::move(labels);
  result.label.push_back({"model_name", model_name});
  result.histogram = cumulative(histogram);
  return result;
}

MetricFamily family(const char* name, const char* help, std::vector<ClientMetric> metrics) {
  return {.name = name, .help = help, .type = MetricType::Histogram, .metric = std::move(metrics)};
}

}  // namespace

std::vector<MetricFamily> engine_metrics(const EngineHistograms& histograms,
                                         const std::string& model_name) {
  if (histograms.queue_seconds.counts.empty()) return {};
  const auto phase = [&](const char* name, const halfbyte::Histogram& seconds) {
    return metric(seconds, {{"phase", name}}, model_name);
  };
  return {family("halfbyte:queue_time_seconds", "From a request to its sequence's first step",
                 {metric(histograms.queue_seconds, {}, model_name)}),
          family("halfbyte:iteration_tokens_total", "Tokens that a step computes",
                 {metric(histograms.step_tokens, {}, model_name)}),
          family("halfbyte:step_seconds", "Steps of the engine, by what they compute",
                 {phase("prefill", histograms.prefill_step_seconds),
                  phase("decode", histograms.decode_step_seconds),
                  phase("mixed", histograms.mixed_step_seconds)}),
          family("halfbyte:step_host_seconds",
                 "Of a step, what is not its forward pass: scheduling and sampling",
                 {metric(histograms.step_host_seconds, {}, model_name)})};
}

}  // namespace halfbyte::server
