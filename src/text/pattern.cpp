// SPDX-License-Identifier: Apache-2.0
#include "text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <utility>

namespace halfbyte {
namespace {

constexpr std::string_view kWhiteSpace = "\\p{Z}\\t-\\r\\x{85}";
// The complement, as ranges: a negated set cannot be written inside another.
constexpr std::string_view kNotWhiteSpace =
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}"
    "\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-"
    "\\x{10FFFF}";

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

Status translate_escape(char c, bool in_class, std::string& out) {
  constexpr std::string_view kDifferent = "hHwWbBRXKG";
  if (kDifferent.find(c) != std::string_view::npos) {
    return {StatusCode::kUnsupported, fmt::format("\\{} in the regex", c)};
  }
  if (c != 's' && c != 'S') {
    out += {'\\', c};
    return {};
  }
  const std::string_view set = c == 's' ? kWhiteSpace : kNotWhiteSpace;
  out += in_class ? std::string(set) : fmt::format("[{}]", set);
  return {};
}

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

}  // namespace

Result<std::string> translate_regex(std::string_view regex) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\' && i + 1 < regex.size()) {
      HALFBYTE_RETURN_IF_ERROR(translate_escape(regex[++i], in_class, out));
      continue;
    }
    if (in_class && (c == '[' || regex.substr(i, 2) == "&&")) {
      return Status(StatusCode::kUnsupported, "a character class inside another in the regex");
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

struct Pattern::Code {
  pcre2_code* compiled = nullptr;
  explicit Code(pcre2_code* code) : compiled(code) {}
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(compiled); }
};

Pattern::Pattern(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Result<Pattern> Pattern::create(std::string_view source, bool is_literal) {
  const std::uint32_t options =
      is_literal ? PCRE2_UTF | PCRE2_LITERAL : PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                                   options, &error, &offset, nullptr);
  if (code == nullptr) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("the regex: {} at offset {}", error_text(error), offset));
  }
  pcre2_jit_compile(code,
                    PCRE2_JIT_COMPLETE);  // without it, the interpreter gives the same matches
  return Pattern(std::make_unique<Code>(code));
}

Result<Pattern> Pattern::compile(std::string_view regex) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::string translated, translate_regex(regex));
  return create(translated, false);
}

Result<Pattern> Pattern::literal(std::string_view text) {
  return create(text, true);
}

Status Pattern::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const MatchData match(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t taken = 0;
  std::size_t from = 0;
  while (from < text.size()) {
    std::uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int count =
        pcre2_match(code_->compiled, subject, text.size(), from, options, match.get(), nullptr);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its state on the heap
      options |= PCRE2_NO_JIT;
      count =
          pcre2_match(code_->compiled, subject, text.size(), from, options, match.get(), nullptr);
    }
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return {StatusCode::kUnsupported,
              fmt::format("the tokenizer's regex fails on this text: {}", error_text(count))};
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    if (range[0] > taken) pieces.push_back(text.substr(taken, range[0] - taken));
    pieces.push_back(text.substr(range[0], range[1] - range[0]));
    taken = from = range[1];
  }
  if (taken < text.size()) pieces.push_back(text.substr(taken));
  return {};
}

}  // namespace halfbyte
