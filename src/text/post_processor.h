// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_POST_PROCESSOR_H_
#define HALFBYTE_TEXT_POST_PROCESSOR_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "halfbyte/result.h"

namespace halfbyte {

/// The special tokens that a tokenizer puts around a text. Immutable; any thread.
class PostProcessor {
 public:
  /// From "post_processor" of a tokenizer.json: null, ByteLevel (which changes no ids),
  /// TemplateProcessing, or a Sequence of these; else kUnsupported.
  static Result<PostProcessor> create(const nlohmann::json& post_processor);

  /// `ids` with the tokens of the templates before and behind them, unless they are there already.
  std::vector<std::int32_t> apply(std::vector<std::int32_t> ids) const;

 private:
  Status add(const nlohmann::json& part);
  Status add_template(const nlohmann::json& part);

  std::vector<std::int32_t> before_;
  std::vector<std::int32_t> behind_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_POST_PROCESSOR_H_
