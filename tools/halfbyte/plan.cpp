// SPDX-License-Identifier: Apache-2.0
//
// `halfbyte plan MODEL`: what serve with the same options would do, from config.json alone.
#include "moe/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "command.h"
#include "engine/quantization.h"
#include "engine/sizing.h"
#include "model/model.h"
#include "moe/compatibility.h"
#include "serve_options.h"

namespace halfbyte::tool {
namespace {

struct PlanOptions {
  ServeOptions serve;
  TokenBudgetOptions budget;
  std::string device_profile = "cpu";
  bool json = false;
};

struct Profile {
  std::string_view name;
  DeviceLimits limits;
};

// Vendors' figures: multiprocessors, and shared memory that one block may use.
std::vector<Profile> profiles() {
  DeviceLimits cpu;
  cpu.num_threads = usable_cores();
  const Device gpu = {DeviceKind::kCuda, 0};
  return {{"cpu", cpu},
          {"h200", {gpu, 90, 132, 227 * 1024, 0}},
          {"b200", {gpu, 100, 148, 227 * 1024, 0}}};
}

DeviceLimits limits_of(std::string_view name) {
  for (const Profile& profile : profiles()) {
    if (profile.name == name) return profile.limits;
  }
  exit_on_error(Status(StatusCode::kInvalidArgument,
                       fmt::format("--device-profile is \"{}\", want cpu, h200 or b200", name)));
  return {};
}

// What config.json says of the experts; their tensors would decide, but none is read here.
WeightFormat declared_expert_format(const QuantPlan& quant) {
  if (quant.algorithm.empty() && quant.layers.empty()) return WeightFormat::kBf16;
  return quant.algorithm == "FP8" ? WeightFormat::kFp8 : WeightFormat::kNvfp4;
}

// Of the last layer's experts: where layers differ, the dense ones are the first.
MoeSpec declared_layer(const ModelConfig& config, const ModelOptions& model) {
  MoeSpec spec = moe_spec_of(config, declared_expert_format(config.quant), model);
  spec.declares_activation_quantization =
      config.quant
          .declares_activation_quantization(
              fmt::format("model.layers.{}.mlp.experts.0.down_proj", config.num_hidden_layers - 1))
          .value_or(false);
  return spec;
}

std::int64_t num_moe_layers(const ModelConfig& config) {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (is_moe_layer(config, layer)) ++count;
  }
  return count;
}

// A profile of a GPU asks for its backend, so that the answer is about that device and never a plan
// for the host's.
void name_profile_backend(const DeviceLimits& limits, MoeOptions& moe) {
  if (limits.compute_capability == 0 || moe.runner_backend != "auto") return;
  moe.runner_backend = limits.compute_capability >= 100 ? "cuda_sm100" : "cuda_sm90";
}

void add_workspace_part(std::string_view part,
                        std::size_t offset,
                        const WorkspaceLayout& layout,
                        nlohmann::ordered_json& map) {
  for (const WorkspaceLayout::Entry& entry : layout.entries()) {
    map.push_back({{"name", fmt::format("{}/{}", part, entry.name)},
                   {"offset", offset + entry.offset},
                   {"bytes", entry.bytes}});
  }
}

nlohmann::ordered_json workspace_map(const MoePlan& plan) {
  auto map = nlohmann::ordered_json::array();
  add_workspace_part("dispatch", plan.dispatch_workspace_offset, plan.dispatch.workspace, map);
  add_workspace_part("experts", plan.expert_workspace_offset, plan.experts.workspace, map);
  for (const WorkspaceLayout::Entry& entry : plan.workspace.entries()) {
    if (entry.name == "dispatch" || entry.name == "experts") continue;  // in parts, above
    map.push_back({{"name", entry.name}, {"offset", entry.offset}, {"bytes", entry.bytes}});
  }
  return map;
}

nlohmann::ordered_json budget_json(const TokenBudget& budget) {
  nlohmann::ordered_json json;
  json["max_tokens_per_rank"] = budget.max_tokens_per_rank;
  json["max_decode_tokens_per_rank"] = budget.max_decode_tokens_per_rank;
  json["max_dispatch_tokens_per_rank"] = budget.max_dispatch_tokens_per_rank;
  json["capacity_tokens"] = budget.capacity_tokens;
  json["max_forward_tokens"] = budget.max_forward_tokens;
  return json;
}

void add_layer_json(const MoePlan& plan, nlohmann::ordered_json& json) {
  json["transport"] = plan.transport;
  json["backend"] = plan.experts.backend;
  json["dispatcher"] = plan.dispatch.dispatcher;
  json["activation_mode"] = activation_mode_name(plan.experts.mode);
  json["x_format"] = plan.experts.x_format;
  json["h_format"] = plan.experts.h_format;
  json["row_dtype"] = dtype_name(plan.experts.row_dtype);
  json["payload"] = payload_name(plan.dispatch.payload);
  json["dispatch_bytes_per_token"] = plan.dispatch.dispatch_bytes_per_token;
  json["combine_bytes_per_token"] = plan.dispatch.combine_bytes_per_token;
  json["workspace"] = workspace_map(plan);
}

// Of the engine on this machine, as it is now.
struct CachePlan {
  std::int64_t bytes_per_token = 0;
  std::int64_t tokens_per_rank = 0;
  std::int64_t bytes = 0;            // of all ranks
  std::int64_t available_bytes = 0;  // 0: unknown
};

CachePlan plan_kv_cache(const EngineOptions& options,
                        const ModelConfig& config,
                        const TokenBudget& budget,
                        const MoeOptions& moe) {
  value_or_exit(decide_context(options.max_context_tokens, config.max_position_embeddings));
  if (options.static_memory_fraction > 0.0 && weight_file_bytes(options.model_path) == 0) {
    exit_on_error(
        {StatusCode::kNotFound,
         fmt::format("{}: no .safetensors files, whose size --mem-fraction-static counts: "
                     "give --max-total-tokens instead",
                     options.model_path)});
  }
  const int num_ranks = std::max(moe.tp_size, 1);
  const SchedulerLimits limits = decide_limits(options, budget, std::max(moe.dp_size, 1));
  const KvCacheSizing sizing = kv_cache_sizing(options, config, limits, num_ranks);
  const std::int64_t num_blocks = value_or_exit(decide_kv_blocks(sizing));
  return {sizing.bytes_per_block / kKvBlockTokens, num_blocks * kKvBlockTokens,
          sizing.bytes_per_block * num_blocks * num_ranks, sizing.available_bytes};
}

// Everything that is known once the budget is; `plan` is null when no backend of this build makes
// one, `reason` then says why.
struct Answer {
  const ModelConfig& config;
  const MoeOptions& moe;
  const TokenBudget& budget;
  const MoePlan* plan;
  std::string reason;
  const CachePlan& kv_cache;
};

nlohmann::ordered_json to_json(const Answer& answer, std::string_view profile) {
  nlohmann::ordered_json json = {{"model", answer.config.architecture},
                                 {"device_profile", profile}};
  json.update(budget_json(answer.budget));
  json["tp_size"] = answer.moe.tp_size;
  json["ep_size"] = answer.moe.ep_size;
  json["dp_size"] = answer.moe.dp_size;
  const std::int64_t layers = num_moe_layers(answer.config);
  nlohmann::ordered_json memory = {{"num_moe_layers", layers},
                                   {"kv_cache_bytes_per_token", answer.kv_cache.bytes_per_token},
                                   {"kv_cache_tokens_per_rank", answer.kv_cache.tokens_per_rank},
                                   {"kv_cache_bytes", answer.kv_cache.bytes},
                                   {"available_bytes", answer.kv_cache.available_bytes}};
  if (answer.plan != nullptr) {
    add_layer_json(*answer.plan, json);
    json["log"] = answer.plan->log;
    memory["expert_weights_bytes"] = layers * answer.plan->experts.prepared_bytes;
    memory["workspace_bytes"] = answer.plan->workspace.total_bytes();
  } else {
    json["backend"] = answer.moe.runner_backend;
    json["cannot_run"] = answer.reason;
    json["workspace"] = nlohmann::ordered_json::array();
  }
  json["memory"] = std::move(memory);
  return json;
}

void print_text(const Answer& answer, std::string_view profile) {
  const TokenBudget& budget = answer.budget;
  fmt::print("model: {} for {}\n", answer.config.architecture, profile);
  const std::int64_t decode = budget.max_decode_tokens_per_rank;  // 0: not bounded by options
  fmt::print("tokens of one forward on a rank: {} at most{}\n", budget.max_tokens_per_rank,
             decode > 0 ? fmt::format(", {} in a decode step", decode) : "");
  fmt::print(
      "tokens one rank may dispatch: {}; entering the experts: {}; the scheduler forms: {}\n",
      budget.max_dispatch_tokens_per_rank, budget.capacity_tokens, budget.max_forward_tokens);
  const std::int64_t layers = num_moe_layers(answer.config);
  if (answer.plan != nullptr) {
    for (const std::string& line : answer.plan->log)
      fmt::print("{}\n", line);
    fmt::print("{}", describe(*answer.plan));
    fmt::print("memory of a rank: {} bytes of experts in {} layers, {} bytes of workspace\n",
               layers * answer.plan->experts.prepared_bytes, layers,
               answer.plan->workspace.total_bytes());
  } else {
    fmt::print("backend: {}\n", answer.reason);
  }
  const CachePlan& cache = answer.kv_cache;
  fmt::print(
      "KV cache: {} bytes a token; {} tokens on a rank, {} bytes in all, of the {} that are "
      "available here\n",
      cache.bytes_per_token, cache.tokens_per_rank, cache.bytes, cache.available_bytes);
}

void run_plan(const PlanOptions& options) {
  NoticeSink notices(print_notice);
  const EngineOptions& engine = options.serve.engine;
  for (const std::string& line : options.serve.notices)
    print_notice(line);
  const DeviceLimits limits = limits_of(options.device_profile);
  const ModelConfig config =
      value_or_exit(read_model_config(engine.model_path, notices, engine.config_overrides));
  exit_on_error(check_quantization(engine.quantization, config.quant));
  ModelOptions model;
  model.dtype = engine.dtype;
  const MoeSpec spec = declared_layer(config, model);
  MoeOptions moe =
      value_or_exit(resolve_options(spec, engine.moe, notices, limits.compute_capability));
  const TokenBudget budget =
      value_or_exit(make_token_budget(budget_options(options.budget, engine, moe)));
  const CachePlan kv_cache = plan_kv_cache(engine, config, budget, moe);
  moe.capacity_tokens = moe.a2a_backend == "all_to_all" ? budget.max_dispatch_tokens_per_rank
                                                        : budget.max_tokens_per_rank;
  name_profile_backend(limits, moe);
  NoticeSink silent;  // the plan has its log
  auto plan = make_moe_plan(spec, moe, limits, moe.tp_size, 0, silent);
  const bool absent_device = limits.compute_capability != 0;
  if (!plan.ok() && !absent_device) exit_on_error(plan.status());
  const Answer answer = {config,
                         moe,
                         budget,
                         plan.ok() ? &plan.value() : nullptr,
                         plan.ok() ? "" : std::string(plan.status().message()),
                         kv_cache};
  if (options.json) return print_json(to_json(answer, options.device_profile));
  print_text(answer, options.device_profile);
}

}  // namespace

void add_plan(CLI::App& app) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand(
      "plan",
      "print what serve with the same options would do; reads the model's config alone, and with "
      "--mem-fraction-static the sizes of its files");
  command
      ->add_option("--device-profile", options->device_profile,
                   "plan for this device, present or not {cpu, h200, b200}")
      ->capture_default_str();
  command->add_flag("--json", options->json, "print one JSON object");
  add_serve_options(*command, options->serve);
  add_token_budget_options(*command, options->budget);
  command->callback([options] {
    exit_unless_folder(options->serve.engine.model_path, "a model's folder; config.json is enough");
    run_plan(*options);
  });
}

}  // namespace halfbyte::tool
