// SPDX-License-Identifier: Apache-2.0
//
// What stands behind CheckpointWeights; its functions are spread over the .cpp files of weights/.
#ifndef HALFBYTE_WEIGHTS_CHECKPOINT_IMPL_H_
#define HALFBYTE_WEIGHTS_CHECKPOINT_IMPL_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "weights/checkpoint_weights.h"
#include "weights/expert_layer.h"

namespace halfbyte {

struct CheckpointWeights::Impl {
  std::string directory;
  std::shared_ptr<NoticeSink> notices;
  ModelConfig config;
  std::unique_ptr<RawTensors> raw;
  TensorMap map;
  std::unordered_map<std::string, LinearKind> kinds;  // of the modules that are linears
  std::map<std::int64_t, ExpertLayer> layers;         // with routed experts
  std::vector<std::atomic<bool>> consumed;            // by tensor
  std::vector<std::string> notice_lines;              // of opening
  std::atomic<std::int64_t> num_scale_bytes = 0;      // seen by check_all_bytes
  std::atomic<std::int64_t> num_saturated_bytes = 0;

  void consume(const RawTensor* tensor);
  void consume(const LinearEntries& entries);
  bool is_consumed(const RawTensor& tensor) const;
  void notice(std::string key, std::string line);
  /// "; X has it but is not named by the index: ..." when an unread file holds `name`.
  std::string unread_hint(std::string_view canonical) const;
  Status missing(std::string_view canonical) const;
};

/// A linear's canonical form. Views into the file; block scales of NVFP4 are validated (row and
/// group named), scalars too. Messages begin with the tensor's short name.
Result<LoadedLinear> load_linear(const LinearEntries& entries, const LinearKind& kind);

/// Validates the block scales of an NVFP4 matrix; clears the NaN scales of all-zero blocks into
/// linear.owned_block_scale. `tensor_name` begins the message.
Status check_block_scales(std::string_view tensor_name, LoadedLinear& linear);

/// Classifies every module that is a linear and validates its scalars.
void classify_modules(CheckpointWeights::Impl& impl, Findings& findings);

/// Known and unused: what no path here needs, whether or not it was asked for. Sorted.
std::vector<const RawTensor*> unused_tensors(const CheckpointWeights::Impl& impl);

/// Compares configs, index and tensors; each disagreement is one notice with a count.
void compare_with_config(CheckpointWeights::Impl& impl);

}  // namespace halfbyte

#endif  // HALFBYTE_WEIGHTS_CHECKPOINT_IMPL_H_
