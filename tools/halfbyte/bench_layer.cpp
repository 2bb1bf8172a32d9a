// SPDX-License-Identifier: Apache-2.0
//
// `halfbyte bench layer`: the time of one MoE layer of a real model's shape.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "bench/layer_timing.h"
#include "bench/statistics.h"
#include "command.h"
#include "kernels/cpu/kernel_table.h"

namespace halfbyte::tool {
namespace {

constexpr const char* kDescription =
    "Times one MoE layer of a real model's shape, with random NVFP4 weights and random routing.\n\n"
    "Steps rotate over experts that together exceed three level 3 caches, so weights come from\n"
    "memory. The time is the median step. Two floors stand beside it: reading the weights of the\n"
    "experts that have a token at the memory's speed, and multiplying at the int8 speed of the "
    "best\n"
    "instructions, both measured with the same threads in the same run. The larger is the "
    "limit.\n\n"
    "Examples:\n"
    "  halfbyte bench layer --shape qwen3-30b-a3b --tokens 1\n"
    "  halfbyte bench layer --shape deepseek-v3-ep8 --tokens 1,16,128,512 --json > after.json\n"
    "  scripts/compare_bench.py before.json after.json\n\n"
    "A shape with ep8 in its name is one rank's part: tokens choose from all experts, and one of\n"
    "eight is here; the exchange between ranks is not in the time.";

constexpr std::int64_t kMaxTokens = 65536;
constexpr std::int64_t kMaxExperts = 65536;
constexpr int kMaxThreads = 4096;

struct Options {
  std::string shape;
  std::vector<std::int64_t> num_tokens = {1};
  std::int64_t num_experts = 0;  // 0: the shape's
  std::string mode = "auto";
  MoeOptions moe;
  bool json = false;
};

std::string check_shape(const std::string& name) {
  if (find_layer_shape(name) != nullptr) return {};
  return fmt::format("\"{}\" is not one of {}", name, layer_shape_names());
}

LayerShape chosen_shape(const Options& options) {
  const LayerShape& shape = *find_layer_shape(options.shape);
  if (options.num_experts == 0) return shape;
  if (options.num_experts >= shape.top_k) return with_experts(shape, options.num_experts);
  exit_on_error({StatusCode::kInvalidArgument,
                 fmt::format("--experts {}: a token of {} chooses {} different experts, so at "
                             "least as many are wanted",
                             options.num_experts, shape.name, shape.top_k)});
  return shape;
}

// What both printouts show beside the speed.
struct Row {
  std::string shape;
  std::int64_t num_tokens;
  std::string mode, backend, isa;
  int num_threads;
};

Row make_row(const LayerShape& shape, std::int64_t num_tokens, const LayerBench& bench) {
  const std::string backend(bench.layer().backend_name());
  const std::string_view isa = backend == "cpu" ? cpu::best_kernel_table().name : "portable";
  return {shape.name,
          num_tokens,
          std::string(activation_mode_name(bench.layer().activation_mode())),
          backend,
          std::string(isa),
          bench.num_threads()};
}

nlohmann::ordered_json to_json(const Row& row, const LayerSpeed& speed) {
  return {{"shape", row.shape},
          {"tokens", row.num_tokens},
          {"mode", row.mode},
          {"backend", row.backend},
          {"threads", row.num_threads},
          {"isa", row.isa},
          {"ms", rounded(speed.ms)},
          {"gbps", rounded(speed.gbps)},
          {"gops", rounded(speed.gops)},
          {"limit", rounded(speed.limit)},
          {"percent_of_limit", rounded(speed.percent_of_limit)},
          {"limited_by", speed.limited_by}};
}

void print_heading() {
  fmt::print("{:<24} {:>6} {:<12} {:<9} {:>7} {:<11} {:>10} {:>7} {:>7}  {}\n", "shape", "tokens",
             "mode", "backend", "threads", "isa", "ms", "GB/s", "GOP/s", "of the limit");
}

void print_text(const Row& row, const LayerSpeed& speed) {
  const bool memory = speed.limited_by == "memory";
  fmt::print(
      "{:<24} {:>6} {:<12} {:<9} {:>7} {:<11} {:>10.3f} {:>7.1f} {:>7.1f}  {:.0f} % of {:.1f} {}\n",
      row.shape, row.num_tokens, row.mode, row.backend, row.num_threads, row.isa, speed.ms,
      speed.gbps, speed.gops, speed.percent_of_limit, speed.limit,
      memory ? "GB/s (memory)" : "GOP/s (int8)");
}

void run_bench_layer(const Options& options) {
  LayerBenchOptions wanted;
  wanted.shape = chosen_shape(options);
  wanted.num_tokens = options.num_tokens;
  wanted.moe = options.moe;
  wanted.moe.activation_mode = value_or_exit(parse_activation_mode(options.mode));
  const auto bench = value_or_exit(LayerBench::create(wanted));
  if (!options.json) print_heading();
  for (const std::int64_t num_tokens : options.num_tokens) {
    const LayerSpeed speed = value_or_exit(bench->time(num_tokens));
    const Row row = make_row(wanted.shape, num_tokens, *bench);
    if (options.json) {
      print_json(to_json(row, speed));
    } else {
      print_text(row, speed);
    }
    std::fflush(stdout);
  }
}

}  // namespace

void add_bench_layer(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand("layer", kDescription);
  command->add_option("--shape", options->shape, "{" + layer_shape_names() + "}")
      ->required()
      ->check(check_shape);
  command->add_option("--tokens", options->num_tokens, "rows of one step; a list gives a row each")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, kMaxTokens))
      ->capture_default_str();
  command
      ->add_option("--experts", options->num_experts,
                   "a layer with so many experts, all held here, instead of the shape's")
      ->check(CLI::Range(std::int64_t{1}, kMaxExperts));
  command
      ->add_option("--moe-activation-mode", options->mode,
                   "{auto, w4a16, w4a4, w4a4_dynamic, w4a8}")
      ->capture_default_str();
  command->add_option("--moe-runner-backend", options->moe.runner_backend, "{auto, cpu, reference}")
      ->capture_default_str();
  command->add_option("--threads,--num-threads", options->moe.num_threads, "0: all usable cores")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
  command->add_flag("--json", options->json, "print one JSON object a row");
  command->callback([options] { run_bench_layer(*options); });
}

}  // namespace halfbyte::tool
