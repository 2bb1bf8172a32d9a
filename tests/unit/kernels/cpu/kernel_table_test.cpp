// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/kernel_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/cpu/linear.h"

namespace halfbyte::cpu {
namespace {

using ::testing::HasSubstr;

// Every table is forced where it can run, and refused with what is missing where it cannot.
TEST(ForceKernelTable, RunsItOrSaysWhatTheMachineLacks) {
  const KernelTable& own = best_kernel_table();
  EXPECT_FALSE(kernel_table_is_forced());
  for (const KernelTable* table : list_kernel_tables()) {
    const std::string_view missing = missing_feature(*table);
    const Status status = force_kernel_table(table->name);
    if (missing.empty()) {
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(&best_kernel_table(), table);
      EXPECT_EQ(isa_description(), std::string(table->name) + " (asked for)");
    } else {
      EXPECT_EQ(status.code(), StatusCode::kUnsupported) << table->name;
      EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(missing)));
    }
  }
  EXPECT_TRUE(force_kernel_table("auto").ok());
  EXPECT_EQ(&best_kernel_table(), &own);
}

TEST(ForceKernelTable, NamesWhatThereIs) {
  const Status status = force_kernel_table("sse2");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "\"sse2\" is not one of auto, avx512, avx_vnni, avx2, portable, amx");
  EXPECT_FALSE(kernel_table_is_forced());
}

// Only AMX is left to who asks for it.
TEST(BestKernelTable, IsNeverAmxByItself) {
  EXPECT_NE(&best_kernel_table(), &kAmxKernels);
}

}  // namespace
}  // namespace halfbyte::cpu
