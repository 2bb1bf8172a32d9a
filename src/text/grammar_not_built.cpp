// SPDX-License-Identifier: Apache-2.0
//
// Stands in for grammar.cpp where HALFBYTE_GRAMMAR is off.
#include <utility>

#include "text/grammar.h"

namespace halfbyte {

struct Grammar::Impl {};

Grammar::Grammar(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Grammar::~Grammar() = default;

std::unique_ptr<TokenConstraint> Grammar::make_constraint(Reasoning) const {
  return nullptr;  // there is no grammar to ask
}

struct GrammarCompiler::Impl {};

// NOLINTNEXTLINE(performance-unnecessary-value-param): the real one keeps it
GrammarCompiler::GrammarCompiler(AnswerVocabulary) {}

GrammarCompiler::~GrammarCompiler() = default;

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const GrammarSource&) {
  return Status(StatusCode::kUnsupported,
                "this halfbyte was built without grammars (-DHALFBYTE_GRAMMAR=OFF): answers cannot "
                "be held to one");
}

}  // namespace halfbyte
