// SPDX-License-Identifier: Apache-2.0
#include "text/normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "text/utf8.h"

namespace halfbyte {
namespace {

using nlohmann::json;

// Characters that NFC leaves alone whatever stands beside them. Only a fast path: others take the
// whole algorithm.
bool is_inert(char32_t c) {
  return c < 0x300 || (c >= 0x410 && c <= 0x44F) || (c >= 0x3000 && c <= 0x3030) ||
         (c >= 0x4E00 && c <= 0x9FA5);
}

bool is_normalized(std::string_view text) {
  while (!text.empty()) {
    if (!is_inert(take_code_point(text))) return false;
  }
  return true;
}

}  // namespace

Result<Normalizer> Normalizer::create(const json& normalizer) {
  Normalizer result;
  if (normalizer.is_null()) return result;
  const std::string type = normalizer.value("type", "");
  if (type == "NFC") {
    result.nfc_ = true;
    return result;
  }
  if (type != "Sequence") return Status(StatusCode::kUnsupported, "normalizer " + type);
  for (const json& part : normalizer.value("normalizers", json::array())) {
    if (part.value("type", "") != "NFC") {
      return Status(StatusCode::kUnsupported, "normalizer Sequence with " + part.dump());
    }
    result.nfc_ = true;
  }
  return result;
}

std::optional<std::string> Normalizer::normalize(std::string_view text) const {
  if (!nfc_ || is_normalized(text)) return std::nullopt;
  utf8proc_uint8_t* raw = nullptr;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto length =
      utf8proc_map(bytes, static_cast<utf8proc_ssize_t>(text.size()), &raw, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(raw, &std::free);
  if (length < 0) return std::nullopt;  // out of memory: the text is well-formed
  return std::string(reinterpret_cast<const char*>(raw), static_cast<std::size_t>(length));
}

}  // namespace halfbyte
