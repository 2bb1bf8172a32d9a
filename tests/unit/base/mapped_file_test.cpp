// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace halfbyte {
namespace {

using ::testing::HasSubstr;

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    directory_ = std::filesystem::path(::testing::TempDir()) / ("mapped_file_" + name);
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& content) {
    const std::string path = (directory_ / "file").string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  std::filesystem::path directory_;
};

std::string text(const MappedFile& file) {
  return {file.bytes().begin(), file.bytes().end()};
}

TEST_F(MappedFileTest, HoldsTheBytesOfTheFile) {
  const Result<MappedFile> file = MappedFile::open(write("half a byte"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(text(*file), "half a byte");
}

TEST_F(MappedFileTest, AnEmptyFileIsAnEmptySpan) {
  const Result<MappedFile> file = MappedFile::open(write(""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(MappedFileTest, AMissingFileIsNotFoundWithItsPath) {
  const Result<MappedFile> file = MappedFile::open((directory_ / "absent").string());
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("absent: No such file"));
}

TEST_F(MappedFileTest, ADirectoryIsNotAFile) {
  const Result<MappedFile> file = MappedFile::open(directory_.string());
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("not a regular file"));
}

TEST_F(MappedFileTest, APipeIsRefusedWithoutWaiting) {
  const std::string path = (directory_ / "pipe").string();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(MappedFile::open(path).ok());
}

TEST_F(MappedFileTest, MovingKeepsTheMapping) {
  MappedFile first = MappedFile::open(write("abc")).value();
  MappedFile second = std::move(first);
  MappedFile third;
  third = std::move(second);
  EXPECT_EQ(text(third), "abc");
}

TEST_F(MappedFileTest, DroppedBytesCanBeReadAgain) {
  const std::string content(20000, 'x');
  const Result<MappedFile> file = MappedFile::open(write(content));
  ASSERT_TRUE(file.ok());
  file->drop(0, content.size());
  file->drop(1, 4100);
  file->drop(19999, 100000);  // past the end: ignored
  EXPECT_EQ(text(*file), content);
}

}  // namespace
}  // namespace halfbyte
