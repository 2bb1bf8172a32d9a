// SPDX-License-Identifier: Apache-2.0
//
// The text side of the shipped model.
#ifndef HALFBYTE_TESTS_UNIT_SERVER_SHIPPED_TEXT_H_
#define HALFBYTE_TESTS_UNIT_SERVER_SHIPPED_TEXT_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

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

}  // namespace halfbyte::server

#endif  // HALFBYTE_TESTS_UNIT_SERVER_SHIPPED_TEXT_H_
