// SPDX-License-Identifier: Apache-2.0
//
// Experts of a layer in two 3-D tensors (checkpoints.md 5.3): each form is an index map, and gives
// the bytes of the same experts stored one by one.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>

#include "opened_checkpoint.h"

namespace halfbyte {
namespace {

using test::bytes_of;
using test::expect_same_experts;
using test::Opened;
using test::tiny_checkpoint;
using test::TinyCheckpoint;

enum class Form { kNatural, kTransposed, kInterleaved };

/// Where row `row` of a stack of `rows` comes from in gates-first order.
std::int64_t source_row(Form form, bool down, std::int64_t row, std::int64_t rows) {
  if (form != Form::kInterleaved || down) return row;
  return row / 2 + (row % 2) * (rows / 2);  // g0, u0, g1, u1, ...
}

/// Replaces the experts of all layers by stacks in the given form.
TinyCheckpoint stacked(Form form) {
  const bool transposed = form == Form::kTransposed;
  TinyCheckpoint checkpoint = tiny_checkpoint();
  test::TensorSet all = checkpoint.tensors;
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const std::string base = fmt::format("model.layers.{}.mlp.experts.", layer);
    std::vector<float> gate_up_scales, down_scales, gate_up_inputs, down_inputs;
    const auto stack = [&](const char* role, bool down, std::int64_t rows, std::int64_t cols) {
      std::vector<std::uint8_t> out;
      for (std::int64_t e = 0; e < 4; ++e) {
        std::vector<std::uint8_t> one;
        for (const char* p : down ? std::vector<const char*>{"down_proj"}
                                  : std::vector<const char*>{"gate_proj", "up_proj"}) {
          const auto& bytes = all.at(fmt::format("{}{}.{}.{}", base, e, p, role)).bytes;
          one.insert(one.end(), bytes.begin(), bytes.end());
        }
        for (std::int64_t i = 0; i < rows * cols; ++i) {
          const std::int64_t row = transposed ? i % rows : i / cols;
          const std::int64_t col = transposed ? i / rows : i % cols;
          const std::int64_t at = source_row(form, down, row, rows) * cols + col;
          out.push_back(one[static_cast<std::size_t>(at)]);
        }
      }
      return out;
    };
    const auto scalars = [&](const char* role, bool down) {
      std::vector<float> out;
      for (std::int64_t e = 0; e < 4; ++e) {
        for (const char* p : down ? std::vector<const char*>{"down_proj"}
                                  : std::vector<const char*>{"gate_proj", "up_proj"}) {
          float value = 0.0F;
          std::memcpy(&value, all.at(fmt::format("{}{}.{}.{}", base, e, p, role)).bytes.data(), 4);
          out.push_back(value);
        }
      }
      return out;
    };
    const auto shape = [&](std::int64_t rows, std::int64_t cols) {
      return transposed ? std::vector<std::int64_t>{4, cols, rows}
                        : std::vector<std::int64_t>{4, rows, cols};
    };
    auto& t = checkpoint.tensors;
    put(t, test::byte_tensor(base + "gate_up_proj", DType::kU8, shape(32, 16),
                             stack("weight", false, 32, 16)));
    put(t, test::byte_tensor(base + "gate_up_proj_weight_scale", DType::kF8E4m3, shape(32, 2),
                             stack("weight_scale", false, 32, 2)));
    put(t, test::byte_tensor(base + "down_proj", DType::kU8, shape(32, 8),
                             stack("weight", true, 32, 8)));
    put(t, test::byte_tensor(base + "down_proj_weight_scale", DType::kF8E4m3, shape(32, 1),
                             stack("weight_scale", true, 32, 1)));
    put(t, test::f32_tensor(base + "gate_up_proj_weight_scale_2", {4, 2},
                            scalars("weight_scale_2", false)));
    put(t,
        test::f32_tensor(base + "down_proj_weight_scale_2", {4}, scalars("weight_scale_2", true)));
    put(t,
        test::f32_tensor(base + "gate_up_proj_input_scale", {4, 2}, scalars("input_scale", false)));
    put(t, test::f32_tensor(base + "down_proj_input_scale", {4, 1}, scalars("input_scale", true)));
    for (std::int64_t e = 0; e < 4; ++e) {
      std::erase_if(t, [&](const auto& entry) {
        return entry.first.starts_with(fmt::format("{}{}.", base, e));
      });
    }
  }
  if (transposed) checkpoint.config["model_type"] = "llama4_text";
  if (form == Form::kInterleaved) checkpoint.config["model_type"] = "gpt_oss";
  return checkpoint;
}

TEST(StackedExperts, GiveTheSameBytesInEveryForm) {
  Opened listed(tiny_checkpoint());
  for (const Form form : {Form::kNatural, Form::kTransposed, Form::kInterleaved}) {
    Opened opened(stacked(form));
    ASSERT_TRUE(opened.weights.ok()) << opened.error();
    expect_same_experts(*listed, *opened);
    EXPECT_TRUE((*opened).check_all_bytes().ok());
  }
}

// gpt-oss as its publisher stores it: blocks [E, 2I, H / 32, 16] of MXFP4.
TEST(StackedExperts, InMxfp4AreNamedAndRefusedOnlyWhenTheyAreAskedFor) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  checkpoint.config["model_type"] = "gpt_oss";
  checkpoint.config["architectures"] = {"GptOssForCausalLM"};
  std::erase_if(checkpoint.tensors, [](const auto& entry) {
    return entry.first.find(".experts.") != std::string::npos;
  });
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const std::string base = fmt::format("model.layers.{}.mlp.experts.", layer);
    put(checkpoint.tensors, bytes_of(base + "gate_up_proj_blocks", DType::kU8, {4, 32, 1, 16}));
    put(checkpoint.tensors, bytes_of(base + "gate_up_proj_scales", DType::kU8, {4, 32, 1}));
    put(checkpoint.tensors, bytes_of(base + "gate_up_proj_bias", DType::kBf16, {4, 32}));
    put(checkpoint.tensors, bytes_of(base + "down_proj_blocks", DType::kU8, {4, 32, 1, 16}));
    put(checkpoint.tensors, bytes_of(base + "down_proj_scales", DType::kU8, {4, 32, 1}));
    put(checkpoint.tensors, bytes_of(base + "down_proj_bias", DType::kBf16, {4, 32}));
  }
  Opened opened(checkpoint);
  ASSERT_TRUE(opened.weights.ok()) << opened.error();
  EXPECT_THAT((*opened).summarize().layers[0].experts, testing::HasSubstr("MXFP4"));
  const auto info = (*opened).expert_layer(0, ActivationMode::kW4a16);
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(std::string(info.status().message()), testing::HasSubstr("experts are MXFP4"));
}

}  // namespace
}  // namespace halfbyte
