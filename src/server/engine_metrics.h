// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_ENGINE_METRICS_H_
#define HALFBYTE_SERVER_ENGINE_METRICS_H_

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "halfbyte/engine.h"

namespace halfbyte::server {

/// The engine's histograms as families with the label model_name, and phase where there are three.
/// None before the engine has begun to count.
std::vector<prometheus::MetricFamily> engine_metrics(const EngineHistograms& histograms,
                                                     const std::string& model_name);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_ENGINE_METRICS_H_
