// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_PRE_TOKENIZER_H_
#define HALFBYTE_TEXT_PRE_TOKENIZER_H_

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "halfbyte/result.h"
#include "text/pattern.h"

namespace halfbyte {

/// Cuts text into the pieces that BPE works on. Immutable; any thread.
class PreTokenizer {
 public:
  /// From "pre_tokenizer" of a tokenizer.json: ByteLevel, or a Sequence of Split (behavior
  /// Isolated) that ends in ByteLevel; else kUnsupported.
  static Result<PreTokenizer> create(const nlohmann::json& pre_tokenizer);

  /// Appends the pieces of `text` (well-formed UTF-8).
  Status split(std::string_view text, std::vector<std::string_view>& pieces) const;
  /// True when a text that does not begin with a space gets one.
  bool add_prefix_space() const { return add_prefix_space_; }

 private:
  Status add(const nlohmann::json& part);

  std::vector<Pattern> patterns_;
  bool add_prefix_space_ = false;
  bool has_byte_level_ = false;
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_PRE_TOKENIZER_H_
