// SPDX-License-Identifier: Apache-2.0
//
// nvfp4-moe 12.6: what is measured once, where it is found again, and what a file that cannot be
// used means.
#include "moe/tuning_memory.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "unit/moe/cuda_plan_cases.h"

namespace halfbyte {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const TuningKey kKey = {{"device", "NVIDIA H200"}};
const std::vector<TacticList> kLists = {{1, {"a", "b"}}, {8, {"a", "c"}}};
const TuningTable kTable = {{1, "b"}, {8, "a"}};

class TuningMemoryTest : public testing::Test {
 protected:
  ~TuningMemoryTest() override { std::filesystem::remove_all(folder_.parent_path()); }

  Result<TuningTable> ask(TuningMemory& memory, const std::string& directory) {
    NoticeSink sink([this](std::string_view line) { notices.emplace_back(line); });
    const auto measure = [this]() -> Result<TuningTable> {
      ++num_measured;
      if (fails) return Status(StatusCode::kOutOfMemory, "no room");
      return kTable;
    };
    return memory.recall_or_measure(kKey, directory, kLists, measure, sink);
  }
  std::string folder() const { return folder_.string(); }
  std::string file() const { return (folder_ / tuning_file_name(kKey)).string(); }
  void write_file(const std::string& text) const {
    std::filesystem::create_directories(folder_);
    std::ofstream(file(), std::ios::binary) << text;
  }

  bool fails = false;
  int num_measured = 0;
  std::vector<std::string> notices;

 private:
  // A folder in a folder that is not there: both are made.
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                  ("halfbyte_tuning_memory_" + std::to_string(getpid())) /
                                  "tactics";
};

TEST_F(TuningMemoryTest, MeasuresOnceInAProcess) {
  TuningMemory memory;
  EXPECT_EQ(ask(memory, "").value(), kTable);
  EXPECT_EQ(ask(memory, "").value(), kTable);
  EXPECT_EQ(num_measured, 1);
  EXPECT_THAT(notices, IsEmpty());
}

TEST_F(TuningMemoryTest, AnotherProcessFindsTheFile) {
  TuningMemory first;
  EXPECT_EQ(ask(first, folder()).value(), kTable);
  TuningMemory second;
  EXPECT_EQ(ask(second, folder()).value(), kTable);
  EXPECT_EQ(num_measured, 1);
  EXPECT_THAT(notices, IsEmpty());
}

TEST_F(TuningMemoryTest, NothingIsKeptOfAMeasurementThatFailed) {
  TuningMemory memory;
  fails = true;
  EXPECT_EQ(ask(memory, folder()).status().code(), StatusCode::kOutOfMemory);
  fails = false;
  EXPECT_EQ(ask(memory, folder()).value(), kTable);
  EXPECT_EQ(num_measured, 2);
}

TEST_F(TuningMemoryTest, ADamagedFileIsNamedAndReplaced) {
  TuningMemory first;
  EXPECT_TRUE(ask(first, folder()).ok());
  write_file("halfbyte tuning 2\ndevice = NVIDIA H200\n\n1 b\n");  // cut off
  TuningMemory second;
  EXPECT_EQ(ask(second, folder()).value(), kTable);
  EXPECT_EQ(num_measured, 2);
  EXPECT_THAT(notices, ElementsAre(testing::AllOf(HasSubstr(file()), HasSubstr("damaged"),
                                                  HasSubstr("measured again"))));
  TuningMemory third;
  EXPECT_TRUE(ask(third, folder()).ok());
  EXPECT_EQ(num_measured, 2);
}

// Buckets or tactics that this build does not have.
TEST_F(TuningMemoryTest, AStaleFileIsNamedAndReplaced) {
  for (const char* table : {"1 b\nend\n", "1 b\n8 gone\nend\n", "1 b\n9 a\nend\n"}) {
    notices.clear();
    num_measured = 0;
    write_file(std::string("halfbyte tuning 2\ndevice = NVIDIA H200\n\n") + table);
    TuningMemory memory;
    EXPECT_EQ(ask(memory, folder()).value(), kTable);
    EXPECT_EQ(num_measured, 1) << table;
    EXPECT_THAT(notices, ElementsAre(HasSubstr("other buckets or tactics"))) << table;
  }
}

TEST_F(TuningMemoryTest, AForeignFileIsNamedAndStays) {
  const std::string foreign = "halfbyte tuning 2\ndevice = another\n\nend\n";
  write_file(foreign);
  TuningMemory memory;
  EXPECT_EQ(ask(memory, folder()).value(), kTable);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("for another key or version"),
                                   HasSubstr("kept for this process alone")));
  std::ifstream stream(file());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), foreign);
}

TEST_F(TuningMemoryTest, AFolderThatCannotBeWrittenIsANotice) {
  TuningMemory memory;
  EXPECT_EQ(ask(memory, "/proc/nowhere").value(), kTable);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("kept for this process alone")));
}

// nvfp4-moe 12.6 lists what a key holds: whatever differs means another measurement.
TEST(TuningKeyOf, DiffersWithEverythingThatTimesDependOn) {
  constexpr DeviceLimits kH200 = {{DeviceKind::kCuda, 0}, 90, 132, 227 * 1024, 0};
  const MoePlan plan = test::make_plan(test::small_spec(), 64, kH200).value();
  const TuningKey key = tuning_key(plan, "NVIDIA H200", "580.1", kLists);
  EXPECT_EQ(key, tuning_key(plan, "NVIDIA H200", "580.1", kLists));
  EXPECT_EQ(key.at("tactics"), "a, b, c");
  const auto differs = [&key](const MoePlan& other) {
    return tuning_key(other, "NVIDIA H200", "580.1", kLists) != key;
  };
  EXPECT_NE(tuning_key(plan, "NVIDIA H100", "580.1", kLists), key);
  EXPECT_NE(tuning_key(plan, "NVIDIA H200", "580.2", kLists), key);
  EXPECT_NE(tuning_key(plan, "NVIDIA H200", "580.1", {}), key);
  const std::vector<void (*)(MoePlan&)> changes = {
      [](MoePlan& p) { p.experts.limits.compute_capability = 100; },
      [](MoePlan& p) { p.experts.prepared_layout += "1"; },
      [](MoePlan& p) { p.experts.mode = ActivationMode::kW4a8; },
      [](MoePlan& p) { p.experts.spec.activation.function = ActivationFunction::kRelu2; },
      [](MoePlan& p) { p.experts.row_dtype = DType::kF32; },
      [](MoePlan& p) { p.experts.spec.num_experts *= 2; },
      [](MoePlan& p) { p.experts.shard.num_local_experts /= 2; },
      [](MoePlan& p) { p.experts.spec.hidden_size += 16; },
      [](MoePlan& p) { p.experts.shard.intermediate_size += 16; },
      [](MoePlan& p) { p.experts.spec.top_k += 1; },
      [](MoePlan& p) { p.experts.capacity_tokens += 1; },
      [](MoePlan& p) { p.dispatch.ep_size += 1; },
      [](MoePlan& p) { p.dispatch.dispatcher = "standard"; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    MoePlan other = plan;
    changes[i](other);
    EXPECT_TRUE(differs(other)) << i;
  }
}

}  // namespace
}  // namespace halfbyte
