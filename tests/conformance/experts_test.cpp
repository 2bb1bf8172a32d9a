// SPDX-License-Identifier: Apache-2.0
//
// Every backend in the list, in every mode it takes: a backend is tested by being in the list.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/reference/oracle.h"
#include "support/moe_case.h"

namespace halfbyte {
namespace {

using test::BackendRun;
using test::LayerShape;
using test::random_layer;
using test::random_tokens;
using test::run_routes;
using test::TestLayer;
using test::TestRoutes;
using test::TestTokens;

constexpr ActivationSpec kSwiglu{.function = ActivationFunction::kSwiglu};
constexpr ActivationSpec kClamped{
    .function = ActivationFunction::kSwigluClamped, .alpha = 1.702F, .beta = 1.0F, .limit = 2.0F};
constexpr ActivationSpec kRelu2{.function = ActivationFunction::kRelu2};
constexpr ActivationSpec kGeglu{.function = ActivationFunction::kGegluTanh};

// Sizes that divide no tile, every activation, every format, every dtype of x.
const LayerShape kShapes[] = {
    {.hidden_size = 64, .intermediate_size = 32, .activation = kSwiglu},
    {.hidden_size = 144, .intermediate_size = 96, .activation = kClamped},
    {.hidden_size = 160,
     .intermediate_size = 352,
     .num_experts = 3,
     .activation = kRelu2,
     .x_dtype = DType::kF16},
    {.hidden_size = 128, .intermediate_size = 192, .activation = kGeglu, .x_dtype = DType::kF32},
    {.hidden_size = 2880, .intermediate_size = 16, .num_experts = 2, .activation = kSwiglu},
    {.hidden_size = 48, .intermediate_size = 1856, .num_experts = 2, .activation = kRelu2},
    {.hidden_size = 144,
     .intermediate_size = 160,
     .activation = kSwiglu,
     .format = WeightFormat::kFp8},
    {.hidden_size = 272,
     .intermediate_size = 96,
     .activation = kClamped,
     .format = WeightFormat::kBf16},
};

struct Case {
  std::shared_ptr<ExpertBackend> backend;
  ActivationMode mode;
  LayerShape shape;
  bool exact_float32 = false;
};

std::string format_name(WeightFormat format) {
  if (format == WeightFormat::kNvfp4) return "nvfp4";
  return format == WeightFormat::kFp8 ? "fp8" : "bf16";
}

// Everything that some backend of the host can run.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& backend : list_expert_backends()) {
    for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4,
                                      ActivationMode::kW4a4Dynamic, ActivationMode::kW4a8}) {
      for (const LayerShape& shape : kShapes) {
        if (backend->can_use({}).ok() && backend->can_run(test::spec_of(shape), mode).ok())
          cases.push_back({backend, mode, shape});
        // The same with activations in fp32 (--dtype float32), which the cpu backend treats apart.
        if (backend->name() == "cpu" && mode == ActivationMode::kW4a16)
          cases.push_back({backend, mode, shape, true});
      }
    }
  }
  return cases;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const LayerShape& shape = info.param.shape;
  return std::string(info.param.backend->name()) + "_" +
         std::string(activation_mode_name(info.param.mode)) + "_" + format_name(shape.format) +
         "_H" + std::to_string(shape.hidden_size) + "_I" + std::to_string(shape.intermediate_size) +
         (info.param.exact_float32 ? "_float32" : "");
}

class ExpertsConformance : public ::testing::TestWithParam<Case> {
 protected:
  BackendRun make_run(const TestLayer& layer, std::int64_t capacity, int num_threads = 2) {
    return {GetParam().backend, layer,       GetParam().mode,
            capacity,           num_threads, GetParam().exact_float32};
  }
};

double square(double value) {
  return value * value;
}

// The worst element of a row, for a failure's message.
std::string worst_element(std::span<const float> got, std::span<const double> want) {
  std::size_t worst = 0;
  double error = -1;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double here = std::abs(static_cast<double>(got[i]) - want[i]);
    if (std::isnan(here) || here > error) {
      worst = i;
      error = here;
    }
  }
  return "column " + std::to_string(worst) + ": got " + std::to_string(got[worst]) + ", want " +
         std::to_string(want[worst]);
}

// docs/numerics.md, "Alarms": relative L2 errors of random data with fixed seeds.
struct Alarm {
  ActivationMode oracle_mode;
  double same_operands = 0;  // of a row whose quantised h is the oracle's
  double flipped_codes = 0;  // of a row in which codes of h fell on the other side of a border
  double num_flipped = 0;    // rows of that kind
  double whole_output = 0;
};

// Codes of h differ only at borders: at most max(1, 1e-4 n) of n (docs/numerics.md 1). Each moves
// its value by one step of about `step` of it, and so the sum by step * sqrt(differing / n).
double flip_alarm(double step, std::int64_t num_codes) {
  const auto n = static_cast<double>(num_codes);
  return step * std::sqrt(std::max(1.0, 1e-4 * n) / n);
}

Alarm alarm_of(const ExpertPlan& plan, std::int64_t num_routes) {
  const std::int64_t width = plan.spec.intermediate_size;
  const bool split = plan.x_format == "split15";
  if (split || plan.x_format == "int8") {
    // Where the step depends on a group's largest value, a row of one group is no random sample:
    // only the whole output is held to the alarm.
    const double bound = split ? 5e-4 : 0.02;
    const double row_bound = width < 64 ? 1.0 : bound;
    return {ActivationMode::kW4a16, row_bound, row_bound, 0, bound};
  }
  if (plan.mode == ActivationMode::kW4a16) return {plan.mode, 2e-6, 2e-6, 0, 2e-6};
  // A step of E2M1 is about 25 % of a value, one of E4M3 at most 12.5 %.
  const double step = plan.mode == ActivationMode::kW4a8 ? 0.125 : 0.25;
  return {plan.mode, 2e-6, flip_alarm(step, width),
          std::max(1.0, 1e-4 * static_cast<double>(num_routes * width)),
          flip_alarm(step, num_routes * width)};
}

TEST_P(ExpertsConformance, EveryRowAgreesWithTheOracle) {
  const TestLayer layer = random_layer(GetParam().shape, 11);
  const TestTokens tokens = random_tokens(layer.spec, 17, 12);
  const TestRoutes routes(layer.spec, tokens);
  BackendRun run = make_run(layer, 17);
  ASSERT_TRUE(run.status().ok()) << run.status().to_string();
  const std::vector<float> rows = run_routes(run, tokens, routes);
  const auto hidden = static_cast<std::size_t>(layer.spec.hidden_size);
  ASSERT_EQ(rows.size(), routes.route_row.size() * hidden);
  const Alarm alarm = alarm_of(run.plan(), std::ssize(routes.route_row));

  std::vector<double> want(hidden);
  double error = 0;
  double norm = 0;
  int num_flipped = 0;
  for (std::size_t route = 0; route < routes.route_row.size(); ++route) {
    const auto e = static_cast<std::size_t>(routes.route_expert[route]);
    const auto row = static_cast<std::size_t>(routes.route_row[route]);
    reference::oracle_expert_row(layer.experts[e].expert(), layer.spec.activation,
                                 alarm.oracle_mode, layer.scalars(e),
                                 tokens.x_f32.data() + row * hidden, false, nullptr, want.data());
    const std::span<const float> got{rows.data() + route * hidden, hidden};
    const double row_error = reference::rel_l2(got, want);
    num_flipped += row_error > alarm.same_operands ? 1 : 0;
    EXPECT_LE(row_error, std::max(alarm.same_operands, alarm.flipped_codes))
        << "expert " << e << " token " << row << ", " << worst_element(got, want);
    for (std::size_t i = 0; i < hidden; ++i) {
      error += square(static_cast<double>(got[i]) - want[i]);
      norm += square(want[i]);
    }
  }
  EXPECT_LE(num_flipped, alarm.num_flipped) << "rows above " << alarm.same_operands;
  EXPECT_LE(std::sqrt(error / norm), alarm.whole_output) << "over the whole output";
}

// docs/numerics.md, "Batch invariance": a row's bits do not depend on the rows beside it, on their
// number, or on the number of threads.
TEST_P(ExpertsConformance, ARowAloneHasTheBitsItHasInABatch) {
  const TestLayer layer = random_layer(GetParam().shape, 21);
  const TestTokens tokens = random_tokens(layer.spec, 9, 22);
  const TestRoutes routes(layer.spec, tokens);
  BackendRun batch_run = make_run(layer, 9);
  BackendRun alone_run = make_run(layer, 1, 1);
  const std::vector<float> batch = run_routes(batch_run, tokens, routes);
  const auto hidden = static_cast<std::size_t>(layer.spec.hidden_size);
  ASSERT_FALSE(batch.empty());
  for (std::size_t route = 0; route < routes.route_row.size(); ++route) {
    TestTokens one;
    const auto row = static_cast<std::size_t>(routes.route_row[route]);
    test::set_rows(one, layer.spec, {tokens.x_f32.data() + row * hidden, hidden});
    one.topk_idx.assign(static_cast<std::size_t>(layer.spec.top_k), -1);
    one.topk_idx.back() = routes.route_expert[route];
    const std::vector<float> alone = run_routes(alone_run, one, TestRoutes(layer.spec, one));
    ASSERT_EQ(alone.size(), hidden);
    EXPECT_EQ(0, std::memcmp(alone.data(), batch.data() + route * hidden, hidden * sizeof(float)))
        << "route " << route;
  }
}

// Scratch and output may hold anything; what is written does not depend on it, and repeats are
// equal.
TEST_P(ExpertsConformance, ResultsDoNotDependOnWhatBuffersHeld) {
  const TestLayer layer = random_layer(GetParam().shape, 31);
  const TestTokens tokens = random_tokens(layer.spec, 8, 32);
  const TestRoutes routes(layer.spec, tokens);
  BackendRun run = make_run(layer, 8);
  const std::vector<float> first = run_routes(run, tokens, routes);
  ASSERT_FALSE(first.empty());
  for (const unsigned poison : {0x00U, 0x7FU, 0xFFU}) {
    run.fill_workspace(static_cast<std::uint8_t>(poison));
    const std::vector<float> again = run_routes(run, tokens, routes);
    ASSERT_EQ(again.size(), first.size());
    EXPECT_EQ(0, std::memcmp(again.data(), first.data(), first.size() * sizeof(float)))
        << "filled with " << poison;
  }
}

TEST_P(ExpertsConformance, NoTokensAndNoRoutesAreNoWork) {
  const TestLayer layer = random_layer(GetParam().shape, 41);
  BackendRun run = make_run(layer, 4);
  TestTokens none;
  std::vector<float> rows;
  const TestRoutes no_routes(layer.spec, none);
  EXPECT_TRUE(run.run(no_routes.dispatched(layer.spec, none), rows).ok());
  TestTokens unrouted = random_tokens(layer.spec, 3, 42);
  std::fill(unrouted.topk_idx.begin(), unrouted.topk_idx.end(), -1);
  const TestRoutes still_none(layer.spec, unrouted);
  EXPECT_TRUE(run.run(still_none.dispatched(layer.spec, unrouted), rows).ok());
}

TEST_P(ExpertsConformance, MoreTokensThanPlannedAreRefusedAndTheOutputIsUntouched) {
  const TestLayer layer = random_layer(GetParam().shape, 51);
  BackendRun run = make_run(layer, 4);
  const TestTokens tokens = random_tokens(layer.spec, 5, 52);
  const TestRoutes routes(layer.spec, tokens);
  std::vector<float> rows(
      routes.route_row.size() * static_cast<std::size_t>(layer.spec.hidden_size), 77.0F);
  const Status status = run.run(routes.dispatched(layer.spec, tokens), rows);
  EXPECT_EQ(status.code(), StatusCode::kCapacityExceeded);
  EXPECT_EQ(status.message(), "5 rows of x, the plan holds 4: plan with a larger capacity");
  for (const float value : rows)
    ASSERT_EQ(value, 77.0F);
}

// Experts are independent: another expert's weights and scales do not reach a row.
TEST_P(ExpertsConformance, ChangingOneExpertChangesNoRowOfAnother) {
  TestLayer layer = random_layer(GetParam().shape, 61);
  const TestTokens tokens = random_tokens(layer.spec, 8, 62);
  const TestRoutes routes(layer.spec, tokens);
  BackendRun run = make_run(layer, 8);
  const std::vector<float> before = run_routes(run, tokens, routes);
  const TestLayer other = random_layer(GetParam().shape, 63);
  layer.experts[0] = other.experts[0];
  ASSERT_TRUE(run.load(layer).ok());
  const std::vector<float> after = run_routes(run, tokens, routes);
  ASSERT_EQ(before.size(), after.size());
  const auto hidden = static_cast<std::size_t>(layer.spec.hidden_size);
  for (std::size_t route = 0; route < routes.route_row.size(); ++route) {
    const bool equal = std::memcmp(before.data() + route * hidden, after.data() + route * hidden,
                                   hidden * sizeof(float)) == 0;
    EXPECT_EQ(equal, routes.route_expert[route] != 0) << "route " << route;
  }
}

// A backend's second load of the same experts gives the bits of the first, and of a fresh one.
TEST_P(ExpertsConformance, LoadingAgainReplacesInPlace) {
  const TestLayer a = random_layer(GetParam().shape, 71);
  const TestLayer b = random_layer(GetParam().shape, 72);
  const TestTokens tokens = random_tokens(a.spec, 6, 73);
  const TestRoutes routes(a.spec, tokens);
  BackendRun run = make_run(a, 6);
  const std::vector<float> first = run_routes(run, tokens, routes);
  ASSERT_TRUE(run.load(b).ok());
  BackendRun fresh = make_run(b, 6);
  EXPECT_EQ(run_routes(run, tokens, routes), run_routes(fresh, tokens, routes));
  ASSERT_TRUE(run.load(a).ok());
  EXPECT_EQ(run_routes(run, tokens, routes), first);
}

INSTANTIATE_TEST_SUITE_P(List, ExpertsConformance, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace halfbyte
