// SPDX-License-Identifier: Apache-2.0
//
// Loading a model and comparing its logits, for tests.
#ifndef HALFBYTE_TESTS_GOLDEN_MODEL_SUPPORT_H_
#define HALFBYTE_TESTS_GOLDEN_MODEL_SUPPORT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"

namespace halfbyte {

/// A directory below tests/golden.
std::string golden_path(const std::string& name);
/// The model that ships with the project.
std::string shipped_model_path();

/// One rank, fp32 compute and KV cache, w4a16, two threads; small limits.
ModelOptions float32_options(const std::string& backend);

Result<std::vector<std::unique_ptr<Model>>> load_test_model(
    const std::string& directory,
    const ModelOptions& options,
    std::span<const std::unique_ptr<Transport>> transports = {});
/// The same for one rank; a test failure and null when it does not load.
std::unique_ptr<Model> load_one_rank(const std::string& directory, const ModelOptions& options);

/// Logits of every position [ids.size(), vocab], fed in pieces of `chunk` tokens (0: all at once)
/// into a cache whose blocks are out of order.
std::vector<float> score(Model& model,
                         const std::vector<std::int32_t>& ids,
                         std::int64_t chunk = 0);

/// Greedy continuation until a token of `stop` or `max_new_tokens`.
std::vector<std::int32_t> generate(Model& model,
                                   const std::vector<std::int32_t>& prompt,
                                   const std::vector<std::int32_t>& stop,
                                   std::int64_t max_new_tokens);

/// A tensor of a golden file, widened.
struct GoldenTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> f32;
  std::vector<std::int32_t> i32;
};
/// Every tensor of the safetensors files of a directory.
std::map<std::string, GoldenTensor> read_golden(const std::string& directory);

/// max |got - want| / max |want|.
double relative_max(const std::vector<float>& got, const std::vector<float>& want);
/// Mean over rows of KL(softmax(want) || softmax(got)), in nats.
double mean_kl(const std::vector<float>& got, const std::vector<float>& want, std::int64_t cols);
/// Rows `rows` of a matrix with `cols` columns.
std::vector<float> select_rows(const std::vector<float>& matrix,
                               const std::vector<std::int32_t>& rows,
                               std::int64_t cols);
/// Rows whose largest element differs, where want's two largest differ by more than `margin`.
std::int64_t count_argmax_differences(const std::vector<float>& got,
                                      const std::vector<float>& want,
                                      std::int64_t cols,
                                      float margin);

}  // namespace halfbyte

#endif  // HALFBYTE_TESTS_GOLDEN_MODEL_SUPPORT_H_
