// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/safetensors_writer.h"

namespace halfbyte {
namespace {

using test::TempDirectory;
using test::write_text;
using testing::HasSubstr;

constexpr const char* kShard1 = "model-00001-of-00002.safetensors";
constexpr const char* kShard2 = "model-00002-of-00002.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

void write_shard(const TempDirectory& dir,
                 const std::string& file,
                 std::vector<std::string> names) {
  test::TensorSet tensors;
  for (std::string& name : names)
    put(tensors, test::f32_tensor(std::move(name), {1}, {1.0F}));
  write_safetensors(dir / file, tensors);
}

/// Opens and collects the notices.
struct Opened {
  std::vector<std::string> notices;
  Result<std::unique_ptr<RawTensors>> raw = Status(StatusCode::kInternal, "not opened");
  explicit Opened(const TempDirectory& dir, bool ignore_index = false) {
    NoticeSink sink([this](std::string_view line) { notices.emplace_back(line); });
    raw = RawTensors::open(dir.string(), ignore_index, sink);
  }
  std::string error() const { return raw.ok() ? "" : raw.status().to_string(); }
};

TEST(RawTensors, WithoutAnIndexEveryFileIsReadWhateverItsName) {
  TempDirectory dir;
  write_shard(dir, "layer-3-experts-0-7.safetensors", {"b"});
  write_shard(dir, "model-bf16-00001.safetensors", {"a"});
  const Opened opened(dir);
  ASSERT_TRUE(opened.raw.ok()) << opened.error();
  EXPECT_EQ((*opened.raw)->tensors().size(), 2U);
  EXPECT_EQ((*opened.raw)->tensors()[0].name, "a");  // sorted by name over all files
  EXPECT_EQ((*opened.raw)->total_bytes(), 8U);
  EXPECT_EQ((*opened.raw)->file_name(*(*opened.raw)->find("b")), "layer-3-experts-0-7.safetensors");
  EXPECT_EQ((*opened.raw)->find("c"), nullptr);
}

TEST(RawTensors, TensorsThatTheIndexForgetsAreReadWithANotice) {
  TempDirectory dir;
  write_shard(dir, kShard1, {"a", "a.scale"});
  write_text(dir / kIndex, fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", kShard1));
  const Opened opened(dir);
  ASSERT_TRUE(opened.raw.ok()) << opened.error();
  EXPECT_NE((*opened.raw)->find("a.scale"), nullptr);
  EXPECT_THAT(opened.notices, testing::ElementsAre(HasSubstr("does not list 1 tensors")));
}

TEST(RawTensors, AMissingShardIsNamedWithTheNumberOfItsTensors) {
  TempDirectory dir;
  write_shard(dir, kShard1, {"a"});
  write_text(dir / kIndex, fmt::format(R"({{"weight_map":{{"a":"{}","b":"{}","c":"{}"}}}})",
                                       kShard1, kShard2, kShard2));
  EXPECT_EQ(Opened(dir).error(),
            fmt::format("not_found: {}: named by {} for 2 tensors, not in the directory", kShard2,
                        kIndex));
}

TEST(RawTensors, ATensorThatTheIndexListsButNoFileHasIsAnError) {
  TempDirectory dir;
  write_shard(dir, kShard1, {"a"});
  write_text(dir / kIndex, fmt::format(R"({{"weight_map":{{"a":"{0}","gone":"{0}"}}}})", kShard1));
  EXPECT_THAT(Opened(dir).error(), HasSubstr("lists 1 tensors that no file holds: gone"));
}

TEST(RawTensors, FilesBesideTheIndexAreLeftAloneUnlessAskedFor) {
  TempDirectory dir;
  write_shard(dir, kShard1, {"a"});
  write_shard(dir, "extra.safetensors", {"b"});
  write_text(dir / kIndex, fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", kShard1));
  const Opened opened(dir);
  ASSERT_TRUE(opened.raw.ok());
  EXPECT_EQ((*opened.raw)->find("b"), nullptr);
  EXPECT_THAT(opened.notices, testing::ElementsAre(HasSubstr("extra.safetensors")));
  EXPECT_THAT((*opened.raw)->tensor_names_of_unread("extra.safetensors"),
              testing::ElementsAre("b"));
  EXPECT_NE((*Opened(dir, true).raw)->find("b"), nullptr);
}

TEST(RawTensors, TheSameNameInTwoFilesNamesBoth) {
  TempDirectory dir;
  write_shard(dir, kShard1, {"a"});
  write_shard(dir, kShard2, {"a"});
  EXPECT_THAT(Opened(dir).error(), testing::AllOf(HasSubstr("corrupt_data: a: in"),
                                                  HasSubstr(kShard1), HasSubstr(kShard2)));
}

TEST(RawTensors, ATruncatedShardIsNamed) {
  TempDirectory dir;
  test::TensorSet tensors;
  put(tensors, test::f32_tensor("a", {4}, {1, 2, 3, 4}));
  auto file = test::safetensors_bytes(tensors);
  const std::size_t size = file.size();
  file.resize(size - 8);
  test::write_bytes(dir / kShard1, file);
  EXPECT_EQ(Opened(dir).error(),
            fmt::format("corrupt_data: {}: truncated: header needs {} bytes, file has {}", kShard1,
                        size, size - 8));
}

TEST(RawTensors, AnIndexMayNotLeadOutOfTheDirectory) {
  for (const char* name : {"../other.safetensors", "/etc/passwd", "a/b.safetensors", "..", ""}) {
    TempDirectory dir;
    write_text(dir / kIndex, fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name));
    EXPECT_THAT(Opened(dir).error(), HasSubstr("not the plain name of a file")) << name;
  }
}

TEST(RawTensors, AMalformedIndexIsRefused) {
  for (const char* text : {"", "[]", "3", "{}", R"({"weight_map":3})", R"({"weight_map":{}})",
                           R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":["b"]}})",
                           R"({"weight_map":{"a":"b","a":"c"}})", R"({"weight_map":{"a":"b"})"}) {
    TempDirectory dir;
    write_text(dir / kIndex, text);
    EXPECT_THAT(Opened(dir).error(), HasSubstr("corrupt_data: model.safetensors.index.json"))
        << text;
  }
}

TEST(RawTensors, ADirectoryWithoutTensorsIsNotFound) {
  TempDirectory dir;
  EXPECT_THAT(Opened(dir).error(), HasSubstr("not_found"));
  NoticeSink sink;
  EXPECT_EQ(RawTensors::open(dir.string() + "/none", false, sink).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace halfbyte
