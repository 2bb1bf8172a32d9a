// SPDX-License-Identifier: Apache-2.0
#include "halfbyte/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "base/checked.h"
#include "halfbyte/dtype.h"
#include "halfbyte/result.h"

namespace halfbyte {
namespace {

using ::testing::HasSubstr;

TEST(Status, OkHasNoMessageAndNoContext) {
  Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(std::move(status).with_context("layer 3").to_string(), "ok");
}

TEST(Status, AFailureSaysItsCodeMessageAndPlace) {
  const Status status(StatusCode::kCorruptData, "scale is nan");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.to_string(), "corrupt_data: scale is nan");
  EXPECT_THAT(std::string(status.where().file_name()), HasSubstr("status_test.cpp"));
}

TEST(Status, ContextIsPutBeforeTheMessageFromTheInsideOut) {
  Status status(StatusCode::kNotFound, "input_scale");
  status = std::move(status).with_context("expert 42");
  status = std::move(status).with_context("layer 17");
  EXPECT_EQ(status.message(), "layer 17: expert 42: input_scale");
}

TEST(Status, ACloneIsIndependent) {
  Status status(StatusCode::kInternal, "a");
  const Status copy = status.clone();
  status = std::move(status).with_context("b");
  EXPECT_EQ(copy.message(), "a");
  EXPECT_EQ(copy.code(), StatusCode::kInternal);
  EXPECT_TRUE(Status().clone().ok());
}

TEST(Status, AnOkCodeMakesAnOkStatus) {
  EXPECT_TRUE(Status(StatusCode::kOk, "ignored").ok());
}

TEST(Status, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(StatusCode::kCapacityExceeded); ++code)
    names.insert(status_code_name(static_cast<StatusCode>(code)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(StatusCode::kCapacityExceeded) + 1);
  EXPECT_FALSE(names.contains("unknown"));
}

Result<std::unique_ptr<int>> make_box(bool good) {
  if (!good) return Status(StatusCode::kInvalidArgument, "no box");
  return std::make_unique<int>(7);
}

Result<int> open_box(bool good) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::unique_ptr<int> box, make_box(good));
  return *box;
}

Status look_into_box(bool good) {
  HALFBYTE_RETURN_IF_ERROR(make_box(good).ok() ? Status() : make_box(good).take_status());
  return {};
}

TEST(Result, CarriesAMoveOnlyValueOrTheFailure) {
  ASSERT_TRUE(open_box(true).ok());
  EXPECT_EQ(*open_box(true), 7);
  const Result<int> failed = open_box(false);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().message(), "no box");
  EXPECT_TRUE(look_into_box(true).ok());
  EXPECT_EQ(look_into_box(false).code(), StatusCode::kInvalidArgument);
}

TEST(Checked, OverflowIsNothing) {
  EXPECT_EQ(checked_mul(1ULL << 32, 1ULL << 31), 1ULL << 63);
  EXPECT_FALSE(checked_mul(1ULL << 32, 1ULL << 32).has_value());
  EXPECT_EQ(checked_add(~0ULL - 1, 1), ~0ULL);
  EXPECT_FALSE(checked_add(~0ULL, 1).has_value());
}

TEST(Checked, RoundingGoesUpToTheNextMultiple) {
  EXPECT_EQ(ceil_div(0, 128), 0);
  EXPECT_EQ(ceil_div(129, 128), 2);
  EXPECT_EQ(round_up(352, 64), 384);
  EXPECT_EQ(round_up(384, 64), 384);
}

TEST(DType, SizesAndSafetensorsNames) {
  // Spelling of the safetensors header.
  EXPECT_EQ(dtype_name(DType::kBf16), "BF16");
  EXPECT_EQ(dtype_name(DType::kF8E4m3), "F8_E4M3");
  EXPECT_EQ(dtype_bytes(DType::kBf16), 2);
  EXPECT_EQ(dtype_bytes(DType::kI64), 8);
  EXPECT_EQ(dtype_bits(DType::kF4E2m1), 4);
  EXPECT_EQ(dtype_bytes(DType::kF4E2m1), 0);
  std::set<std::string_view> names;
  for (int dtype = 0; dtype <= static_cast<int>(DType::kBool); ++dtype)
    names.insert(dtype_name(static_cast<DType>(dtype)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(DType::kBool) + 1);
}

}  // namespace
}  // namespace halfbyte
