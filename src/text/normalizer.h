// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_NORMALIZER_H_
#define HALFBYTE_TEXT_NORMALIZER_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "halfbyte/result.h"

namespace halfbyte {

/// Unicode normalisation of text before it is split: nothing, or NFC.
class Normalizer {
 public:
  /// From "normalizer" of a tokenizer.json: null, NFC, or a Sequence of these; else kUnsupported.
  static Result<Normalizer> create(const nlohmann::json& normalizer);
  /// The normalised text; empty when `text` (well-formed UTF-8) is normalised already.
  std::optional<std::string> normalize(std::string_view text) const;

 private:
  bool nfc_ = false;
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_NORMALIZER_H_
