// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json_text.h"

#include <fmt/format.h>

#include <array>

#include "base/json_error.h"

namespace halfbyte {
namespace {

constexpr std::array<std::string_view, 3> kNotNumbers = {"-Infinity", "Infinity", "NaN"};

/// Past the string literal that starts at `begin`.
std::size_t skip_string(std::string_view text, std::size_t begin) {
  std::size_t i = begin + 1;
  while (i < text.size() && text[i] != '"')
    i += text[i] == '\\' ? 2U : 1U;
  return std::min(i + 1, text.size());
}

std::size_t not_a_number_length(std::string_view rest) {
  for (const std::string_view word : kNotNumbers) {
    if (rest.starts_with(word)) return word.size();
  }
  return 0;
}

std::string replace_not_numbers(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t i = 0;
  while (i < text.size()) {
    if (text[i] == '"') {
      const std::size_t end = skip_string(text, i);
      out.append(text.substr(i, end - i));
      i = end;
    } else if (const std::size_t length = not_a_number_length(text.substr(i)); length > 0) {
      out.append("null");
      i += length;
    } else {
      out.push_back(text[i++]);
    }
  }
  return out;
}

}  // namespace

std::string_view as_text(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<nlohmann::json> parse_config_json(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    return Status(StatusCode::kCorruptData, "not JSON: it contains a zero byte");
  }
  try {
    nlohmann::json json = nlohmann::json::parse(replace_not_numbers(text));
    if (!json.is_object()) {
      return Status(StatusCode::kCorruptData,
                    fmt::format("want a JSON object, got {}", json.type_name()));
    }
    return json;
  } catch (const nlohmann::json::exception& error) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("not JSON: {}", plain_json_error(error.what())));
  }
}

}  // namespace halfbyte
