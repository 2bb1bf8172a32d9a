// SPDX-License-Identifier: Apache-2.0
//
// Rows 4 to 7 and 9 of nvfp4-moe 11.3 and the aliases of 11.2. Rows 1 to 3 and 8: registry_test and
// plan_test; row 10: token_budget_test.
#include "moe/compatibility.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace halfbyte {
namespace {

using testing::Contains;
using testing::HasSubstr;

struct Resolved {
  Result<MoeOptions> options;
  std::vector<std::string> notices;
};

Resolved resolve(const MoeOptions& options, int compute_capability = 0) {
  std::vector<std::string> lines;
  NoticeSink notices([&](std::string_view line) { lines.emplace_back(line); });
  MoeSpec spec;
  spec.top_k = 2;
  auto result = resolve_options(spec, options, notices, compute_capability);
  return {std::move(result), std::move(lines)};
}

MoeOptions sizes(int tp, int ep, int dp, const char* a2a = "none") {
  MoeOptions options;
  options.tp_size = tp;
  options.ep_size = ep;
  options.dp_size = dp;
  options.a2a_backend = a2a;
  return options;
}

void expect_refused(const MoeOptions& options, StatusCode code, const char* text) {
  const Resolved resolved = resolve(options);
  ASSERT_FALSE(resolved.options.ok()) << text;
  EXPECT_EQ(resolved.options.status().code(), code);
  EXPECT_THAT(std::string(resolved.options.status().message()), HasSubstr(text));
}

TEST(Compatibility, NothingGivenIsOneRank) {
  const Resolved resolved = resolve({});
  ASSERT_TRUE(resolved.options.ok());
  EXPECT_EQ(resolved.options->tp_size, 1);
  EXPECT_EQ(resolved.options->ep_size, 1);
  EXPECT_EQ(resolved.options->dp_size, 1);
  EXPECT_TRUE(resolved.notices.empty());
}

TEST(Compatibility, Row4TpMustBeAMultipleOfEp) {
  expect_refused(sizes(4, 3, 0), StatusCode::kInvalidArgument, "--ep-size 3");
  expect_refused(sizes(2, 4, 0), StatusCode::kInvalidArgument, "not a multiple");
  for (const int ep : {1, 2, 3, 4, 6, 12})
    EXPECT_TRUE(resolve(sizes(12, ep, 0)).options.ok()) << ep;
}

TEST(Compatibility, Row4EpAloneRaisesTpWithANotice) {
  const Resolved resolved = resolve(sizes(0, 4, 0));
  EXPECT_EQ(resolved.options->tp_size, 4);
  EXPECT_THAT(resolved.notices, Contains(HasSubstr("becomes --ep-size, 4")));
}

TEST(Compatibility, Row5AllToAllNeedsDpAttentionOverAllRanks) {
  expect_refused(sizes(4, 4, 2, "all_to_all"), StatusCode::kInvalidArgument, "--dp-size equal");
  const Resolved resolved = resolve(sizes(4, 4, 0, "all_to_all"));
  EXPECT_EQ(resolved.options->dp_size, 4);
  EXPECT_TRUE(resolved.options->enable_dp_attention);
  EXPECT_THAT(resolved.notices, Contains(HasSubstr("makes it --tp-size, 4")));
  EXPECT_THAT(resolved.notices, Contains(HasSubstr("--enable-dp-attention")));
}

TEST(Compatibility, Row6AllToAllNeedsWholeExperts) {
  expect_refused(sizes(4, 2, 4, "all_to_all"), StatusCode::kInvalidArgument, "--ep-size equal");
  const Resolved resolved = resolve(sizes(4, 0, 4, "all_to_all"));
  EXPECT_EQ(resolved.options->ep_size, 4);
  EXPECT_THAT(resolved.notices, Contains(HasSubstr("--ep-size is not given")));
}

TEST(Compatibility, Row7DpDividesTpUnderTheStandardScheme) {
  expect_refused(sizes(4, 1, 3), StatusCode::kInvalidArgument, "--dp-size 3");
  EXPECT_TRUE(resolve(sizes(4, 2, 2)).options->enable_dp_attention);
}

TEST(Compatibility, Row9InputWeightingNeedsOneExpertAToken) {
  MoeSpec spec;
  spec.top_k = 2;
  spec.apply_router_weight_on_input = true;
  NoticeSink notices;
  EXPECT_EQ(resolve_options(spec, {}, notices).status().code(), StatusCode::kUnsupported);
  spec.top_k = 1;
  EXPECT_TRUE(resolve_options(spec, {}, notices).ok());
}

// The order of 11.3: what is checked first is what is reported.
TEST(Compatibility, TheFirstFailingRowIsReported) {
  expect_refused(sizes(4, 3, 2, "all_to_all"), StatusCode::kInvalidArgument, "not a multiple");
  expect_refused(sizes(4, 2, 2, "all_to_all"), StatusCode::kInvalidArgument, "--dp-size equal");
}

TEST(Compatibility, NegativeSizesAreRefused) {
  expect_refused(sizes(-1, 0, 0), StatusCode::kInvalidArgument, "--tp-size -1");
}

TEST(Compatibility, FlashinferCutedslIsTheDevicesCudaBackendInW4a4) {
  MoeOptions options;
  options.runner_backend = "flashinfer_cutedsl";
  const Resolved blackwell = resolve(options, 100);
  EXPECT_EQ(blackwell.options->runner_backend, "cuda_sm100");
  EXPECT_EQ(blackwell.options->activation_mode, ActivationMode::kW4a4);
  EXPECT_EQ(blackwell.notices.size(), 1U);
  options.activation_mode = ActivationMode::kW4a16;
  const Resolved hopper = resolve(options, 90);
  EXPECT_EQ(hopper.options->runner_backend, "cuda_sm90");
  EXPECT_EQ(hopper.options->activation_mode, ActivationMode::kW4a16);
}

TEST(Compatibility, FlashinferIsAllToAllAndDeepepIsRefused) {
  MoeOptions options;
  options.a2a_backend = "flashinfer";
  const Resolved resolved = resolve(options);
  EXPECT_EQ(resolved.options->a2a_backend, "all_to_all");
  EXPECT_EQ(resolved.notices.size(), 1U);
  options.a2a_backend = "deepep";
  expect_refused(options, StatusCode::kUnsupported, "DeepEP");
  options.a2a_backend = "pplx";
  expect_refused(options, StatusCode::kInvalidArgument, "want none or all_to_all");
}

TEST(Compatibility, ResolvingTwiceChangesNothing) {
  const Resolved once = resolve(sizes(0, 4, 0, "all_to_all"));
  const Resolved twice = resolve(*once.options);
  EXPECT_EQ(twice.options->tp_size, 4);
  EXPECT_EQ(twice.options->dp_size, 4);
  EXPECT_TRUE(twice.notices.empty());
}

// 9.4: the NVFP4 payload is refused for w4a16 and w4a8; 9.5: the wire is bf16 or fp32.
TEST(Compatibility, ExchangeFormatsFollowTheMode) {
  MoeOptions options;
  options.nvfp4_dispatch = true;
  EXPECT_EQ(check_exchange(options, ActivationMode::kW4a16).code(), StatusCode::kUnsupported);
  EXPECT_EQ(check_exchange(options, ActivationMode::kW4a8).code(), StatusCode::kUnsupported);
  EXPECT_TRUE(check_exchange(options, ActivationMode::kW4a4).ok());
  EXPECT_TRUE(check_exchange(options, ActivationMode::kW4a4Dynamic).ok());
  options.nvfp4_dispatch = false;
  EXPECT_TRUE(check_exchange(options, ActivationMode::kW4a16).ok());
  options.combine_dtype = DType::kF16;
  EXPECT_EQ(check_exchange(options, ActivationMode::kW4a4).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace halfbyte
