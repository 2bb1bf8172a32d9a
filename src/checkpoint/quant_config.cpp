// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quant_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "checkpoint/module_path.h"
#include "checkpoint/module_pattern.h"

namespace halfbyte {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 8> kAlgorithms = {
    "NVFP4", "W4A16_NVFP4", "NVFP4A16", "NVFP4_AWQ", "FP8", "MXFP8", "MXFP4", "MIXED_PRECISION"};
constexpr std::array<std::string_view, 5> kMethods = {"modelopt", "modelopt_fp4",
                                                      "compressed-tensors", "fp8", "mxfp4"};
constexpr std::int64_t kNvfp4GroupSize = 16;
// quant_method -> what it is called.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kRefusedMethods = {
    {{"quark", "Quark"}, {"gptq", "GPTQ"}, {"awq", "AWQ-INT4"}, {"bitsandbytes", "NF4"}}};

Status corrupt(std::string message) {
  return Status(StatusCode::kCorruptData, std::move(message));
}

/// A member, or null when `object` is no object or has no such member.
const json& member(const json& object, std::string_view key) {
  static const json null;
  if (!object.is_object()) return null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

Result<std::string> string_or_empty(const json& object, std::string_view key) {
  const json& value = member(object, key);
  if (value.is_null()) return std::string();
  if (value.is_string()) return value.get<std::string>();
  return corrupt(fmt::format("{}: want a string, got {}", key, value.type_name()));
}

/// What one file, or one object of it, says. An empty field says nothing.
struct Statement {
  QuantPlan plan;
  std::string where;
  bool has_group_size = false;
  bool has_excludes = false;
};

Result<std::string> checked_algorithm(std::string name, std::string_view where) {
  if (name.empty()) return name;
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  if (std::find(kAlgorithms.begin(), kAlgorithms.end(), upper) != kAlgorithms.end()) return upper;
  if (upper == "W4A8_NVFP4_FP8") {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("{}: W4A8_NVFP4_FP8 has blocks of 32 and another global scale", where));
  }
  return Status(StatusCode::kUnsupported,
                fmt::format("{}: quantisation algorithm '{}' is not known; known: {}", where, name,
                            fmt::join(kAlgorithms, ", ")));
}

Status check_method(const std::string& method) {
  for (const auto& [name, title] : kRefusedMethods) {
    if (method == name) {
      return Status(
          StatusCode::kUnsupported,
          fmt::format("quant_method '{}': {} checkpoints are not supported", method, title));
    }
  }
  if (method.empty() || std::find(kMethods.begin(), kMethods.end(), method) != kMethods.end()) {
    return {};
  }
  return Status(StatusCode::kUnsupported, fmt::format("quant_method '{}' is not known; known: {}",
                                                      method, fmt::join(kMethods, ", ")));
}

Status read_group_size(const json& object, Statement& statement) {
  const json& value = member(object, "group_size");
  if (value.is_null() || statement.has_group_size) return {};
  if (!value.is_number_integer()) return corrupt("group_size: want an integer");
  statement.plan.group_size = value.get<std::int64_t>();
  statement.has_group_size = true;
  return {};
}

/// kv_cache_quant_algo, or kv_cache_scheme as an object or a string.
Status read_kv_cache(const json& object, Statement& statement) {
  const json& algo = member(object, "kv_cache_quant_algo");
  const json& scheme = member(object, "kv_cache_scheme");
  const json& named = algo.is_null() ? scheme : algo;
  if (named.is_string()) {
    statement.plan.kv_cache = named.get<std::string>();
  } else if (named.is_object()) {
    const json& bits = member(named, "num_bits");
    const json& type = member(named, "type");
    if (!bits.is_number_integer()) return corrupt("kv_cache_scheme: num_bits: want an integer");
    const bool is_float = type.is_null() || type == "float";
    if (is_float && bits == 8) statement.plan.kv_cache = "FP8";
    if (is_float && bits == 4) statement.plan.kv_cache = "NVFP4";
  } else if (!named.is_null()) {
    return corrupt(
        fmt::format("kv_cache_scheme: want an object or a string, got {}", named.type_name()));
  }
  const std::string& name = statement.plan.kv_cache;
  if (name.empty() || name == "FP8" || name == "NVFP4") return {};
  return Status(StatusCode::kUnsupported, fmt::format("KV-cache format '{}' is not known", name));
}

Status add_patterns(const json& list,
                    std::string_view key,
                    PatternDialect dialect,
                    std::vector<std::shared_ptr<const ModulePattern>>& patterns) {
  if (list.is_null()) return {};
  if (!list.is_array()) return corrupt(fmt::format("{}: want a list", key));
  for (const json& entry : list) {
    if (!entry.is_string()) return corrupt(fmt::format("{}: want strings", key));
    HALFBYTE_ASSIGN_OR_RETURN(auto pattern,
                              ModulePattern::compile(entry.get<std::string>(), dialect));
    patterns.push_back(std::move(pattern));
  }
  return {};
}

Status read_excludes(const json& object, PatternDialect dialect, Statement& statement) {
  for (const std::string_view key : {"ignore", "exclude_modules", "modules_to_not_convert"}) {
    const json& list = member(object, key);
    if (list.is_null() || statement.has_excludes) continue;
    HALFBYTE_RETURN_IF_ERROR(add_patterns(list, key, dialect, statement.plan.excludes));
    statement.has_excludes = true;
  }
  return {};
}

Status read_groups(const json& object, PatternDialect dialect, Statement& statement) {
  const json& groups = member(object, "config_groups");
  if (groups.is_null()) return {};
  if (!groups.is_object()) return corrupt("config_groups: want an object");
  for (const auto& [name, group] : groups.items()) {
    QuantGroup out;
    HALFBYTE_RETURN_IF_ERROR(
        add_patterns(member(group, "targets"), "targets", dialect, out.targets));
    out.has_input_activations = !member(group, "input_activations").is_null();
    const json& weights = member(group, "weights");
    if (member(weights, "num_bits") == 4) {
      HALFBYTE_RETURN_IF_ERROR(read_group_size(weights, statement));
    }
    statement.plan.groups.push_back(std::move(out));
  }
  return {};
}

Status read_layers(const json& object, Statement& statement) {
  const json& layers = member(object, "quantized_layers");
  if (layers.is_null()) return {};
  if (!layers.is_object()) return corrupt("quantized_layers: want an object");
  for (const auto& [name, entry] : layers.items()) {
    HALFBYTE_ASSIGN_OR_RETURN(std::string algorithm, string_or_empty(entry, "quant_algo"));
    HALFBYTE_ASSIGN_OR_RETURN(algorithm, checked_algorithm(algorithm, "quantized_layers: " + name));
    if (algorithm.find("NVFP4") != std::string::npos) {
      HALFBYTE_RETURN_IF_ERROR(read_group_size(entry, statement));
    }
    statement.plan.layers.emplace_back(strip_prefix(name), std::move(algorithm));
  }
  std::sort(statement.plan.layers.begin(), statement.plan.layers.end());
  return {};
}

Status read_block_size(const json& object, Statement& statement) {
  const json& block = member(object, "weight_block_size");
  if (block.is_null()) return {};
  if (!block.is_array() || block.size() != 2 || !block[0].is_number_integer() ||
      !block[1].is_number_integer()) {
    return corrupt("weight_block_size: want two integers");
  }
  statement.plan.weight_block_size = {block[0].get<std::int64_t>(), block[1].get<std::int64_t>()};
  return {};
}

Status read_fields(const json& object, const std::string& method, Statement& statement) {
  statement.plan.is_compressed_tensors = method == "compressed-tensors";
  const PatternDialect dialect = statement.plan.is_compressed_tensors
                                     ? PatternDialect::kCompressedTensors
                                     : PatternDialect::kModelOpt;
  HALFBYTE_ASSIGN_OR_RETURN(std::string algorithm, string_or_empty(object, "quant_algo"));
  HALFBYTE_ASSIGN_OR_RETURN(statement.plan.algorithm, checked_algorithm(algorithm, "quant_algo"));
  HALFBYTE_RETURN_IF_ERROR(read_layers(object, statement));
  HALFBYTE_RETURN_IF_ERROR(read_group_size(object, statement));
  HALFBYTE_RETURN_IF_ERROR(read_groups(object, dialect, statement));
  HALFBYTE_RETURN_IF_ERROR(read_kv_cache(object, statement));
  HALFBYTE_RETURN_IF_ERROR(read_block_size(object, statement));
  return read_excludes(object, dialect, statement);
}

std::string producer_of(const json& object) {
  const json& producer = member(object, "producer");
  const json& name = member(producer, "name");
  const json& version = member(producer, "version");
  if (!name.is_string()) return producer.is_string() ? producer.get<std::string>() : "";
  return version.is_string()
             ? fmt::format("{} {}", name.get<std::string>(), version.get<std::string>())
             : name.get<std::string>();
}

/// Formats that other tools write under a name of their own: named, never guessed at.
Status check_format(const json& object, const std::string& method) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::string format, string_or_empty(object, "format"));
  if (method != "compressed-tensors" || format.empty()) return {};
  if (format.starts_with("nvfp4") || format == "mixed-precision" || format == "dense" ||
      format.starts_with("float") || format.starts_with("naive") || format.starts_with("mxfp")) {
    return {};
  }
  return Status(StatusCode::kUnsupported,
                fmt::format("compressed-tensors format '{}' is not supported; supported: "
                            "nvfp4-pack-quantized, float-quantized, mixed-precision",
                            format));
}

/// `object` is a quantization_config, or the "quantization" of hf_quant_config.json; `outer` holds
/// it.
Result<Statement> read_statement(const json& object, const json& outer, std::string where) {
  Statement statement;
  statement.where = std::move(where);
  HALFBYTE_ASSIGN_OR_RETURN(std::string method, string_or_empty(object, "quant_method"));
  if (method.empty()) {
    HALFBYTE_ASSIGN_OR_RETURN(method, string_or_empty(outer, "quant_method"));
  }
  HALFBYTE_RETURN_IF_ERROR(check_method(method));
  HALFBYTE_RETURN_IF_ERROR(check_format(object, method));
  HALFBYTE_RETURN_IF_ERROR(read_fields(object, method, statement));
  statement.plan.producer = producer_of(object);
  if (statement.plan.producer.empty()) statement.plan.producer = producer_of(outer);
  if (statement.plan.producer.empty()) statement.plan.producer = method;
  if (statement.plan.algorithm.empty() && method == "fp8") statement.plan.algorithm = "FP8";
  return statement;
}

/// Every object that describes quantisation, in order of preference.
Status collect(const json& config, const std::string& file, std::vector<Statement>& statements) {
  for (const std::string_view outer_key : {"", "text_config"}) {
    const json& outer = outer_key.empty() ? config : member(config, outer_key);
    for (const std::string_view key :
         {"quantization_config", "compression_config", "quantization"}) {
      const json& object = member(outer, key);
      if (object.is_null()) continue;
      const std::string where = fmt::format("{}: {}", file, key);
      if (!object.is_object()) return corrupt(where + ": want an object");
      // MiniMax-M3 nests the ModelOpt object once more.
      const json& nested = member(object, "quantization");
      auto statement = nested.is_object() ? read_statement(nested, object, where)
                                          : read_statement(object, outer, where);
      if (!statement.ok()) return statement.take_status().with_context(where);
      statements.push_back(std::move(statement).value());
    }
  }
  return {};
}

// Nothing in the tensors tells KV-cache formats apart: the first stands.
void merge_kv_cache(Statement& into, const Statement& from, NoticeSink& notices) {
  std::string& kept = into.plan.kv_cache;
  const std::string& other = from.plan.kv_cache;
  if (kept.empty()) {
    kept = other;
  } else if (!other.empty() && other != kept) {
    notices.notice("quant config KV cache",
                   fmt::format("the KV-cache format is {} in {} but {} in {}: the first is taken",
                               kept, into.where, other, from.where));
  }
}

// Of two sizes only NVFP4's can agree with NVFP4 tensors, whose shapes are checked against it.
void merge_group_size(Statement& into, const Statement& from, NoticeSink& notices) {
  if (!from.has_group_size) return;
  std::int64_t& kept = into.plan.group_size;
  const std::int64_t other = from.plan.group_size;
  if (into.has_group_size && other != kept) {
    const std::int64_t taken = other == kNvfp4GroupSize ? other : kept;
    notices.notice("quant config group_size",
                   fmt::format("group_size is {} in {} but {} in {}: {} is taken", kept, into.where,
                               other, from.where, taken));
    kept = taken;
  } else {
    kept = other;
  }
  into.has_group_size = true;
}

/// Takes what is not stated yet; what is stated otherwise stays for the tensors to judge.
void merge_algorithms(Statement& into, Statement& from) {
  QuantAlternative other;
  const auto merge_field = [](auto& kept, auto& stated, auto& differing) {
    if (kept.empty()) {
      kept = std::move(stated);
    } else if (!stated.empty() && stated != kept) {
      differing = std::move(stated);
    }
  };
  merge_field(into.plan.algorithm, from.plan.algorithm, other.algorithm);
  merge_field(into.plan.layers, from.plan.layers, other.layers);
  if (into.plan.alternative || (other.algorithm.empty() && other.layers.empty())) return;
  other.where = from.where;
  into.plan.alternative = std::make_shared<const QuantAlternative>(std::move(other));
}

void merge(Statement& into, Statement& from, NoticeSink& notices) {
  merge_algorithms(into, from);
  merge_kv_cache(into, from, notices);
  merge_group_size(into, from, notices);
  if (into.plan.producer.empty()) into.plan.producer = from.plan.producer;
  if (into.plan.groups.empty()) into.plan.groups = std::move(from.plan.groups);
  if (!into.has_excludes) {
    into.plan.excludes = std::move(from.plan.excludes);
    into.has_excludes = from.has_excludes;
  }
  if (into.plan.weight_block_size.empty()) {
    into.plan.weight_block_size = std::move(from.plan.weight_block_size);
  }
  into.plan.is_compressed_tensors |= from.plan.is_compressed_tensors;
}

}  // namespace

Result<QuantPlan> read_quant_plan(const json& config,
                                  const json& hf_quant_config,
                                  NoticeSink& notices) {
  std::vector<Statement> statements;
  HALFBYTE_RETURN_IF_ERROR(collect(config, "config.json", statements));
  HALFBYTE_RETURN_IF_ERROR(collect(hf_quant_config, "hf_quant_config.json", statements));
  if (statements.empty()) return QuantPlan();
  for (std::size_t i = 1; i < statements.size(); ++i) {
    merge(statements[0], statements[i], notices);
  }
  return std::move(statements[0].plan);
}

}  // namespace halfbyte
