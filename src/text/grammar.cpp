// SPDX-License-Identifier: Apache-2.0
//
// The one file that sees XGrammar. It throws and it warns: both end here, as a Status.
#include "text/grammar.h"

#include <fmt/format.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <variant>

#include "text/reasoning_gate.h"
#include "text/repetitions.h"

namespace halfbyte {
namespace {

// Where warnings of this thread go; null: nowhere.
thread_local std::string* warnings = nullptr;

}  // namespace
}  // namespace halfbyte

// XGrammar's log, as XGRAMMAR_LOG_CUSTOMIZE asks for it: names and parameters are its own.
namespace xgrammar {
// NOLINTBEGIN(readability-identifier-naming)
[[noreturn]] void LogFatalImpl(const std::string& file, int lineno, const std::string& message);
void LogMessageImpl(const std::string& file, int lineno, int level, const std::string& message);

void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string&, int, int, const std::string& message) {
  if (halfbyte::warnings != nullptr && halfbyte::warnings->empty()) *halfbyte::warnings = message;
}
// NOLINTEND(readability-identifier-naming)
}  // namespace xgrammar

namespace halfbyte {
namespace {

// Keeps the first warning while it lives.
class WarningCapture {
 public:
  WarningCapture() { warnings = &text_; }
  ~WarningCapture() { warnings = nullptr; }
  WarningCapture(const WarningCapture&) = delete;
  WarningCapture& operator=(const WarningCapture&) = delete;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// "Check failed: (x) is false: why" -> "why"
std::string_view plain_reason(std::string_view what) {
  constexpr std::string_view kCheck = " is false: ";
  const std::size_t at = what.find(kCheck);
  const bool is_check = what.starts_with("Check failed: ") && at != std::string_view::npos;
  return is_check ? what.substr(at + kCheck.size()) : what;
}

template <typename Call>
Status guarded(StatusCode code, const Call& call) {
  try {
    return call();
  } catch (const std::exception& e) {
    return {code, std::string(plain_reason(e.what()))};
  }
}

// ---- one answer

using Mask = std::vector<std::uint32_t>;  // a bit per token, as of fill_mask()

bool holds(const Mask& mask, std::int32_t token_id) {
  const auto id = static_cast<std::size_t>(token_id);
  return token_id >= 0 && id / 32 < mask.size() && ((mask[id / 32] >> (id % 32)) & 1U) != 0;
}

bool has_controls(std::string_view text) {
  return std::ranges::any_of(text,
                             [](char c) { return c >= 0 && c < ' ' && c != '\n' && c != '\r'; });
}

// Tokens with control characters that do not end lines.
Mask tokens_with_controls(const AnswerVocabulary& vocabulary) {
  Mask mask((vocabulary.tokens.size() + 31) / 32);
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (has_controls(vocabulary.tokens[id])) mask[id / 32] |= std::uint32_t{1} << (id % 32);
  }
  return mask;
}

class GrammarConstraint : public TokenConstraint {
 public:
  GrammarConstraint(const xgrammar::CompiledGrammar& compiled,
                    std::shared_ptr<const ReasoningTokens> tokens,
                    std::shared_ptr<const Mask> forbidden)
      : matcher_(compiled), tokens_(std::move(tokens)), forbidden_(std::move(forbidden)) {}

  Status fill_mask(std::span<std::uint32_t> mask) override {
    return guarded(StatusCode::kInternal, [&]() -> Status {
      if (matcher_.IsTerminated()) {
        allow_ends(mask);
        return {};
      }
      std::int64_t num_words = static_cast<std::int64_t>(mask.size());
      DLTensor tensor = {.data = mask.data(),
                         .device = {kDLCPU, 0},
                         .ndim = 1,
                         .dtype = xgrammar::GetBitmaskDLType(),
                         .shape = &num_words,
                         .strides = nullptr,
                         .byte_offset = 0};
      matcher_.FillNextTokenBitmask(&tensor);
      if (forbidden_ != nullptr) forbid(mask);
      return {};
    });
  }

  Status accept(std::int32_t token_id) override {
    return guarded(StatusCode::kInternal, [&]() -> Status {
      const bool is_taken = matcher_.IsTerminated() ? take_end(token_id) : take(token_id);
      if (is_taken) return {};
      return {StatusCode::kInvalidArgument,
              fmt::format("the grammar does not allow token {} here", token_id)};
    });
  }

  void rollback(int num_tokens) override {
    const int ends = std::min(num_tokens, num_ends_);
    const int others = std::min(num_tokens - ends, num_taken_);
    num_ends_ -= ends;
    num_taken_ -= others;
    if (others > 0) matcher_.Rollback(others);
  }

 private:
  void forbid(std::span<std::uint32_t> mask) const {
    for (std::size_t i = 0; i < forbidden_->size(); ++i) {
      mask[i] &= ~(*forbidden_)[i];
    }
  }

  bool take(std::int32_t token_id) {
    if (forbidden_ != nullptr && holds(*forbidden_, token_id)) return false;
    if (!matcher_.AcceptToken(token_id)) return false;
    ++num_taken_;
    return true;
  }

  // Behind the first end of text, which the matcher takes and no other: with ignore_eos the answer
  // goes on.
  bool take_end(std::int32_t token_id) {
    if (std::ranges::count(tokens_->vocabulary.end_token_ids, token_id) == 0) return false;
    ++num_ends_;
    return true;
  }

  void allow_ends(std::span<std::uint32_t> mask) const {
    std::ranges::fill(mask, 0U);
    for (const std::int32_t id : tokens_->vocabulary.end_token_ids) {
      mask[static_cast<std::size_t>(id) / 32] |= std::uint32_t{1} << (id % 32);
    }
  }

  xgrammar::GrammarMatcher matcher_;
  std::shared_ptr<const ReasoningTokens> tokens_;
  std::shared_ptr<const Mask> forbidden_;  // null: none
  int num_taken_ = 0;                      // by the matcher
  int num_ends_ = 0;                       // behind them
};

// ---- compiling

// Whether XGrammar makes an automaton of a string's pattern. If not it falls back to rules that
// would let a quote or a line break into the string.
bool keeps_strings_whole(const std::string& pattern) {
  const bool is_ascii = std::ranges::all_of(pattern, [](char c) { return c >= ' ' && c <= '~'; });
  if (!is_ascii || count_repetitions(pattern) > kMaxPatternRepetitions) return false;
  std::string quoted;
  for (const char c : pattern) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  const auto grammar = xgrammar::Grammar::FromJSONSchema(
      fmt::format(R"({{"type": "string", "pattern": "{}"}})", quoted));
  return grammar.ToString().find("json_string=true") != std::string::npos;
}

Status check_patterns(const GrammarSource& source) {
  for (const std::string& pattern : source.string_patterns) {
    if (keeps_strings_whole(pattern)) continue;
    return {StatusCode::kUnsupported,
            fmt::format("the \"pattern\" \"{}\" is not supported: want a regular expression in "
                        "ASCII that needs no escapes in a string of JSON and repeats at most {} "
                        "times",
                        pattern, kMaxPatternRepetitions)};
  }
  return {};
}

xgrammar::Grammar structural_tag(const std::string& json) {
  auto made = xgrammar::Grammar::FromStructuralTag(json);
  if (auto* grammar = std::get_if<xgrammar::Grammar>(&made)) return *grammar;
  const std::string what = std::visit([](const auto& error) { return std::string(error.what()); },
                                      std::get<xgrammar::StructuralTagError>(made));
  throw std::runtime_error(what);
}

xgrammar::Grammar grammar_of(const GrammarSource& source) {
  switch (source.kind) {
    case GrammarSource::Kind::kJsonSchema:
      return xgrammar::Grammar::FromJSONSchema(source.text, /*any_whitespace=*/true,
                                               /*indent=*/std::nullopt, /*separators=*/std::nullopt,
                                               /*strict_mode=*/true, kMaxJsonBlanks);
    case GrammarSource::Kind::kRegex:
      return xgrammar::Grammar::FromRegex(source.text);
    case GrammarSource::Kind::kStructuralTag:
      return structural_tag(source.text);
    case GrammarSource::Kind::kEbnf:
      break;
  }
  return xgrammar::Grammar::FromEBNF(source.text);
}

// XGrammar takes the root for a rule that nothing follows: where it refers to itself, tokens that
// go on behind an inner one would be ruled out. Concat() gives it a root that nobody refers to.
xgrammar::CompiledGrammar compile_source(xgrammar::GrammarCompiler& compiler,
                                         const GrammarSource& source) {
  return compiler.CompileGrammar(xgrammar::Grammar::Concat({grammar_of(source)}));
}

}  // namespace

struct Grammar::Impl {
  xgrammar::CompiledGrammar compiled;
  std::shared_ptr<const ReasoningTokens> tokens;
  std::shared_ptr<const Mask> forbidden;  // null: none
};

Grammar::Grammar(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Grammar::~Grammar() = default;

std::unique_ptr<TokenConstraint> Grammar::make_constraint(Reasoning reasoning) const {
  auto content =
      std::make_unique<GrammarConstraint>(impl_->compiled, impl_->tokens, impl_->forbidden);
  if (reasoning == Reasoning::kNone) return content;
  return std::make_unique<ReasoningGate>(impl_->tokens, std::move(content), reasoning);
}

// Its own cache has no bound in entries, and its threads would warn elsewhere: both are off.
struct GrammarCompiler::Impl {
  explicit Impl(AnswerVocabulary vocabulary)
      : tokens(std::make_shared<ReasoningTokens>(std::move(vocabulary))),
        controls(std::make_shared<Mask>(tokens_with_controls(tokens->vocabulary))) {}

  using Entry = std::pair<std::string, std::shared_ptr<const Grammar>>;

  std::shared_ptr<const Grammar> find(const std::string& key);
  void insert(const std::string& key, std::shared_ptr<const Grammar> grammar);
  xgrammar::GrammarCompiler& start();
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSource& source);

  std::shared_ptr<const ReasoningTokens> tokens;
  std::shared_ptr<const Mask> controls;
  std::once_flag started;
  std::optional<xgrammar::GrammarCompiler> compiler;
  std::mutex mutex;        // of the cache
  std::list<Entry> cache;  // the last used first
};

std::shared_ptr<const Grammar> GrammarCompiler::Impl::find(const std::string& key) {
  const std::lock_guard lock(mutex);
  const auto found = std::ranges::find(cache, key, &Entry::first);
  if (found == cache.end()) return nullptr;
  cache.splice(cache.begin(), cache, found);
  return found->second;
}

void GrammarCompiler::Impl::insert(const std::string& key, std::shared_ptr<const Grammar> grammar) {
  const std::lock_guard lock(mutex);
  cache.emplace_front(key, std::move(grammar));
  if (cache.size() > kMaxCached) cache.pop_back();
}

// Sorting a vocabulary takes 70 ms: not before somebody wants a grammar.
xgrammar::GrammarCompiler& GrammarCompiler::Impl::start() {
  std::call_once(started, [this] {
    const xgrammar::TokenizerInfo info(tokens->vocabulary.tokens, xgrammar::VocabType::RAW,
                                       static_cast<int>(tokens->vocabulary.tokens.size()),
                                       tokens->vocabulary.end_token_ids);
    compiler.emplace(info, /*max_threads=*/1, /*cache_enabled=*/false);
  });
  return *compiler;
}

Result<std::shared_ptr<const Grammar>> GrammarCompiler::Impl::compile(const GrammarSource& source) {
  const WarningCapture warning;
  std::shared_ptr<const Grammar> grammar;
  Status status = guarded(StatusCode::kInvalidArgument, [&]() -> Status {
    xgrammar::GrammarCompiler& ready = start();
    HALFBYTE_RETURN_IF_ERROR(check_patterns(source));
    grammar = std::make_shared<const Grammar>(std::make_unique<Grammar::Impl>(Grammar::Impl{
        compile_source(ready, source), tokens, source.forbids_controls ? controls : nullptr}));
    return {};
  });
  if (!status.ok()) return status;
  if (warning.text().empty()) return grammar;
  return Status(StatusCode::kUnsupported,
                fmt::format("a part of it would be left out: {}", warning.text()));
}

GrammarCompiler::GrammarCompiler(AnswerVocabulary vocabulary)
    : impl_(std::make_unique<Impl>(std::move(vocabulary))) {}

GrammarCompiler::~GrammarCompiler() = default;

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const GrammarSource& source) {
  const std::string key = fmt::format("{} {}", static_cast<int>(source.kind), source.text);
  if (auto grammar = impl_->find(key)) return grammar;
  HALFBYTE_ASSIGN_OR_RETURN(auto grammar, impl_->compile(source));
  impl_->insert(key, grammar);
  return grammar;
}

}  // namespace halfbyte
