// SPDX-License-Identifier: Apache-2.0
//
// What stands behind CheckpointWeights; its functions are spread over the .cpp files of weights/.
#ifndef HALFBYTE_WEIGHTS_CHECKPOINT_IMPL_H_
#define HALFBYTE_WEIGHTS_CHECKPOINT_IMPL_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weights/checkpoint_weights.h"
#include "weights/expert_layer.h"

namespace halfbyte {

/// The notices of one checkpoint, kept for summarize() and handed on. Thread-safe.
class NoticeLog {
 public:
  void add(std::string_view line);
  std::vector<std::string> lines() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

struct CheckpointWeights::Impl {
  std::string directory;
  std::shared_ptr<NoticeLog> notice_log = std::make_shared<NoticeLog>();
  std::shared_ptr<NoticeSink> notices;  // logs, then calls the one that open() was given
  ModelConfig config;
  std::unique_ptr<RawTensors> raw;
  TensorMap map;
  std::unordered_map<std::string, LinearKind> kinds;  // of the modules that are linears
  std::map<std::int64_t, ExpertLayer> layers;         // with routed experts
  std::vector<DraftSummary> drafts;
  std::vector<std::atomic<bool>> consumed;        // by tensor
  std::atomic<std::int64_t> num_scale_bytes = 0;  // seen by check_all_bytes
  std::atomic<std::int64_t> num_saturated_bytes = 0;

  /// Maps and classifies everything; bad values are findings. An error: the directory cannot be
  /// read at all.
  static Result<std::unique_ptr<Impl>> open(const std::string& directory,
                                            bool ignore_index,
                                            std::shared_ptr<NoticeSink> notices,
                                            Findings& findings,
                                            std::string_view config_overrides = {});

  void consume(const RawTensor* tensor);
  void consume(const LinearEntries& entries);
  bool is_consumed(const RawTensor& tensor) const;
  /// "; X has it but is not named by the index: ..." when an unread file holds `name`.
  std::string unread_hint(std::string_view canonical) const;
  Status missing(std::string_view canonical) const;
};

/// A linear's canonical form. Views into the file; block scales and FP8 scales are validated (row
/// and group named). Messages begin with the tensor's short name.
Result<LoadedLinear> load_linear(const LinearEntries& entries, const LinearKind& kind);

/// The format of 16- and 32-bit weights.
WeightFormat wide_format(DType dtype);

/// One projection of one expert; messages end with the file.
Result<LoadedLinear> load_projection(const ExpertLayer& layer,
                                     std::int64_t expert_idx,
                                     Projection projection,
                                     const RawTensors& raw);
/// Its tensors: the expert's own, or the stack that holds it.
const LinearEntries& projection_entries(const ExpertLayer& layer,
                                        std::int64_t expert_idx,
                                        Projection projection);

/// Validates the block scales of an NVFP4 matrix; clears the NaN scales of all-zero blocks into
/// linear.owned_block_scale. `tensor_name` begins the message.
Status check_block_scales(std::string_view tensor_name, LoadedLinear& linear);

/// kCorruptData: an E4M3 NaN among the values of an FP8 linear.
Status check_fp8_values(const LinearEntries& entries, const LinearKind& kind);

/// The tensors with the KV-cache scales of a layer (checkpoints.md 2.3); null: absent.
struct KvScaleTensors {
  const RawTensor* key = nullptr;
  const RawTensor* value = nullptr;
};
KvScaleTensors find_kv_scales(const CheckpointWeights::Impl& impl, std::int64_t layer_idx);

/// kCorruptData: the embedding is tied to the head, but the file has another tensor for the head.
/// The first compares dtype and shape, the second the bytes.
Status check_tied_head_form(const CheckpointWeights::Impl& impl);
Status check_tied_head_bytes(const CheckpointWeights::Impl& impl);

/// Classifies the linears of draft layers by their own tensors; nothing of them is used.
std::vector<DraftSummary> classify_drafts(const CheckpointWeights::Impl& impl);

/// Known and unused: what no path here needs, whether or not it was asked for. Sorted.
std::vector<const RawTensor*> unused_tensors(const CheckpointWeights::Impl& impl);

/// Where two config files differ, takes the one that agrees with the tensors; then compares configs
/// and tensors. Each disagreement is one notice with a count.
void compare_with_config(CheckpointWeights::Impl& impl);

}  // namespace halfbyte

#endif  // HALFBYTE_WEIGHTS_CHECKPOINT_IMPL_H_
