// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/config_reader.h"

namespace halfbyte {
namespace {

using nlohmann::json;

bool is_filled_object(const json* value) {
  return value != nullptr && value->is_object() && !value->empty();
}

/// The object with the settings: rope_scaling when it says anything, else rope_parameters, else {}.
json choose_settings(ConfigReader& reader, NoticeSink& notices) {
  const json* scaling = reader.find({"rope_scaling"});
  const json* parameters = reader.find({"rope_parameters"});
  if (is_filled_object(scaling)) {
    if (is_filled_object(parameters) && *scaling != *parameters) {
      notices.notice("rope spellings",
                     "config.json: rope_scaling and rope_parameters differ: the first is taken");
    }
    return *scaling;
  }
  if (!is_filled_object(parameters)) return json::object();
  // One object per kind of layer (Gemma-4 and others); v1 runs models with full attention only.
  const auto full = parameters->find("full_attention");
  return full != parameters->end() && full->is_object() ? *full : *parameters;
}

void read_type(ConfigReader& inner, ConfigReader& reader, RopeConfig& rope) {
  std::string type = "default";
  inner.optional({"rope_type", "type"}, type);
  if (type == "linear") {
    rope.type = RopeType::kLinear;
  } else if (type == "yarn") {
    rope.type = RopeType::kYarn;
  } else if (type != "default") {
    reader.unsupported(fmt::format("rope_type '{}'; supported: default, linear, yarn", type));
  }
}

void read_yarn(ConfigReader& inner, const ModelConfig& config, RopeConfig& rope) {
  inner.optional({"original_max_position_embeddings"}, rope.original_max_position_embeddings);
  if (rope.original_max_position_embeddings == 0) {
    rope.original_max_position_embeddings = config.max_position_embeddings;
  }
  if (inner.find({"factor"}) == nullptr && rope.original_max_position_embeddings > 0) {
    rope.factor = static_cast<double>(config.max_position_embeddings) /
                  static_cast<double>(rope.original_max_position_embeddings);
  }
  inner.optional({"beta_fast"}, rope.beta_fast);
  inner.optional({"beta_slow"}, rope.beta_slow);
  if (rope.beta_fast == 0.0) rope.beta_fast = 32.0;
  if (rope.beta_slow == 0.0) rope.beta_slow = 1.0;
  inner.optional({"mscale"}, rope.mscale);
  inner.optional({"mscale_all_dim"}, rope.mscale_all_dim);
  inner.optional({"attention_factor"}, rope.attention_factor);
  inner.optional({"truncate"}, rope.truncate);
}

}  // namespace

void read_rope(ConfigReader& reader, ModelConfig& config, NoticeSink& notices) {
  const json settings = choose_settings(reader, notices);
  ConfigReader inner(settings, reader.strict());
  RopeConfig& rope = config.rope;
  read_type(inner, reader, rope);
  reader.optional({"rope_theta"}, rope.theta);
  inner.optional({"rope_theta"}, rope.theta);
  reader.optional({"partial_rotary_factor"}, rope.partial_rotary_factor);
  inner.optional({"partial_rotary_factor"}, rope.partial_rotary_factor);
  std::int64_t rotary_dim = 0;
  reader.optional({"rotary_dim"}, rotary_dim);
  if (rotary_dim > 0 && config.head_dim > 0) {
    rope.partial_rotary_factor =
        static_cast<double>(rotary_dim) / static_cast<double>(config.head_dim);
  }
  inner.optional({"factor"}, rope.factor);
  if (rope.type == RopeType::kYarn) read_yarn(inner, config, rope);
  if (!inner.ok()) {
    reader.fail(fmt::format("rotary settings: {}", inner.take_status().message()));
  }
  if (reader.strict() && (!(rope.theta > 0.0) || !(rope.factor > 0.0))) {
    reader.fail(fmt::format("rotary settings: want rope_theta and factor > 0, got {} and {}",
                            rope.theta, rope.factor));
  }
}

}  // namespace halfbyte
