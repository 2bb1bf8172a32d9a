// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/host_buffer.h"
#include "base/workspace_layout.h"

namespace halfbyte {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(HostBuffer, IsZeroAndAligned) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{5000}, std::size_t{3} << 20}) {
    const Result<HostBuffer> buffer = HostBuffer::allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0U);
    EXPECT_THAT(buffer->span(), Each(std::byte{0}));
  }
}

TEST(HostBuffer, AnEmptyOneIsNull) {
  const Result<HostBuffer> buffer = HostBuffer::allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_TRUE(buffer->span().empty());
}

TEST(HostBuffer, ALargeOneStartsOnAHugePageAndHoldsItsLastByte) {
  for (const std::size_t bytes : {std::size_t{2} << 20, (std::size_t{5} << 20) + 123}) {
    const Result<HostBuffer> buffer = HostBuffer::allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % (std::size_t{2} << 20), 0U);
    EXPECT_EQ(buffer->span().back(), std::byte{0});
    buffer->span().back() = std::byte{1};
  }
}

TEST(HostBuffer, MoreThanTheAddressSpaceIsOutOfMemory) {
  const std::size_t bytes = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(HostBuffer::allocate(bytes).status().code(), StatusCode::kOutOfMemory);
}

TEST(HostBuffer, TooMuchIsOutOfMemoryWithTheSize) {
  const Result<HostBuffer> buffer = HostBuffer::allocate(std::size_t{1} << 62);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.status().code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(std::string(buffer.status().message()), HasSubstr("4611686018427387904"));
}

TEST(HostBuffer, MovingPassesTheMemoryOn) {
  HostBuffer first = HostBuffer::allocate(64).value();
  first.as<std::int32_t>()[3] = 7;
  HostBuffer second = std::move(first);
  EXPECT_EQ(second.as<std::int32_t>()[3], 7);
  HostBuffer third;
  third = std::move(second);
  EXPECT_EQ(third.as<std::int32_t>()[3], 7);
  EXPECT_EQ(third.size(), 64U);
}

TEST(WorkspaceLayout, BuffersAreAlignedAndNeverOverlap) {
  WorkspaceLayout layout;
  std::vector<std::size_t> offsets;
  for (const std::size_t bytes : {1U, 0U, 100U, 64U, 4097U, 3U})
    offsets.push_back(layout.add("buffer", bytes, bytes == 100 ? 256 : 64));
  std::size_t end = 0;
  for (const WorkspaceLayout::Entry& entry : layout.entries()) {
    EXPECT_GE(entry.offset, end);
    EXPECT_EQ(entry.offset % 64, 0U);
    end = entry.offset + entry.bytes;
  }
  EXPECT_EQ(offsets[2] % 256, 0U);
  EXPECT_EQ(layout.total_bytes(), end);
}

TEST(WorkspaceLayout, AnEmptyLayoutNeedsNothing) {
  EXPECT_EQ(WorkspaceLayout().total_bytes(), 0U);
}

TEST(WorkspaceLayout, PrintsEachBufferAndTheTotal) {
  WorkspaceLayout layout;
  layout.add("h", 100);
  layout.add("rows", 28);
  EXPECT_THAT(layout.to_string(), HasSubstr("128             28  rows"));
  EXPECT_THAT(layout.to_string(), HasSubstr("156  total"));
}

TEST(Workspace, OffsetsOfTheLayoutAddressTheMemory) {
  WorkspaceLayout layout;
  layout.add("first", 4);
  const std::size_t offset = layout.add("second", 8);
  const HostBuffer buffer = HostBuffer::allocate(layout.total_bytes()).value();
  const Workspace workspace = {buffer.data(), buffer.size()};
  workspace.at<std::int32_t>(offset)[1] = 5;
  EXPECT_EQ(buffer.as<std::int32_t>()[offset / 4 + 1], 5);
}

}  // namespace
}  // namespace halfbyte
