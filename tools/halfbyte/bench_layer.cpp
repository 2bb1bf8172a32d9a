// SPDX-License-Identifier: Apache-2.0
//
// `halfbyte bench layer`: the time of one MoE layer of a real model's shape.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "bench/device_layer_timing.h"
#include "bench/layer_timing.h"
#include "bench/statistics.h"
#include "command.h"
#include "kernels/cpu/kernel_table.h"
#include "moe/registry.h"

namespace halfbyte::tool {
namespace {

constexpr const char* kDescription =
    "Times one MoE layer of a real model's shape, with random NVFP4 weights and random routing.\n\n"
    "Steps rotate over experts that together exceed three last-level caches, so weights come from\n"
    "memory. The time is the median step. Two floors stand beside it: reading the weights of the\n"
    "experts that have a token at the memory's speed, and multiplying at the int8 speed of the "
    "best\n"
    "instructions, both measured with the same threads in the same run. The larger is the "
    "limit.\n\n"
    "With a CUDA backend the steps are replayed from a graph, and the floors are a plain read and\n"
    "cuBLAS's bf16 product on the same device. The router is not in the time, but for the last\n"
    "column: there route() chooses the experts of random logits before each step.\n\n"
    "Examples:\n"
    "  halfbyte bench layer --shape qwen3-30b-a3b --tokens 1\n"
    "  halfbyte bench layer --shape deepseek-v3-ep8 --tokens 1,16,128,512 --json after.jsonl\n"
    "  halfbyte bench layer --shape deepseek-v3-ep1 --tokens 1,8,64 --moe-runner-backend "
    "cuda_sm90\n"
    "  scripts/compare_bench.py before.jsonl after.jsonl\n"
    "  halfbyte bench plot after.jsonl --output after.svg\n\n"
    "A shape with ep8 in its name is one rank's part: tokens choose from all experts, and one of\n"
    "eight is here; the exchange between ranks is not in the time.";

constexpr std::int64_t kMaxTokens = 65536;
constexpr std::int64_t kMaxExperts = 65536;
constexpr int kMaxThreads = 4096;
constexpr const char* kToStdout = "-";

struct Options {
  std::string shape;
  std::vector<std::int64_t> num_tokens = {1};
  std::int64_t num_experts = 0;  // 0: the shape's
  std::string mode = "auto";
  MoeOptions moe;
  bool show_plan = false;
  std::string json;  // a file, or kToStdout
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

Row make_row(const LayerShape& shape,
             std::int64_t num_tokens,
             const MoeLayer& layer,
             std::string_view isa,
             int num_threads) {
  return {shape.name,
          num_tokens,
          std::string(activation_mode_name(layer.activation_mode())),
          std::string(layer.backend_name()),
          std::string(isa),
          num_threads};
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

void add_device_json(const DeviceLayerSpeed& speed, nlohmann::ordered_json& json) {
  json["fastest_ms"] = rounded(speed.fastest_ms);
  json["slowest_ms"] = rounded(speed.slowest_ms);
  json["sm_mhz"] = speed.power.sm_mhz;
  json["watts"] = rounded(speed.power.watts);
  json["with_router_ms"] = rounded(speed.with_router_ms);
}

std::string heading() {
  return fmt::format("{:<24} {:>6} {:<12} {:<9} {:>7} {:<11} {:>10} {:>7} {:>7}  {}\n", "shape",
                     "tokens", "mode", "backend", "threads", "isa", "ms", "GB/s", "GOP/s",
                     "of the limit");
}

std::string to_text(const Row& row, const LayerSpeed& speed) {
  const bool memory = speed.limited_by == "memory";
  return fmt::format(
      "{:<24} {:>6} {:<12} {:<9} {:>7} {:<11} {:>10.3f} {:>7.1f} {:>7.1f}  {:.0f} % of {:.1f} {}\n",
      row.shape, row.num_tokens, row.mode, row.backend, row.num_threads, row.isa, speed.ms,
      speed.gbps, speed.gops, speed.percent_of_limit, speed.limit,
      memory ? "GB/s (memory)" : "GOP/s (int8)");
}

std::string device_heading() {
  return fmt::format(
      "{:<24} {:>6} {:<12} {:<10} {:>9} {:>20} {:>6} {:>8}  {:<30} {:>6} {:>5} {:>12}\n", "shape",
      "tokens", "mode", "backend", "us", "fastest, slowest", "GB/s", "TFLOP/s", "of the limit",
      "SM MHz", "W", "with router");
}

std::string to_device_text(const Row& row, const DeviceLayerSpeed& speed) {
  const bool memory = speed.limited_by == "memory";
  const std::string of_limit = fmt::format("{:.0f} % of {:.0f} {}", speed.percent_of_limit,
                                           memory ? speed.limit : speed.limit * 1e-3,
                                           memory ? "GB/s (memory)" : "TFLOP/s (bf16)");
  return fmt::format(
      "{:<24} {:>6} {:<12} {:<10} {:>9.2f} {:>20} {:>6.0f} {:>8.1f}  {:<30} {:>6.0f} {:>5.0f} "
      "{:>12.2f}\n",
      row.shape, row.num_tokens, row.mode, row.backend, 1e3 * speed.ms,
      fmt::format("{:.2f}, {:.2f}", 1e3 * speed.fastest_ms, 1e3 * speed.slowest_ms), speed.gbps,
      speed.gops * 1e-3, of_limit, speed.power.sm_mhz, speed.power.watts,
      1e3 * speed.with_router_ms);
}

// Rows on stdout, as a table or as JSON; with a file the JSON goes there.
class Printer {
 public:
  Printer(const std::string& json, const std::string& heading)
      : only_json_(json == kToStdout), file_(only_json_ ? "" : json) {
    if (!file_.empty()) write_file(file_, "", std::ios::trunc);
    if (!only_json_) fmt::print("{}", heading);
  }
  void print(const nlohmann::ordered_json& json, const std::string& text) const {
    if (only_json_) {
      print_json(json);
    } else {
      fmt::print("{}", text);
    }
    if (!file_.empty()) write_file(file_, json.dump() + "\n", std::ios::app);
    std::fflush(stdout);
  }

 private:
  bool only_json_;
  std::string file_;
};

void show_plan(const Options& options, const MoeLayer& layer) {
  if (options.show_plan) fmt::print(stderr, "{}", layer.describe_plan());
}

void run_on_device(const Options& options, const LayerBenchOptions& wanted) {
  const auto bench = value_or_exit(DeviceLayerBench::create(wanted));
  fmt::print(stderr, "{}\n", bench->describe());
  show_plan(options, bench->layer());
  const Printer printer(options.json, device_heading());
  for (const std::int64_t num_tokens : options.num_tokens) {
    const DeviceLayerSpeed speed = value_or_exit(bench->time(num_tokens));
    const Row row = make_row(wanted.shape, num_tokens, bench->layer(), bench->isa(), 0);
    nlohmann::ordered_json json = to_json(row, speed);
    add_device_json(speed, json);
    printer.print(json, to_device_text(row, speed));
  }
}

void run_on_host(const Options& options, const LayerBenchOptions& wanted) {
  const auto bench = value_or_exit(LayerBench::create(wanted));
  show_plan(options, bench->layer());
  const std::string_view isa = bench->layer().backend_name() == "cpu"
                                   ? std::string_view(cpu::best_kernel_table().name)
                                   : "portable";
  const Printer printer(options.json, heading());
  for (const std::int64_t num_tokens : options.num_tokens) {
    const LayerSpeed speed = value_or_exit(bench->time(num_tokens));
    const Row row = make_row(wanted.shape, num_tokens, bench->layer(), isa, bench->num_threads());
    printer.print(to_json(row, speed), to_text(row, speed));
  }
}

// The device that a named backend computes on. What is no backend's name the layer refuses.
Device device_of(const std::string& backend) {
  const auto found = find_backend(backend);
  return {found.ok() ? (*found)->device_kind() : DeviceKind::kHost, 0};
}

void run_bench_layer(const Options& options) {
  LayerBenchOptions wanted;
  wanted.shape = chosen_shape(options);
  wanted.num_tokens = options.num_tokens;
  wanted.moe = options.moe;
  wanted.moe.activation_mode = value_or_exit(parse_activation_mode(options.mode));
  wanted.moe.device = device_of(wanted.moe.runner_backend);
  if (wanted.moe.device.kind == DeviceKind::kHost) return run_on_host(options, wanted);
  wanted.moe.notices = make_notice_sink(print_notice);
  run_on_device(options, wanted);
}

void add_layer_options(CLI::App& command, Options& options) {
  command.add_option("--shape", options.shape, "{" + layer_shape_names() + "}")
      ->required()
      ->check(check_shape);
  command.add_option("--tokens", options.num_tokens, "rows of one step; a list gives a row each")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, kMaxTokens))
      ->capture_default_str();
  command
      .add_option("--experts", options.num_experts,
                  "a layer with so many experts, all held here, instead of the shape's")
      ->check(CLI::Range(std::int64_t{1}, kMaxExperts));
  command
      .add_option("--moe-activation-mode", options.mode, "{auto, w4a16, w4a4, w4a4_dynamic, w4a8}")
      ->capture_default_str();
  command
      .add_option("--moe-runner-backend", options.moe.runner_backend,
                  "{auto, cpu, reference, cuda_sm90, cuda_sm100}; auto: the host's best")
      ->capture_default_str();
  add_cpu_isa_option(command);
  command.add_option("--threads,--num-threads", options.moe.num_threads, "0: all usable cores")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
  add_tuning_options(command, options.moe);
}

}  // namespace

void add_bench_layer(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand("layer", kDescription);
  add_layer_options(*command, *options);
  command->add_flag("--show-plan", options->show_plan,
                    "print the layer's plan on stderr: kernels, tactics, memory");
  command
      ->add_option("--json", options->json,
                   "one JSON object a row: instead of the table, or into a FILE beside it")
      ->type_name("[FILE]")
      ->expected(0, 1)
      ->default_str(kToStdout);  // without its value
  command->callback([options] { run_bench_layer(*options); });
}

}  // namespace halfbyte::tool
