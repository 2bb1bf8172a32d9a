// SPDX-License-Identifier: Apache-2.0
//
// The text side of the shipped model, and what requests to such a model may ask for.
#ifndef HALFBYTE_TESTS_UNIT_SERVER_SHIPPED_TEXT_H_
#define HALFBYTE_TESTS_UNIT_SERVER_SHIPPED_TEXT_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "server/generation_request.h"
#include "server/model_text.h"

namespace halfbyte::server {

inline std::unique_ptr<ModelText> load_text(const TextOptions& options = {}) {
  auto text = ModelText::load(std::string(HALFBYTE_SOURCE_DIR) + "/models/gsm-mini-qwen3moe-nvfp4",
                              options);
  EXPECT_TRUE(text.ok()) << text.status().to_string();
  return std::move(text).value();
}

inline const ModelText& model_text() {
  static const std::unique_ptr<ModelText> text = load_text();
  return *text;
}

inline const Tokenizer& tokenizer() {
  return model_text().tokenizer();
}

inline RequestScope scope_of(const ModelText& text, std::int64_t context_tokens) {
  return {.text = &text,
          .model_names = {"first", "second"},
          .vocab_size = 2048,
          .context_tokens = context_tokens,
          .random_seed = [] { return 77; }};
}

}  // namespace halfbyte::server

#endif  // HALFBYTE_TESTS_UNIT_SERVER_SHIPPED_TEXT_H_
