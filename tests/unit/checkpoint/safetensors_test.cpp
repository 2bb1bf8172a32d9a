// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/safetensors_writer.h"

namespace halfbyte {
namespace {

using test::safetensors_file;

TEST(SafetensorsHeader, OffsetsCountFromTheStartOfTheFile) {
  test::TensorSet tensors;
  put(tensors, test::f32_tensor("b", {2}, {1.0F, 2.0F}));
  put(tensors, test::byte_tensor("a", DType::kU8, {3}, {1, 2, 3}));
  const auto file = test::safetensors_bytes(tensors);
  const auto entries = read_safetensors_header(file);
  ASSERT_TRUE(entries.ok()) << entries.status().to_string();
  ASSERT_EQ(entries->size(), 2U);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ(file[(*entries)[0].begin], 1);
  EXPECT_EQ((*entries)[1].end, file.size());
  EXPECT_EQ((*entries)[1].shape, std::vector<std::int64_t>{2});
}

TEST(SafetensorsHeader, ScalarsZeroSizedTensorsAndTrailingSpacesAreLegal) {
  const auto entries = read_safetensors_header(safetensors_file(
      R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("z":{"dtype":"BF16","shape":[0,7],"data_offsets":[4,4]},)"
      R"("f":{"dtype":"F4","shape":[2,2],"data_offsets":[4,6],"note":{"x":1}}}   )",
      {0, 0, 0, 0, 1, 2}));
  ASSERT_TRUE(entries.ok()) << entries.status().to_string();
  EXPECT_EQ(entries->size(), 3U);
}

TEST(SafetensorsHeader, EmptyObjectHasNoTensors) {
  const auto entries = read_safetensors_header(safetensors_file("{}"));
  ASSERT_TRUE(entries.ok());
  EXPECT_TRUE(entries->empty());
}

struct BadFile {
  const char* what;
  std::vector<std::uint8_t> file;
  const char* message;  // part of it
};

std::vector<std::uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

/// One tensor "a" whose fields are given, over `data` bytes.
BadFile entry(const char* what, const std::string& fields, std::size_t data, const char* message) {
  return {what, safetensors_file(R"({"a":{)" + fields + "}}", std::vector<std::uint8_t>(data)),
          message};
}

BadFile header(const char* what, const std::string& text, const char* message) {
  return {what, safetensors_file(text), message};
}

std::string tensor(const std::string& name, const std::string& offsets, int size) {
  return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{}]}})", name, size,
                     offsets);
}

/// Every reason of checkpoints.md section 6, each with the part of the message that states it.
std::vector<BadFile> bad_files() {
  std::vector<BadFile> files = {
      {"empty file", {}, "truncated: want at least 8 bytes, file has 0"},
      {"seven bytes", bytes("1234567"), "truncated: want at least 8 bytes"},
      {"huge header", {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, "at most 100000000"},
      {"just over the limit", {0x01, 0xE1, 0xF5, 0x05, 0, 0, 0, 0}, "at most 100000000"},
      {"header past the end",
       {9, 0, 0, 0, 0, 0, 0, 0, '{', '}'},
       "header needs 17 bytes, file has 10"},
      {"LFS pointer", bytes("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"},
      header("no header", "", "not a JSON object"),
      header("array", "[]", "not a JSON object"),
      header("string", "\"a\"", "not a JSON object"),
      header("leading space", " {}", "not a JSON object"),
      header("trailing newline", "{}\n", "not a JSON object"),
      header("trailing text", "{}x", "not a JSON object"),
      header("second object", "{}{}", "not UTF-8 JSON"),
      header("unclosed", "{\"a\":}", "not UTF-8 JSON"),
      header("zero byte hides text", std::string("{}\0}", 4), "zero byte"),
      header("not UTF-8", "{\"\xFF\":{}}", "not UTF-8 JSON"),
      header("overlong UTF-8", "{\"\xC0\x80\":{}}", "not UTF-8 JSON"),
      header("entry is a number", R"({"a":1})", "want an object, got a number"),
      header("entry is null", R"({"a":null})", "want an object, got null"),
      header("entry is an array", R"({"a":[]})", "want an object, got an array"),
      header("entry is a string", R"({"a":"U8"})", "want an object, got a string"),
      header("metadata is a number", R"({"__metadata__":3})", "__metadata__"),
      header("metadata holds a number", R"({"__metadata__":{"a":3}})", "want a string"),
      header("metadata holds an object", R"({"__metadata__":{"a":{}}})", "__metadata__"),
      header("metadata twice", R"({"__metadata__":{},"__metadata__":{}})", "duplicate name"),
      header("metadata key twice", R"({"__metadata__":{"a":"","a":""}})", "duplicate key"),
      entry("no dtype", R"("shape":[1],"data_offsets":[0,1])", 1, "no 'dtype'"),
      entry("no shape", R"("dtype":"U8","data_offsets":[0,1])", 1, "no 'shape'"),
      entry("no offsets", R"("dtype":"U8","shape":[1])", 1, "no 'data_offsets'"),
      entry("unknown dtype", R"("dtype":"F5","shape":[1],"data_offsets":[0,1])", 1,
            "unknown dtype 'F5'"),
      entry("dtype is a number", R"("dtype":8,"shape":[1],"data_offsets":[0,1])", 1, "dtype"),
      entry("dtype twice", R"("dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1])", 1,
            "duplicate 'dtype'"),
      entry("negative dimension", R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", 1,
            "non-negative"),
      entry("fraction", R"("dtype":"U8","shape":[1.5],"data_offsets":[0,1])", 1, "non-negative"),
      entry("dimension 2^63", R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1])",
            1, "below 2^63"),
      entry("dimension 2^64", R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1])",
            1, "below 2^63"),
      entry("count overflows",
            R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0,
            "overflows 64 bits"),
      entry("bytes overflow", R"("dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0])",
            0, "overflows 64 bits"),
      entry("shape is a string", R"("dtype":"U8","shape":"1","data_offsets":[0,1])", 1,
            "want numbers"),
      entry("shape nests", R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])", 1, "want numbers"),
      entry("one offset", R"("dtype":"U8","shape":[1],"data_offsets":[0])", 1, "want 2 numbers"),
      entry("three offsets", R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])", 1,
            "want 2 numbers"),
      entry("backwards", R"("dtype":"U8","shape":[1],"data_offsets":[1,0])", 1, "run backwards"),
      entry("past the end", R"("dtype":"U8","shape":[9],"data_offsets":[0,9])", 1,
            "truncated: header needs"),
      entry(
          "offset near 2^64",
          R"("dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615])",
          1, "truncated"),
      entry("too few bytes for the shape", R"("dtype":"F32","shape":[1],"data_offsets":[0,3])", 3,
            "needs 4 bytes, data_offsets give 3"),
      entry("a hole at the start", R"("dtype":"U8","shape":[1],"data_offsets":[1,2])", 2,
            "leaves a hole"),
      entry("a tail", R"("dtype":"U8","shape":[1],"data_offsets":[0,1])", 3,
            "2 bytes after the last tensor"),
      entry("nested too deep", R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"x":[[[1]]])", 1,
            "nested deeper than 4"),
      {"overlap",
       safetensors_file("{" + tensor("a", "0,4", 4) + "," + tensor("b", "2,6", 4) + "}",
                        std::vector<std::uint8_t>(6)),
       "overlaps another"},
      {"a hole between",
       safetensors_file("{" + tensor("a", "0,2", 2) + "," + tensor("b", "3,5", 2) + "}",
                        std::vector<std::uint8_t>(5)),
       "leaves a hole"},
      {"the same range twice",
       safetensors_file("{" + tensor("a", "0,4", 4) + "," + tensor("b", "0,4", 4) + "}",
                        std::vector<std::uint8_t>(4)),
       "overlaps another"},
      {"zero-sized inside another",
       safetensors_file("{" + tensor("a", "0,4", 4) + "," + tensor("b", "2,2", 0) + "}",
                        std::vector<std::uint8_t>(4)),
       "overlaps another"},
      {"duplicate name",
       safetensors_file("{" + tensor("a", "0,1", 1) + "," + tensor("a", "1,2", 1) + "}",
                        std::vector<std::uint8_t>(2)),
       "duplicate name 'a'"},
  };
  return files;
}

TEST(SafetensorsHeader, EveryMalformedFileIsRefusedWithItsReason) {
  const std::vector<BadFile> files = bad_files();
  ASSERT_GE(files.size(), 40U);
  for (const BadFile& bad : files) {
    const auto entries = read_safetensors_header(bad.file);
    ASSERT_FALSE(entries.ok()) << bad.what;
    EXPECT_EQ(entries.status().code(), StatusCode::kCorruptData) << bad.what;
    EXPECT_THAT(std::string(entries.status().message()), testing::HasSubstr(bad.message))
        << bad.what;
  }
}

// A good file cut anywhere is refused, never read past its end (ASan watches).
TEST(SafetensorsHeader, EveryPrefixOfAFileIsRefused) {
  test::TensorSet tensors;
  put(tensors, test::f32_tensor("a", {2}, {1.0F, 2.0F}));
  const auto file = test::safetensors_bytes(tensors);
  for (std::size_t size = 0; size < file.size(); ++size) {
    const std::vector<std::uint8_t> cut(file.begin(),
                                        file.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(read_safetensors_header(cut).ok()) << size;
  }
}

}  // namespace
}  // namespace halfbyte
