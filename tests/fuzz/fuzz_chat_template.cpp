// SPDX-License-Identifier: Apache-2.0
//
// A template, then a zero byte and its variables: neither may crash, hang or leak.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  const auto parsed = halfbyte::ChatTemplate::parse(input.substr(0, zero));
  if (!parsed.ok()) return 0;
  const bool has_variables = zero != std::string_view::npos;
  const auto rendered =
      parsed.value()->render(has_variables ? input.substr(zero + 1)
                                           : R"({"messages": [{"role": "user", "content": "a"}]})");
  (void)rendered.ok();
  return 0;
}
