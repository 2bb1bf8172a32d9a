// SPDX-License-Identifier: Apache-2.0
#include "bench/cache_size.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace halfbyte::tool {
namespace {

namespace fs = std::filesystem;

// Files as Linux describes a core's caches with.
class CacheSize : public testing::Test {
 protected:
  CacheSize() { fs::create_directories(root_); }
  ~CacheSize() override { fs::remove_all(root_); }

  void describe(int cpu, const std::string& size, const std::string& sharers) const {
    const fs::path folder = root_ / ("cpu" + std::to_string(cpu)) / "cache" / "index3";
    fs::create_directories(folder);
    std::ofstream(folder / "size") << size << "\n";
    std::ofstream(folder / "shared_cpu_list") << sharers << "\n";
  }

  fs::path root_ = fs::path(testing::TempDir()) / ("cache_size" + std::to_string(getpid()));
};

TEST_F(CacheSize, CountsASharedCacheOnceAndOtherCachesToo) {
  describe(0, "32768K", "0-1");
  describe(1, "32768K", "0-1");
  describe(2, "16M", "2-3");
  EXPECT_EQ(level3_cache_bytes(root_, {0, 1, 2}), std::int64_t{48} << 20);
  EXPECT_EQ(level3_cache_bytes(root_, {1}), std::int64_t{32} << 20);
}

// The default is in the header.
TEST_F(CacheSize, IsADefaultWhereNothingIsDescribed) {
  EXPECT_EQ(level3_cache_bytes(root_, {0}), std::int64_t{32} << 20);
}

}  // namespace
}  // namespace halfbyte::tool
