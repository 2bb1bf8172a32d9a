// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/module_pattern.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "checkpoint/module_path.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace halfbyte {
namespace {

constexpr std::string_view kRegexPrefix = "re:";
// A pattern from a file must not run for minutes: far above what real ones need on a module path.
constexpr std::uint32_t kMatchLimit = 100'000;

struct SetMatch {
  bool matches = false;
  std::size_t length = 0;  // of the set in the glob; 0: not a set, an ordinary "["
};

SetMatch match_set(std::string_view glob, char c) {
  const bool negated = glob.size() > 1 && (glob[1] == '!' || glob[1] == '^');
  const std::size_t begin = negated ? 2 : 1;
  bool found = false;
  for (std::size_t i = begin; i < glob.size(); ++i) {
    if (glob[i] == ']' && i > begin) return {found != negated, i + 1};
    if (i + 2 < glob.size() && glob[i + 1] == '-' && glob[i + 2] != ']') {
      found |= glob[i] <= c && c <= glob[i + 2];
      i += 2;
    } else {
      found |= glob[i] == c;
    }
  }
  return {};
}

/// How many characters of `glob` match the one character `c`; 0: none.
std::size_t match_one(std::string_view glob, char c) {
  if (glob.empty() || glob[0] == '*') return 0;
  if (glob[0] == '?') return 1;
  if (glob[0] == '[') {
    const SetMatch set = match_set(glob, c);
    if (set.length > 0) return set.matches ? set.length : 0;
  }
  return glob[0] == c ? 1 : 0;
}

bool covers(std::string_view container, std::string_view path) {
  return path.starts_with(container) &&
         (path.size() == container.size() || path[container.size()] == '.');
}

}  // namespace

bool glob_matches(std::string_view glob, std::string_view text) {
  std::size_t g = 0, t = 0;
  std::size_t star = std::string_view::npos, retry = 0;
  while (t < text.size()) {
    if (const std::size_t length = match_one(glob.substr(g), text[t]); length > 0) {
      g += length;
      ++t;
    } else if (g < glob.size() && glob[g] == '*') {
      star = g++;
      retry = t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*')
    ++g;
  return g == glob.size();
}

struct ModulePattern::Regex {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  Regex() = default;
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;
  ~Regex() {
    pcre2_code_free(code);
    pcre2_match_context_free(context);
  }
};

ModulePattern::ModulePattern(std::string text, Kind kind) : text_(std::move(text)), kind_(kind) {
  body_ = text_;
  if (kind_ == Kind::kRegex) {
    body_.remove_prefix(kRegexPrefix.size());
  } else {
    body_ = strip_prefix(body_);
  }
}

ModulePattern::~ModulePattern() = default;

Result<std::shared_ptr<const ModulePattern>> ModulePattern::compile(std::string text,
                                                                    PatternDialect dialect) {
  Kind kind = Kind::kExact;
  if (dialect == PatternDialect::kModelOpt) {
    kind = text.find_first_of("*?[") == std::string::npos ? Kind::kContainer : Kind::kGlob;
  } else if (text.starts_with(kRegexPrefix)) {
    kind = Kind::kRegex;
  } else if (text == "Linear") {
    kind = Kind::kLinearClass;
  }
  std::shared_ptr<ModulePattern> pattern(new ModulePattern(std::move(text), kind));
  if (kind != Kind::kRegex) return std::shared_ptr<const ModulePattern>(std::move(pattern));
  int error = 0;
  PCRE2_SIZE position = 0;
  auto regex = std::make_unique<Regex>();
  regex->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern->body_.data()),
                              pattern->body_.size(), PCRE2_ANCHORED, &error, &position, nullptr);
  if (regex->code == nullptr) {
    std::array<PCRE2_UCHAR, 128> reason = {};
    pcre2_get_error_message(error, reason.data(), reason.size());
    return Status(StatusCode::kCorruptData,
                  fmt::format("pattern '{}': {} at character {}", pattern->text_,
                              reinterpret_cast<const char*>(reason.data()), position));
  }
  pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);  // without it, matching is only slower
  regex->context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(regex->context, kMatchLimit);
  pattern->regex_ = std::move(regex);
  return std::shared_ptr<const ModulePattern>(std::move(pattern));
}

bool ModulePattern::matches_regex(std::string_view module) const {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  const int result = pcre2_match(regex_->code, reinterpret_cast<PCRE2_SPTR>(module.data()),
                                 module.size(), 0, 0, data, regex_->context);
  pcre2_match_data_free(data);
  return result >= 0;
}

bool ModulePattern::matches(std::string_view module) const {
  const std::string_view bare = strip_prefix(module);
  switch (kind_) {
    case Kind::kContainer:
      return covers(body_, bare);
    case Kind::kExact:
      return body_ == bare;
    case Kind::kGlob:
      return glob_matches(body_, bare) || glob_matches(text_, module);
    case Kind::kLinearClass:
      return true;
    case Kind::kRegex:
      return matches_regex(module) || (bare.size() != module.size() && matches_regex(bare)) ||
             matches_regex(fmt::format("model.{}", bare));
  }
  return false;
}

}  // namespace halfbyte
