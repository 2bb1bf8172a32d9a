// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_WEIGHTS_FINDINGS_H_
#define HALFBYTE_WEIGHTS_FINDINGS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halfbyte/status.h"

namespace halfbyte {

/// Everything that is wrong with a checkpoint's values, collected so that one message names it all.
/// Equal faults of one layer become one line with a list of experts. Thread-compatible.
class Findings {
 public:
  /// `text` is the tensor, the fault and its remedy: "down_proj.weight_scale_2: absent".
  void add_expert(std::int64_t layer_idx,
                  std::int64_t expert_idx,
                  std::string_view text,
                  StatusCode code = StatusCode::kCorruptData);
  /// A fault that already says where it is.
  void add(std::string line, StatusCode code = StatusCode::kCorruptData);
  /// No effect when ok.
  void add(const Status& status);

  bool empty() const { return by_layer_.empty() && lines_.empty(); }
  std::size_t count() const { return count_; }
  /// Every line in order of layers, none left out, each under its code: "corrupt_data: layer 3:
  /// ...".
  std::vector<std::string> all_lines() const;
  /// Ok when empty; else at most 16 lines, joined by "; ", and a count of the rest, under the code
  /// of the first fault that was added.
  Status to_status() const;

 private:
  struct ExpertFault {
    StatusCode code = StatusCode::kOk;
    std::set<std::int64_t> experts;
  };
  struct Line {
    StatusCode code = StatusCode::kOk;
    std::string text;
  };
  std::vector<Line> lines(std::size_t max_experts) const;

  std::map<std::pair<std::int64_t, std::string>, ExpertFault> by_layer_;
  std::vector<Line> lines_;
  std::size_t count_ = 0;
  StatusCode code_ = StatusCode::kOk;
};

/// What a message lists before it only counts.
inline constexpr std::size_t kMaxListed = 16;

/// "expert 3" or "experts 3, 17-19, 240": at most `max_items` items, then "and 104 more (halfbyte
/// check lists all)".
std::string format_experts(const std::set<std::int64_t>& ids, std::size_t max_items = kMaxListed);

}  // namespace halfbyte

#endif  // HALFBYTE_WEIGHTS_FINDINGS_H_
