// SPDX-License-Identifier: Apache-2.0
//
// Answers held to a language: XGrammar behind a plain header.
#ifndef HALFBYTE_TEXT_GRAMMAR_H_
#define HALFBYTE_TEXT_GRAMMAR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "halfbyte/engine.h"
#include "halfbyte/result.h"
#include "text/answer_vocabulary.h"
#include "text/grammar_source.h"
#include "text/reasoning_parser.h"

namespace halfbyte {

/// A language, compiled for one vocabulary. Immutable; any thread.
class Grammar {
 public:
  struct Impl;
  explicit Grammar(std::unique_ptr<Impl> impl);
  ~Grammar();

  /// Holds one answer to the language: from its first token on, or, where there may be reasoning,
  /// from its content on (reasoning_gate.h). When the language has nothing more to say, only the
  /// model's ends of text are allowed, again and again; when nothing can continue the text, the
  /// mask is empty. It shares the grammar and may outlive it.
  std::unique_ptr<TokenConstraint> make_constraint(Reasoning reasoning) const;

 private:
  std::unique_ptr<Impl> impl_;
};

/// Compiles languages for one vocabulary and keeps the last kMaxCached of them. A schema takes 5 to
/// 14 ms for 150,000 tokens, the first one 70 ms more. Any thread; compiling holds up no other.
class GrammarCompiler {
 public:
  static constexpr std::size_t kMaxCached = 64;

  explicit GrammarCompiler(AnswerVocabulary vocabulary);
  ~GrammarCompiler();

  /// @return kInvalidArgument: the source is wrong, and where; kUnsupported: a part of it cannot be
  ///         held to (nothing is left out silently), or this build has no grammars.
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSource& source);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_GRAMMAR_H_
