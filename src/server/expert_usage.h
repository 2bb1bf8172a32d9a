// SPDX-License-Identifier: Apache-2.0
//
// How experts are used, as /expert_load and /metrics tell it.
#ifndef HALFBYTE_SERVER_EXPERT_USAGE_H_
#define HALFBYTE_SERVER_EXPERT_USAGE_H_

#include <prometheus/metric_family.h>

#include <span>
#include <string>
#include <vector>

#include "halfbyte/engine.h"
#include "server/json.h"

namespace halfbyte::server {

/// Tokens of the busiest expert over the mean of all; 0 while there was none.
double imbalance_of(const MoeCounters& counters);

/// {"layers": [..]}, each with its counts since start; no layers: a model without experts.
Json expert_load_json(std::span<const ExpertLoad> load);

/// Families with the label model_name, and layer where there is one. The tokens of each expert are
/// as many series as the model has experts, so only `with_tokens`.
std::vector<prometheus::MetricFamily> expert_metrics(std::span<const ExpertLoad> load,
                                                     const std::string& model_name,
                                                     bool with_tokens);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_EXPERT_USAGE_H_
