// SPDX-License-Identifier: Apache-2.0
#include "golden/model_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "checkpoint/directory.h"
#include "formats/convert.h"
#include "weights/checkpoint_weights.h"

namespace halfbyte {
namespace {

// 7 and 64 have no common factor: a permutation of the blocks.
std::vector<std::int32_t> scattered_blocks(std::int64_t count) {
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < blocks.size(); ++i)
    blocks[i] = static_cast<std::int32_t>((i * 7 + 3) % 64);
  return blocks;
}

std::size_t largest_of(const float* row, std::int64_t cols) {
  return static_cast<std::size_t>(std::max_element(row, row + cols) - row);
}

double log_sum_exp(const float* row, std::int64_t cols) {
  const double largest = *std::max_element(row, row + cols);
  double sum = 0.0;
  for (std::int64_t i = 0; i < cols; ++i)
    sum += std::exp(static_cast<double>(row[i]) - largest);
  return largest + std::log(sum);
}

}  // namespace

std::string golden_path(const std::string& name) {
  return std::string(HALFBYTE_SOURCE_DIR) + "/tests/golden/" + name;
}

std::string shipped_model_path() {
  return std::string(HALFBYTE_SOURCE_DIR) + "/models/gsm-mini-qwen3moe-nvfp4";
}

ModelOptions float32_options(const std::string& backend) {
  ModelOptions options;
  options.moe.runner_backend = backend;
  options.moe.activation_mode = ActivationMode::kW4a16;
  options.moe.capacity_tokens = 256;
  options.moe.num_threads = 2;
  options.moe.exact_float32 = true;
  options.dtype = ComputeDtype::kFloat32;
  options.kv_cache_dtype = KvCacheDtype::kFloat32;
  options.max_context_tokens = 1024;
  options.kv_cache_blocks = 64;
  return options;
}

Result<std::vector<std::unique_ptr<Model>>> load_test_model(
    const std::string& directory,
    const ModelOptions& options,
    std::span<const std::unique_ptr<Transport>> transports) {
  const auto notices = std::make_shared<NoticeSink>();
  HALFBYTE_ASSIGN_OR_RETURN(const auto weights, CheckpointWeights::open(directory, false, notices));
  return load_model(*weights, options, transports, notices, nullptr);
}

std::unique_ptr<Model> load_one_rank(const std::string& directory, const ModelOptions& options) {
  auto models = load_test_model(directory, options);
  EXPECT_TRUE(models.ok()) << (models.ok() ? "" : models.status().to_string());
  return models.ok() ? std::move(models->front()) : nullptr;
}

std::vector<float> score(Model& model, const std::vector<std::int32_t>& ids, std::int64_t chunk) {
  const auto total = static_cast<std::int64_t>(ids.size());
  const std::int64_t vocab = model.config().vocab_size;
  const std::vector<std::int32_t> blocks = scattered_blocks(64);
  std::vector<float> logits(static_cast<std::size_t>(total * vocab));
  const std::int64_t step = chunk == 0 ? total : chunk;
  for (std::int64_t first = 0; first < total; first += step) {
    const std::int64_t count = std::min(step, total - first);
    const SequenceSlice slice = {0, count, first, blocks};
    std::vector<std::int32_t> rows(static_cast<std::size_t>(count));
    std::iota(rows.begin(), rows.end(), 0);
    Batch batch;
    batch.token_ids = std::span(ids).subspan(static_cast<std::size_t>(first), rows.size());
    batch.sequences = {&slice, 1};
    batch.logit_rows = rows;
    const Status status =
        model.forward(batch, std::span(logits).subspan(static_cast<std::size_t>(first * vocab),
                                                       static_cast<std::size_t>(count * vocab)));
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  return logits;
}

std::vector<std::int32_t> generate(Model& model,
                                   const std::vector<std::int32_t>& prompt,
                                   const std::vector<std::int32_t>& stop,
                                   std::int64_t max_new_tokens) {
  const std::vector<std::int32_t> blocks = scattered_blocks(64);
  std::vector<float> logits(static_cast<std::size_t>(model.config().vocab_size));
  std::vector<std::int32_t> input = prompt;
  std::vector<std::int32_t> output;
  std::int64_t context = 0;
  while (static_cast<std::int64_t>(output.size()) < max_new_tokens) {
    const auto count = static_cast<std::int64_t>(input.size());
    const SequenceSlice slice = {0, count, context, blocks};
    const std::int32_t last = static_cast<std::int32_t>(count) - 1;
    Batch batch;
    batch.token_ids = input;
    batch.sequences = {&slice, 1};
    batch.logit_rows = {&last, 1};
    const Status status = model.forward(batch, logits);
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) return output;
    context += count;
    output.push_back(
        static_cast<std::int32_t>(largest_of(logits.data(), model.config().vocab_size)));
    if (std::count(stop.begin(), stop.end(), output.back()) > 0) return output;
    input = {output.back()};
  }
  return output;
}

std::map<std::string, GoldenTensor> read_golden(const std::string& directory) {
  std::map<std::string, GoldenTensor> golden;
  NoticeSink notices;
  const auto raw = RawTensors::open(directory, false, notices);
  EXPECT_TRUE(raw.ok()) << (raw.ok() ? "" : raw.status().to_string());
  if (!raw.ok()) return golden;
  for (const RawTensor& tensor : (*raw)->tensors()) {
    GoldenTensor& dst = golden[std::string(tensor.name)];
    dst.shape.assign(tensor.shape.begin(), tensor.shape.end());
    const std::size_t count = tensor.bytes.size() / 4;
    if (tensor.dtype == DType::kI32) {
      dst.i32.resize(count);
      std::memcpy(dst.i32.data(), tensor.bytes.data(), tensor.bytes.size());
    } else {
      dst.f32.resize(count);
      widen_to_f32(tensor.dtype, tensor.bytes.data(), static_cast<std::int64_t>(count),
                   dst.f32.data());
    }
  }
  return golden;
}

double relative_max(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double difference = 0.0;
  double largest = 0.0;
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const double d = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    if (std::isnan(d)) return d;
    difference = std::max(difference, d);
    largest = std::max(largest, std::abs(static_cast<double>(want[i])));
  }
  return difference / largest;
}

double mean_kl(const std::vector<float>& got, const std::vector<float>& want, std::int64_t cols) {
  EXPECT_EQ(got.size(), want.size());
  const auto rows = static_cast<std::int64_t>(want.size()) / cols;
  double total = 0.0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* p = want.data() + r * cols;
    const float* q = got.data() + r * cols;
    const double log_p = log_sum_exp(p, cols);
    const double log_q = log_sum_exp(q, cols);
    for (std::int64_t i = 0; i < cols; ++i) {
      const double lp = static_cast<double>(p[i]) - log_p;
      total += std::exp(lp) * (lp - (static_cast<double>(q[i]) - log_q));
    }
  }
  return total / static_cast<double>(rows);
}

std::vector<float> select_rows(const std::vector<float>& matrix,
                               const std::vector<std::int32_t>& rows,
                               std::int64_t cols) {
  std::vector<float> selected;
  for (const std::int32_t row : rows) {
    const auto first = matrix.begin() + row * cols;
    selected.insert(selected.end(), first, first + cols);
  }
  return selected;
}

std::int64_t count_argmax_differences(const std::vector<float>& got,
                                      const std::vector<float>& want,
                                      std::int64_t cols,
                                      float margin) {
  std::int64_t differences = 0;
  for (std::size_t first = 0; first < want.size(); first += static_cast<std::size_t>(cols)) {
    const float* row = want.data() + first;
    const std::size_t best = largest_of(row, cols);
    if (largest_of(got.data() + first, cols) == best) continue;
    std::vector<float> sorted(row, row + cols);
    std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
    if (row[best] - sorted[1] > margin) ++differences;
  }
  return differences;
}

}  // namespace halfbyte
