// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_REASONING_GATE_H_
#define HALFBYTE_TEXT_REASONING_GATE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/engine.h"
#include "text/answer_vocabulary.h"
#include "text/reasoning_parser.h"

namespace halfbyte {

/// What the tokens of a vocabulary are to reasoning. Immutable; any thread.
struct ReasoningTokens {
  explicit ReasoningTokens(AnswerVocabulary given);

  AnswerVocabulary vocabulary;
  std::vector<std::uint32_t> inside;   // mask of what may stand in it, as of fill_mask()
  std::vector<std::int32_t> opens;     // <think>
  std::vector<std::int32_t> newlines;  // nothing but newlines
  std::vector<std::int32_t> closers;   // an end of </think>, and content behind it
};

/// Lets an answer reason as it likes, then holds what follows to a constraint: what ReasoningParser
/// calls content is what the constraint is asked about.
///
/// Inside the reasoning every token of text is allowed but one that closes it and goes on, and no
/// end of text: the content has yet to come. An answer that may begin with reasoning does so with
/// <think> as one token, or begins with content. Behind </think> come at most kMaxNewlineTokens of
/// newlines alone, which are no content. Thread rule: one thread.
class ReasoningGate : public TokenConstraint {
 public:
  static constexpr int kMaxNewlineTokens = 4;

  ReasoningGate(std::shared_ptr<const ReasoningTokens> tokens,
                std::unique_ptr<TokenConstraint> content,
                Reasoning start);

  Status fill_mask(std::span<std::uint32_t> mask) override;
  Status accept(std::int32_t token_id) override;
  void rollback(int num_tokens) override;

 private:
  enum class Phase { kMayBegin, kInside, kAfter, kContent };

  std::string_view text_of(std::int32_t token_id) const;
  bool takes(std::int32_t token_id) const;
  Status take(std::int32_t token_id);
  Status take_reasoning(std::string_view text);
  void restart();
  void allow_reasoning(std::span<std::uint32_t> mask) const;

  std::shared_ptr<const ReasoningTokens> tokens_;
  std::unique_ptr<TokenConstraint> content_;
  Reasoning start_;
  Phase phase_ = Phase::kContent;
  std::string held_;                      // end of the reasoning that could begin </think>
  int num_newline_tokens_ = 0;            // behind </think>
  std::vector<std::int32_t> own_tokens_;  // accepted before the content
  int num_content_tokens_ = 0;            // accepted by content_
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_REASONING_GATE_H_
