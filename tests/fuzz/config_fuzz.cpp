// SPDX-License-Identifier: Apache-2.0
//
// Whatever the text, config.json is read or refused, and an accepted one can answer.
#include "checkpoint/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  halfbyte::NoticeSink notices;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // One file, or config.json and hf_quant_config.json around a line of its own.
  const std::size_t cut = text.find("\n%%\n");
  const std::string_view config = text.substr(0, cut);
  const std::string_view quant = cut == std::string_view::npos ? "{}" : text.substr(cut + 4);
  const auto read = halfbyte::parse_model_config(config, "{}", quant, notices);
  if (!read.ok()) return 0;
  halfbyte::is_moe_layer(*read, 3);
  const std::string_view module = "model.layers.3.mlp.experts.12.down_proj";
  read->quant.excludes_module(module);
  read->quant.declares_activation_quantization(module);
  return 0;
}
