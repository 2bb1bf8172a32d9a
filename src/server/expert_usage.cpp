// SPDX-License-Identifier: Apache-2.0
#include "server/expert_usage.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace halfbyte::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

double ratio(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

MetricFamily family(const char* name, const char* help, MetricType type) {
  return {.name = name, .help = help, .type = type, .metric = {}};
}

ClientMetric metric(const std::string& model_name,
                    std::vector<ClientMetric::Label> labels,
                    double value) {
  ClientMetric result;
  result.label = std::move(labels);
  result.label.push_back({"model_name", model_name});
  result.gauge.value = value;  // the family's type says which of the two is written
  result.counter.value = value;
  return result;
}

ClientMetric::Label layer_label(const ExpertLoad& layer) {
  return {"layer", std::to_string(layer.layer_idx)};
}

// One number over all layers.
MetricFamily total(std::span<const ExpertLoad> load,
                   const std::string& model_name,
                   const char* name,
                   const char* help,
                   std::int64_t MoeCounters::* count) {
  MetricFamily result = family(name, help, MetricType::Counter);
  std::int64_t sum = 0;
  for (const ExpertLoad& layer : load)
    sum += layer.counters.*count;
  result.metric.push_back(metric(model_name, {}, static_cast<double>(sum)));
  return result;
}

// Over all layers, for each rank.
MetricFamily dispatch_bytes(std::span<const ExpertLoad> load, const std::string& model_name) {
  MetricFamily result =
      family("halfbyte:dispatch_bytes_total", "Rows that ranks sent to the rank of their experts",
             MetricType::Counter);
  for (std::size_t rank = 0; rank < load.front().rank_dispatch_bytes.size(); ++rank) {
    std::int64_t sum = 0;
    for (const ExpertLoad& layer : load)
      sum += layer.rank_dispatch_bytes[rank];
    result.metric.push_back(
        metric(model_name, {{"rank", std::to_string(rank)}}, static_cast<double>(sum)));
  }
  return result;
}

MetricFamily tokens_of_experts(std::span<const ExpertLoad> load, const std::string& model_name) {
  MetricFamily result =
      family("halfbyte:expert_tokens_total", "Tokens that an expert computed", MetricType::Counter);
  for (const ExpertLoad& layer : load) {
    const auto& tokens = layer.counters.tokens_per_expert;
    for (std::size_t e = 0; e < tokens.size(); ++e) {
      result.metric.push_back(metric(model_name,
                                     {layer_label(layer), {"expert", std::to_string(e)}},
                                     static_cast<double>(tokens[e])));
    }
  }
  return result;
}

}  // namespace

double imbalance_of(const MoeCounters& counters) {
  const std::vector<std::int64_t>& tokens = counters.tokens_per_expert;
  if (tokens.empty()) return 0.0;
  const std::int64_t most = *std::ranges::max_element(tokens);
  return ratio(most * std::ssize(tokens), std::reduce(tokens.begin(), tokens.end()));
}

Json expert_load_json(std::span<const ExpertLoad> load) {
  Json layers = Json::array();
  for (const ExpertLoad& layer : load) {
    const MoeCounters& counters = layer.counters;
    layers.push_back({{"layer", layer.layer_idx},
                      {"steps", counters.num_steps},
                      {"tokens", counters.tokens_per_expert},
                      {"imbalance", imbalance_of(counters)},
                      {"experts_touched", counters.experts_touched},
                      {"expert_bytes_read", counters.expert_bytes_read},
                      {"dispatch_bytes", counters.dispatch_bytes},
                      {"dropped_routes", counters.dropped_routes},
                      {"unroutable_rows", counters.unroutable_rows}});
  }
  return {{"layers", std::move(layers)}};
}

std::vector<MetricFamily> expert_metrics(std::span<const ExpertLoad> load,
                                         const std::string& model_name,
                                         bool with_tokens) {
  if (load.empty()) return {};
  MetricFamily imbalance =
      family("halfbyte:expert_imbalance", "Tokens of a layer's busiest expert over the mean",
             MetricType::Gauge);
  MetricFamily touched =
      family("halfbyte:experts_touched",
             "Experts of a layer with a token, on average over its steps", MetricType::Gauge);
  for (const ExpertLoad& layer : load) {
    const MoeCounters& counters = layer.counters;
    imbalance.metric.push_back(metric(model_name, {layer_label(layer)}, imbalance_of(counters)));
    touched.metric.push_back(metric(model_name, {layer_label(layer)},
                                    ratio(counters.experts_touched, counters.num_steps)));
  }
  std::vector<MetricFamily> families = {std::move(imbalance), std::move(touched)};
  const auto add = [&](const char* name, const char* help, std::int64_t MoeCounters::* count) {
    families.push_back(total(load, model_name, name, help, count));
  };
  add("halfbyte:expert_weight_bytes_read_total", "Prepared weights of experts that had a token",
      &MoeCounters::expert_bytes_read);
  add("halfbyte:unroutable_rows_total", "Tokens whose router gave no finite logit",
      &MoeCounters::unroutable_rows);
  families.push_back(dispatch_bytes(load, model_name));
  if (with_tokens) families.push_back(tokens_of_experts(load, model_name));
  return families;
}

}  // namespace halfbyte::server
