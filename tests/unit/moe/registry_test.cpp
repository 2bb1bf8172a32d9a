// SPDX-License-Identifier: Apache-2.0
//
// Rules: nvfp4-moe 11.1, on lists of fake entries and on the real one.
#include "moe/registry.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

namespace halfbyte {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RegistryEntry fake(std::string transport,
                   std::string backend,
                   TakenByAuto taken_by_auto,
                   std::string refusal = "") {
  RegistryEntry entry;
  entry.transport = std::move(transport);
  entry.backend = std::move(backend);
  entry.taken_by_auto = taken_by_auto;
  entry.can_run = [refusal](const MoeSpec&, ActivationMode, const DeviceLimits&) {
    return refusal.empty() ? Status() : Status(StatusCode::kUnsupported, refusal);
  };
  entry.resolve_auto = [](const MoeSpec&) { return ActivationMode::kW4a16; };
  return entry;
}

std::vector<RegistryEntry> fake_registry() {
  return {fake("local", "cuda_sm100", TakenByAuto::kWorldOne, "no device"),
          fake("local", "cpu", TakenByAuto::kWorldOne),
          fake("local", "reference", TakenByAuto::kNo),
          fake("nccl", "cuda_sm100", TakenByAuto::kWorldMany, "no device"),
          fake("mpi", "cpu", TakenByAuto::kWorldMany),
          fake("in_process", "cpu", TakenByAuto::kNo),
          fake("in_process", "reference", TakenByAuto::kNo)};
}

Result<RegistryChoice> choose(const std::vector<RegistryEntry>& registry,
                              int world,
                              const char* backend = "auto",
                              const char* transport = "auto") {
  MoeOptions options;
  options.runner_backend = backend;
  options.transport = transport;
  return choose_entry(registry, {}, options, {}, world);
}

std::string pair_of(const Result<RegistryChoice>& choice) {
  return choice.ok() ? choice->transport + " + " + choice->backend : choice.status().to_string();
}

TEST(Registry, DuplicatesAreRefused) {
  auto twice =
      make_registry({fake("local", "cpu", TakenByAuto::kNo), fake("mpi", "cpu", TakenByAuto::kNo),
                     fake("local", "cpu", TakenByAuto::kWorldOne)});
  ASSERT_FALSE(twice.ok());
  EXPECT_THAT(std::string(twice.status().message()), HasSubstr("local + cpu twice"));
  EXPECT_TRUE(make_registry(fake_registry()).ok());
}

TEST(Registry, TheListIsTheSpecifiedOneInItsOrder) {
  std::vector<std::string> pairs;
  for (const RegistryEntry& entry : default_registry()) {
    pairs.push_back(entry.transport + " " + entry.backend);
  }
  EXPECT_THAT(pairs, ElementsAre("local cuda_sm100", "local cuda_sm90", "local cpu",
                                 "local reference", "nccl cuda_sm100", "nccl cuda_sm90", "mpi cpu",
                                 "mpi reference", "in_process cpu", "in_process reference",
                                 "in_process cuda_sm90", "in_process cuda_sm100"));
  EXPECT_TRUE(make_registry(default_registry()).ok());
}

TEST(Registry, AutoTakesTheFirstThatRunsAndSaysWhyOthersWereSkipped) {
  const auto choice = choose(fake_registry(), 1);
  EXPECT_EQ(pair_of(choice), "local + cpu");
  EXPECT_EQ(choice->mode, ActivationMode::kW4a16);
  EXPECT_THAT(choice->log,
              ElementsAre("local + cuda_sm100 skipped: no device", "local + cpu chosen, w4a16"));
}

TEST(Registry, AutoNeverTakesARowMarkedNo) {
  const auto choice = choose({fake("local", "reference", TakenByAuto::kNo)}, 1);
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kUnsupported);
}

TEST(Registry, SeveralRanksTakeTheRowsForThem) {
  EXPECT_EQ(pair_of(choose(fake_registry(), 2)), "mpi + cpu");
}

// Rows 9 and 10, after all others.
TEST(Registry, SeveralRanksEndInThisProcess) {
  auto registry = fake_registry();
  registry[4] = fake("mpi", "cpu", TakenByAuto::kWorldMany, "not built");
  EXPECT_EQ(pair_of(choose(registry, 2)), "in_process + cpu");
  registry[5] = fake("in_process", "cpu", TakenByAuto::kNo, "avx2 is missing");
  EXPECT_EQ(pair_of(choose(registry, 2)), "in_process + reference");
}

TEST(Registry, ANamedBackendTakesItsFirstRowThatRuns) {
  EXPECT_EQ(pair_of(choose(fake_registry(), 1, "reference")), "local + reference");
  EXPECT_EQ(pair_of(choose(fake_registry(), 4, "reference")), "in_process + reference");
  EXPECT_EQ(pair_of(choose(fake_registry(), 4, "cpu")), "mpi + cpu");
}

TEST(Registry, AnExplicitChoiceIsRefusedWithItsReason) {
  const auto choice = choose(fake_registry(), 1, "cuda_sm100");
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(std::string(choice.status().message()), HasSubstr("no device"));

  const auto local = choose(fake_registry(), 2, "cpu", "local");
  ASSERT_FALSE(local.ok());
  EXPECT_THAT(std::string(local.status().message()), HasSubstr("local is one rank, there are 2"));
}

// Both rows of cuda_sm100 have one reason.
TEST(Registry, AReasonIsGivenOnceForAllPairsThatShareIt) {
  const auto choice = choose(fake_registry(), 1, "cuda_sm100");
  EXPECT_THAT(std::string(choice.status().message()),
              testing::EndsWith("local + cuda_sm100, nccl + cuda_sm100 skipped: no device"));
}

TEST(Registry, AnUnknownNameListsTheKnownOnes) {
  const auto choice = choose(fake_registry(), 1, "gpu");
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(choice.status().message()),
              HasSubstr("want auto, cuda_sm100, cpu, reference"));
  EXPECT_EQ(choose(fake_registry(), 1, "auto", "tcp").status().code(),
            StatusCode::kInvalidArgument);
}

// A pair that no row has, of names that are known.
TEST(Registry, APairWithoutARowIsUnsupported) {
  EXPECT_EQ(choose(fake_registry(), 2, "reference", "nccl").status().code(),
            StatusCode::kUnsupported);
}

// 11.3 rows 1 to 3: an entry judges the layer in the mode it would run.
TEST(Registry, AnEntryIsAskedInTheModeItWouldRun) {
  std::vector<ActivationMode> asked;
  RegistryEntry entry = fake("local", "cpu", TakenByAuto::kWorldOne);
  entry.can_run = [&](const MoeSpec&, ActivationMode mode, const DeviceLimits&) {
    asked.push_back(mode);
    return Status();
  };
  EXPECT_EQ(choose({entry}, 1)->mode, ActivationMode::kW4a16);
  MoeOptions options;
  options.activation_mode = ActivationMode::kW4a4;
  EXPECT_EQ(choose_entry({entry}, {}, options, {}, 1)->mode, ActivationMode::kW4a4);
  EXPECT_THAT(asked, ElementsAre(ActivationMode::kW4a16, ActivationMode::kW4a4));
}

MoeSpec small_spec() {
  MoeSpec spec;
  spec.hidden_size = 64;
  spec.intermediate_size = 32;
  spec.num_experts = 8;
  spec.top_k = 2;
  return spec;
}

// Section 3: reference requires an explicit mode; a part that is not built says so.
TEST(Registry, EveryEntryOfThisBuildAnswers) {
  const auto reports = list_backends(small_spec(), {});
  ASSERT_EQ(reports.size(), default_registry().size());
  for (const BackendReport& report : reports) {
    EXPECT_TRUE(report.can_run.ok() || !report.can_run.message().empty());
    if (report.backend == "reference") {
      EXPECT_THAT(std::string(report.can_run.message()), HasSubstr("mode")) << report.transport;
    }
  }
  MoeOptions options;
  options.activation_mode = ActivationMode::kW4a4;
  for (const BackendReport& report : list_backends(small_spec(), options)) {
    const bool connected = report.transport == "local" || report.transport == "in_process";
    if (report.backend == "reference" && connected) {
      EXPECT_TRUE(report.can_run.ok()) << report.can_run.to_string();
      EXPECT_FALSE(report.note.empty());
    }
  }
}

}  // namespace
}  // namespace halfbyte
