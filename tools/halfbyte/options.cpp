// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/log.h"
#include "command.h"
#include "kernels/cpu/kernel_table.h"

namespace halfbyte::tool {
namespace {

constexpr const char* kDispatchVariable = "HALFBYTE_MAX_DISPATCH_TOKENS_PER_RANK";
constexpr const char* kCacheVariable = "HALFBYTE_CACHE_DIR";
constexpr const char* kCpuIsaVariable = "HALFBYTE_CPU_ISA";
constexpr const char* kNvfp4DispatchVariable = "HALFBYTE_MOE_NVFP4_DISPATCH";

constexpr const char* kMoeGroup = "Mixture of experts";
constexpr const char* kRanksGroup = "Ranks";
constexpr const char* kEngineGroup = "Engine";
constexpr const char* kBudgetGroup = "Token budget";

// An option whose value is one of a few names.
template <typename T>
CLI::Option* add_choice(CLI::App& command,
                        const std::string& names,
                        std::map<std::string, T> values,
                        const std::string& help,
                        std::function<void(T)> set) {
  std::string choices;
  for (const auto& [name, value] : values)
    choices += (choices.empty() ? "" : ", ") + name;
  return command.add_option_function<std::string>(
      names,
      [names, values = std::move(values), choices, set = std::move(set)](const std::string& given) {
        const auto found = values.find(given);
        if (found == values.end()) {
          throw CLI::ValidationError(names, fmt::format("\"{}\" is not one of {}", given, choices));
        }
        set(found->second);
      },
      help + " {" + choices + "}");
}

std::map<std::string, ActivationMode> modes_of_linears() {
  return {{"auto", ActivationMode::kAuto},
          {"w4a16", ActivationMode::kW4a16},
          {"w4a4", ActivationMode::kW4a4}};
}

std::map<std::string, ActivationMode> modes_of_experts() {
  auto modes = modes_of_linears();
  modes.emplace("w4a4_dynamic", ActivationMode::kW4a4Dynamic);
  modes.emplace("w4a8", ActivationMode::kW4a8);
  return modes;
}

CLI::Range count_range(std::int64_t low) {
  return {low, (std::int64_t{1} << 31) - 1};
}

// A name out of a few whose meaning the library knows; checked here, so that a misspelt one ends
// before anything is loaded.
std::function<std::string(const std::string&)> one_of(std::vector<std::string> names) {
  return [names = std::move(names)](const std::string& given) {
    if (std::find(names.begin(), names.end(), given) != names.end()) return std::string();
    return fmt::format("\"{}\" is not one of {}", given, fmt::join(names, ", "));
  };
}

// What a flag's environment twin means, by CLI11's spelling.
std::string flag_text(std::string_view value) {
  const bool on = value == "1" || value == "true" || value == "on" || value == "yes";
  return on ? "true" : "false";
}

// Says so when an option was written although its environment twin says something else.
void notice_option_over_environment(const std::string& option,
                                    const std::string& given,
                                    const char* variable,
                                    bool is_flag) {
  const char* value = std::getenv(variable);
  if (value == nullptr || given == (is_flag ? flag_text(value) : value)) return;
  static NoticeSink once(print_notice);
  once.notice(option, fmt::format("{} {} is used; {}={} is not", option, given, variable, value));
}

void add_runner_options(CLI::App& command, MoeOptions& options) {
  command
      .add_option("--moe-runner-backend", options.runner_backend,
                  "who computes the experts {auto, reference, cpu, cuda_sm90, cuda_sm100}; "
                  "flashinfer_cutedsl is the device's CUDA backend in w4a4")
      ->capture_default_str()
      ->group(kMoeGroup);
  command
      .add_option("--moe-transport", options.transport,
                  "what connects ranks {auto, local, in_process, mpi, nccl}")
      ->check(one_of({"auto", "local", "in_process", "mpi", "nccl"}))
      ->capture_default_str()
      ->group(kMoeGroup);
  command
      .add_option("--moe-a2a-backend", options.a2a_backend,
                  "how tokens reach other ranks' experts: none (all-gather and reduce) or "
                  "all_to_all (alias flashinfer)")
      ->capture_default_str()
      ->group(kMoeGroup);
  add_choice<ActivationMode>(command, "--moe-activation-mode", modes_of_experts(),
                             "the numbers experts see; auto: w4a16 on a CPU and sm90, what the "
                             "checkpoint declares on sm100",
                             [&options](ActivationMode mode) { options.activation_mode = mode; })
      ->group(kMoeGroup);
}

void add_exchange_options(CLI::App& command, MoeOptions& options) {
  add_choice<CombineMode>(command, "--moe-combine-mode",
                          {{"ordered", CombineMode::kOrdered}, {"fast", CombineMode::kFast}},
                          "ordered: sums do not depend on how experts are spread; fast: any order",
                          [&options](CombineMode mode) { options.combine_mode = mode; })
      ->group(kMoeGroup);
  add_choice<DType>(command, "--moe-combine-dtype", {{"bf16", DType::kBf16}, {"fp32", DType::kF32}},
                    "type in which partial sums travel; default: the output's",
                    [&options](DType dtype) { options.combine_dtype = dtype; })
      ->group(kMoeGroup);
  command
      .add_flag_function(
          "--moe-nvfp4-dispatch,!--no-moe-nvfp4-dispatch",
          [&options](std::int64_t count) {
            options.nvfp4_dispatch = count > 0;
            notice_option_over_environment("--moe-nvfp4-dispatch", count > 0 ? "true" : "false",
                                           kNvfp4DispatchVariable, true);
          },
          "send tokens quantised; default: on for the w4a4 modes under all_to_all")
      ->check(one_of({"true", "false", "1", "0", "on", "off", "yes", "no"}))
      ->envname(kNvfp4DispatchVariable)
      ->group(kMoeGroup);
}

// One rounding everywhere but on GPUs, where a faster one exists.
void add_math_options(CLI::App& command, MoeOptions& options) {
  add_choice<bool>(command, "--moe-activation-math", {{"portable", false}, {"fast", true}},
                   "portable: the same bits on every machine",
                   [&options](bool fast) { options.fast_activation_math = fast; })
      ->group(kMoeGroup);
  add_choice<bool>(command, "--moe-fp4-quant", {{"exact", false}, {"fast", true}},
                   "rounding of activations to NVFP4; fast is for CUDA backends",
                   [](bool fast) {
                     if (!fast) return;
                     throw CLI::ValidationError(
                         "--moe-fp4-quant", "fast needs a CUDA backend, none is built: use exact");
                   })
      ->group(kMoeGroup);
  command.add_flag("--disable-shared-experts-fusion")
      ->description("accepted: what it turns off is off here")
      ->group(kMoeGroup);
}

void add_rank_options(CLI::App& command, MoeOptions& options) {
  const auto add = [&](const char* names, int& value, const char* help) {
    command.add_option(names, value, help)->check(CLI::Range(1, 65536))->group(kRanksGroup);
  };
  add("--tp-size,--tp,--tensor-parallel-size", options.tp_size, "ranks in all; default 1, or ep");
  add("--ep-size,--ep,--expert-parallel-size", options.ep_size,
      "ranks that experts are spread over; divides tp; default 1, or tp under all_to_all");
  add("--dp-size,--dp,--data-parallel-size", options.dp_size,
      "groups of ranks with requests of their own; divides tp; default 1, or tp under all_to_all");
  command
      .add_flag("--enable-dp-attention", options.enable_dp_attention,
                "split attention by request over the dp groups")
      ->group(kRanksGroup);
  command
      .add_option("--num-threads", options.num_threads,
                  "threads of a CPU backend; 0: all usable cores")
      ->check(count_range(0))
      ->capture_default_str()
      ->group(kRanksGroup);
}

void add_dtype_options(CLI::App& command, EngineOptions& options) {
  add_choice<ComputeDtype>(command, "--dtype",
                           {{"auto", ComputeDtype::kAuto},
                            {"float32", ComputeDtype::kFloat32},
                            {"bfloat16", ComputeDtype::kBfloat16}},
                           "type of activations between layers",
                           [&options](ComputeDtype dtype) { options.dtype = dtype; })
      ->group(kEngineGroup);
  add_choice<KvCacheDtype>(command, "--kv-cache-dtype",
                           {{"auto", KvCacheDtype::kAuto},
                            {"float32", KvCacheDtype::kFloat32},
                            {"bfloat16", KvCacheDtype::kBfloat16},
                            {"fp8", KvCacheDtype::kFp8},
                            {"fp8_e4m3", KvCacheDtype::kFp8}},
                           "type of keys and values in the cache; fp8 is e4m3",
                           [&options](KvCacheDtype dtype) { options.kv_cache_dtype = dtype; })
      ->group(kEngineGroup);
  add_choice<bool>(command, "--latent-norm-epsilon", {{"1e-6", false}, {"model", true}},
                   "in the norms inside DeepSeek's attention: 1e-6, as transformers does, or the "
                   "model's rms_norm_eps, as SGLang does",
                   [&options](bool model) { options.latent_norm_uses_config_epsilon = model; })
      ->group(kEngineGroup);
  add_choice<ActivationMode>(
      command, "--linear-activation-mode", modes_of_linears(),
      "the numbers NVFP4 linears outside the experts see; auto: w4a16 on a CPU",
      [&options](ActivationMode mode) { options.linear_activation_mode = mode; })
      ->group(kEngineGroup);
  command
      .add_option("--quantization", options.quantization,
                  "refuse a checkpoint whose config says another; what each tensor is follows from "
                  "the files in any case")
      ->check(CLI::IsMember({"auto", "modelopt_fp4", "modelopt_mixed", "compressed-tensors"}))
      ->capture_default_str()
      ->group(kEngineGroup);
}

void add_limit_options(CLI::App& command, EngineOptions& options) {
  const auto add = [&](const char* names, std::int64_t& value, const char* help) {
    return command.add_option(names, value, help)->capture_default_str()->group(kEngineGroup);
  };
  add("--max-prefill-tokens", options.max_prefill_tokens, "prompt tokens of one step at most");
  add("--chunked-prefill-size,--max-num-batched-tokens", options.chunked_prefill_size,
      "longer prompts are cut into pieces of this; 0: decide")
      ->check(count_range(0));
  add("--max-running-requests,--max-num-seqs", options.max_running_requests,
      "requests decoded together at most")
      ->check(count_range(1));
  add("--context-length,--max-model-len", options.max_context_tokens,
      "longest sequence; 0: the model's")
      ->check(count_range(0));
  add("--max-total-tokens", options.kv_cache_tokens,
      "tokens the KV cache of a rank holds, rounded up to whole blocks of 16; 0: decide")
      ->check(count_range(0));
  command
      .add_option("--mem-fraction-static,--gpu-memory-utilization", options.static_memory_fraction,
                  "of the memory available at the start, what the files of the weights and the KV "
                  "cache may take: the cache takes what they leave, but no more than "
                  "--max-total-tokens; default: a cache for the running requests, at most half")
      ->check(CLI::Range(0.01, 1.0))
      ->group(kEngineGroup);
  add("--moe-max-dispatch-tokens-per-rank", options.max_dispatch_tokens_per_rank,
      "tokens one rank may send in an all-to-all; 0: decide")
      ->check(count_range(0))
      ->envname(kDispatchVariable)
      ->each([](const std::string& given) {
        notice_option_over_environment("--moe-max-dispatch-tokens-per-rank", given,
                                       kDispatchVariable, false);
      });
}

}  // namespace

void add_cpu_isa_option(CLI::App& command) {
  command
      .add_option_function<std::string>(
          "--cpu-isa",
          [](const std::string& name) {
            const Status status = cpu::force_kernel_table(name);
            if (!status.ok())
              throw CLI::ValidationError("--cpu-isa", std::string(status.message()));
          },
          "instructions of a CPU's kernels {auto, avx512, avx_vnni, avx2, portable, amx}; auto: "
          "the widest of the machine, without amx (docs/performance.md)")
      ->envname(kCpuIsaVariable)
      ->group(kMoeGroup);
}

void add_moe_options(CLI::App& command, MoeOptions& options) {
  add_cpu_isa_option(command);
  add_runner_options(command, options);
  add_exchange_options(command, options);
  add_math_options(command, options);
  add_tuning_options(command, options);
  add_rank_options(command, options);
}

void add_tuning_options(CLI::App& command, MoeOptions& options) {
  command
      .add_flag_callback(
          "--disable-flashinfer-autotune", [&options] { options.autotune = false; },
          "a CUDA backend measures no tactics when weights are loaded: its own choices run")
      ->group(kMoeGroup);
  command
      .add_option("--cache-dir", options.cache_directory,
                  "folder that keeps measured tactics for later starts; default: none is kept")
      ->envname(kCacheVariable)
      ->group(kMoeGroup);
}

void add_engine_options(CLI::App& command, EngineOptions& options) {
  add_dtype_options(command, options);
  add_limit_options(command, options);
  command
      .add_flag("--disable-radix-cache", options.disable_radix_cache,
                "keep no prefix of finished requests in the KV cache")
      ->group(kEngineGroup);
  add_choice<SchedulePolicy>(
      command, "--schedule-policy",
      {{"lpm", SchedulePolicy::kLpm}, {"fcfs", SchedulePolicy::kFcfs}},
      "the next waiting request: lpm (the default), the one with the longest cached prefix, but "
      "none is passed for ever; fcfs, the oldest",
      [&options](SchedulePolicy policy) { options.schedule_policy = policy; })
      ->group(kEngineGroup);
  command
      .add_option("--json-model-override-args", options.config_overrides,
                  "a JSON object whose members replace those of config.json; each is told")
      ->group(kEngineGroup);
  command
      .add_flag("--ignore-index", options.ignore_index,
                "read every .safetensors file, whatever the index names")
      ->group(kEngineGroup);
}

void add_token_budget_options(CLI::App& command, TokenBudgetOptions& options) {
  const auto add = [&](const char* names, auto& value, const char* help) {
    return command.add_option(names, value, help)->capture_default_str()->group(kBudgetGroup);
  };
  add("--cuda-graph-max-bs", options.decode_graph_max_bs,
      "requests of the largest captured decode batch; 0: no decode graphs");
  add("--piecewise-cuda-graph-max-tokens", options.prefill_graph_max_tokens,
      "tokens of the largest captured prefill");
  command
      .add_flag("--disable-piecewise-cuda-graph", options.disable_prefill_graphs,
                "no captured prefill: the option above does not count")
      ->group(kBudgetGroup);
  add("--speculative-algorithm", options.speculative_algorithm,
      "any name: draft tokens count when one is given");
  add("--speculative-num-draft-tokens", options.speculative_num_draft_tokens,
      "tokens of one request in a decode step");
  add_choice<DisaggregationMode>(
      command, "--disaggregation-mode",
      {{"null", DisaggregationMode::kNull},
       {"prefill", DisaggregationMode::kPrefill},
       {"decode", DisaggregationMode::kDecode}},
      "a node that only prefills or only decodes",
      [&options](DisaggregationMode mode) { options.disaggregation = mode; })
      ->group(kBudgetGroup);
}

}  // namespace halfbyte::tool
