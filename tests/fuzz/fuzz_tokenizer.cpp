// SPDX-License-Identifier: Apache-2.0
//
// Any text, valid or not: encoding never fails on valid UTF-8, and streaming equals decoding.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

const halfbyte::Tokenizer& tokenizer() {
  static const auto loaded =
      halfbyte::Tokenizer::load(HALFBYTE_SOURCE_DIR "/models/gsm-mini-qwen3moe-nvfp4");
  check(loaded.ok());
  return *loaded.value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto ids = tokenizer().encode({reinterpret_cast<const char*>(data), size});
  if (!ids.ok()) return 0;
  halfbyte::Detokenizer detokenizer(tokenizer(), false);
  std::string streamed;
  for (const std::int32_t id : ids.value())
    streamed += detokenizer.push(id);
  streamed += detokenizer.finish();
  check(streamed == tokenizer().decode(ids.value(), false));
  return 0;
}
