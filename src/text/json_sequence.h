// SPDX-License-Identifier: Apache-2.0
//
// A member of tokenizer.json that is one part, or a Sequence of them.
#ifndef HALFBYTE_TEXT_JSON_SEQUENCE_H_
#define HALFBYTE_TEXT_JSON_SEQUENCE_H_

#include <nlohmann/json.hpp>

namespace halfbyte {

/// The parts that a Sequence has under `key`, or `member` itself.
inline nlohmann::json sequence_parts(const nlohmann::json& member, const char* key) {
  const bool is_sequence = member.is_object() && member.value("type", "") == "Sequence";
  return is_sequence ? member.value(key, nlohmann::json::array()) : nlohmann::json::array({member});
}

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_JSON_SEQUENCE_H_
