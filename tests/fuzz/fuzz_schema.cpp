// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a JSON Schema: what the check lets through, the compiler takes or refuses, and an
// answer can begin.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

// Every byte is a token.
halfbyte::GrammarCompiler& compiler() {
  static halfbyte::GrammarCompiler made([] {
    halfbyte::AnswerVocabulary vocabulary{{""}, {0}};
    for (int byte = 0; byte < 256; ++byte) {
      vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
    }
    return vocabulary;
  }());
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto schema = halfbyte::check_schema({reinterpret_cast<const char*>(data), size});
  if (!schema.ok()) return 0;
  const auto grammar = compiler().compile(halfbyte::schema_source(std::move(schema).value()));
  if (!grammar.ok()) return 0;
  std::vector<std::uint32_t> mask(9);
  check((*grammar)->make_constraint(halfbyte::Reasoning::kNone)->fill_mask(mask).ok());
  return 0;
}
