// SPDX-License-Identifier: Apache-2.0
//
// Whole MoE layers on one GPU, without the router: grouping, both GEMMs, combine; bf16 in and out.
// Prints a table, and JSON lines to the file given as the first argument. A second argument selects
// the cases whose NAME/TOKENS contains it, a third the mode: w4a16 (default), w4a4, w4a4_dynamic,
// w4a8.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bench_layer.h"
#include "measure.h"

namespace halfbyte::bench {
namespace {

// A library's 8192^3 products on this card, in a burst.
constexpr double kBf16Flops = 790e12;
constexpr double kFp8Flops = 1429e12;

struct NamedMode {
  const char* name;
  ActivationMode mode;
};
constexpr NamedMode kModes[] = {{"w4a16", ActivationMode::kW4a16},
                                {"w4a4", ActivationMode::kW4a4},
                                {"w4a4_dynamic", ActivationMode::kW4a4Dynamic},
                                {"w4a8", ActivationMode::kW4a8}};

const char* name_of(ActivationMode mode) {
  for (const NamedMode& named : kModes) {
    if (named.mode == mode) return named.name;
  }
  return "?";
}

std::vector<Case> cases() {
  std::vector<Case> list;
  const auto add = [&](std::string name, std::int64_t tokens, int experts, int local,
                       std::int64_t h, std::int64_t i, double best, double target,
                       bool even = false) {
    list.push_back({std::move(name), tokens, experts, local, 8, h, i, best, target, even,
                    ActivationMode::kW4a16});
  };
  add("dsv3-ep1", 1, 256, 256, 7168, 2048, 91.7, 55);
  add("dsv3-ep1", 8, 256, 256, 7168, 2048, 530, 350);
  add("dsv3-ep1", 64, 256, 256, 7168, 2048, 2032, 1340);
  add("dsv3-ep8", 64, 256, 32, 7168, 2048, 271, 178);
  add("dsv3-ep8", 256, 256, 32, 7168, 2048, 338, 200);
  add("dsv3-ep8", 1024, 256, 32, 7168, 2048, 444, 290);
  add("dsv3-ep8", 4096, 256, 32, 7168, 2048, 869, 620);
  add("dsv3-ep8", 16384, 256, 32, 7168, 2048, 2959, 2190);
  add("dsv3-ep8", 16384, 256, 32, 7168, 2048, 2779, 2060, true);
  add("qwen3-30b", 1, 128, 128, 2048, 768, 31.4, 14);
  add("qwen3-30b", 8, 128, 128, 2048, 768, 74.8, 38);
  add("qwen3-30b", 64, 128, 128, 2048, 768, 148, 90);
  add("qwen3-30b", 512, 128, 128, 2048, 768, 216, 125);
  add("qwen3-30b", 4096, 128, 128, 2048, 768, 839, 600);
  return list;
}

/// top_k distinct experts a token, uniform; or every expert equally often.
std::vector<std::int32_t> make_ids(const Case& c, std::mt19937& random) {
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < c.num_tokens; ++t) {
    std::set<std::int32_t> seen;
    for (int k = 0; k < c.top_k; ++k) {
      auto id = static_cast<std::int32_t>((t * c.top_k + k) * 31 % c.num_experts);
      while (!c.even && !seen.insert(id = static_cast<std::int32_t>(
                                         random() % static_cast<std::uint32_t>(c.num_experts)))
                             .second) {
      }
      ids.push_back(id);
    }
  }
  return ids;
}

Result<Step> make_step(const Case& c, std::mt19937& random, const device::Stream& stream) {
  Step step;
  const std::vector<std::int32_t> ids = make_ids(c, random);
  std::set<std::int32_t> touched;
  for (const std::int32_t id : ids) {
    if (id >= c.num_local) continue;
    ++step.routes;
    touched.insert(id);
  }
  step.experts = static_cast<std::int64_t>(touched.size());
  HALFBYTE_ASSIGN_OR_RETURN(step.ids, DeviceBuffer::allocate(ids.size() * 4));
  HALFBYTE_RETURN_IF_ERROR(step.ids.upload(std::as_bytes(std::span(ids)), 0, stream));
  HALFBYTE_RETURN_IF_ERROR(stream.synchronize());
  return step;
}

struct Work {
  double routes = 0, experts = 0;
};

bool has_decode_kernel(const Case& c) {
  return !c.dynamic();
}
bool takes_decode(const Case& c, const Work& work) {
  const double most = c.fp8() ? sm90::kMaxFp8DecodeRowsPerExpert : sm90::kMaxDecodeRowsPerExpert;
  return has_decode_kernel(c) && work.routes / work.experts <= most;
}

double floor_us(const Case& c, const Work& work, double bandwidth) {
  const double weights = 3.0 * static_cast<double>(c.hidden_size * c.intermediate_size);
  const double bytes =
      work.experts * weights * 9 / 16 + 4.0 * static_cast<double>(c.num_tokens * c.hidden_size);
  const double flops = 2 * work.routes * weights;
  return 1e6 * std::max(bytes / bandwidth, flops / (c.fp8() ? kFp8Flops : kBf16Flops));
}

void print_case(const Case& c) {
  std::printf("%-10s T %5s%s %s ", c.name.c_str(), std::to_string(c.num_tokens).c_str(),
              c.even ? " even" : "", name_of(c.mode));
}

void report(const Case& c,
            const Work& work,
            const std::string& kernel,
            const Timing& t,
            double floor,
            bool chosen,
            std::FILE* json) {
  print_case(c);
  std::printf(
      "rows %7.1f experts %5.1f %-24s%s %8.1f us [%.1f %.1f] floor %7.1f %4.1f%% target %6.0f best "
      "public %6.1f (%.2fx) %4.0f MHz %3.0f W\n",
      work.routes, work.experts, kernel.c_str(), chosen ? "*" : " ", t.median_us, t.fastest_us,
      t.slowest_us, floor, 100 * floor / t.median_us, c.target_us, c.best_public_us,
      c.best_public_us / t.median_us, t.power.sm_mhz, t.power.watts);
  std::fflush(stdout);
  if (json == nullptr) return;
  std::fprintf(
      json,
      R"({"shape":"%s","tokens":%s,"even":%s,"mode":"%s","rows":%g,"experts":%g,"kernel":"%s",)"
      R"("chosen":%s,"median_us":%.2f,"fastest_us":%.2f,"slowest_us":%.2f,"floor_us":%.2f,)"
      R"("sm_mhz":%g,"watts":%.1f})"
      "\n",
      c.name.c_str(), std::to_string(c.num_tokens).c_str(), c.even ? "true" : "false",
      name_of(c.mode), work.routes, work.experts, kernel.c_str(), chosen ? "true" : "false",
      t.median_us, t.fastest_us, t.slowest_us, floor, t.power.sm_mhz, t.power.watts);
  std::fflush(json);
}

std::string tile_name(const sm90::MoeDecodeTile& tile) {
  return "decode " + std::to_string(32 * tile.row_groups) + "x" +
         std::to_string(8 * tile.token_blocks);
}

Status run_prefill(const Case& c,
                   const Work& work,
                   const Layer& layer,
                   const Weights& weights,
                   const std::vector<Step>& steps,
                   double floor,
                   const device::Properties& properties,
                   const device::Stream& stream,
                   std::FILE* json) {
  const int num_steps = static_cast<int>(steps.size());
  const int chosen = layer.chosen_tile_tokens(work.routes / work.experts, properties);
  for (const int tokens : layer.tile_tokens()) {
    HALFBYTE_ASSIGN_OR_RETURN(const Timing t, time_graph(stream, num_steps, [&](int i) {
                                return layer.enqueue_prefill(weights,
                                                             steps[static_cast<std::size_t>(i)], i,
                                                             tokens, properties, stream);
                              }));
    report(c, work, (c.fp8() ? "prefill 128x" : "prefill 256x") + std::to_string(tokens), t, floor,
           tokens == chosen && !takes_decode(c, work), json);
  }
  const auto part = [&](const std::function<Status(int)>& enqueue) {
    return time_graph(stream, num_steps, enqueue);
  };
  HALFBYTE_RETURN_IF_ERROR(layer.group(steps[0], stream));
  HALFBYTE_ASSIGN_OR_RETURN(const Timing gather,
                            part([&](int) { return layer.gather(chosen, stream); }));
  HALFBYTE_ASSIGN_OR_RETURN(const Timing first, part([&](int i) {
                              return layer.gemm(false, weights, i, chosen, properties, stream);
                            }));
  HALFBYTE_ASSIGN_OR_RETURN(const Timing second, part([&](int i) {
                              return layer.gemm(true, weights, i, chosen, properties, stream);
                            }));
  const double flops =
      4 * static_cast<double>(steps[0].routes * c.hidden_size * c.intermediate_size);
  print_case(c);
  std::printf(
      "gather %.2f us, gemm1 %.1f us (%.0f TFLOP/s, %.0f MHz, %.0f W), gemm2 %.1f us (%.0f "
      "TFLOP/s, "
      "%.0f MHz, %.0f W)\n",
      gather.median_us, first.median_us, flops / first.median_us / 1e6, first.power.sm_mhz,
      first.power.watts, second.median_us, flops / 2 / second.median_us / 1e6, second.power.sm_mhz,
      second.power.watts);
  return {};
}

/// What a step has beside those of w4a16.
Status report_quantizing(const Case& c,
                         const Layer& layer,
                         const Weights& weights,
                         const device::Stream& stream) {
  if (c.quantized() || c.fp8()) {
    HALFBYTE_ASSIGN_OR_RETURN(const Timing x,
                              time_graph(stream, 8, [&](int) { return layer.quantize(stream); }));
    print_case(c);
    std::printf("%s %.2f us\n", c.fp8() ? "e4m3_rows" : "grid_tokens", x.median_us);
  }
  if (!c.dynamic() && !c.fp8()) return {};
  HALFBYTE_ASSIGN_OR_RETURN(const Timing h, time_graph(stream, 8, [&](int) {
                              return layer.activate(weights, layer.tile_tokens().back(), stream);
                            }));
  print_case(c);
  std::printf("%s %.2f us\n", c.fp8() ? "quantize_tokens of h" : "activate_tiles", h.median_us);
  return {};
}

Status run_case(const Case& c,
                const Weights& weights,
                double bandwidth,
                const device::Properties& properties,
                const device::Stream& stream,
                std::FILE* json) {
  std::mt19937 random(11);
  // Enough different routings that the touched weights exceed three L2 caches.
  const int num_steps = c.num_tokens <= 64 ? 24 : 4;
  std::vector<Step> steps;
  std::int64_t max_routes = 0;
  Work work;
  for (int i = 0; i < num_steps; ++i) {
    HALFBYTE_ASSIGN_OR_RETURN(Step step, make_step(c, random, stream));
    work.routes += static_cast<double>(step.routes) / num_steps;
    max_routes = std::max(max_routes, step.routes);
    work.experts += static_cast<double>(step.experts) / num_steps;
    steps.push_back(std::move(step));
  }
  HALFBYTE_ASSIGN_OR_RETURN(Layer layer, Layer::create(c, max_routes, stream));
  layer.decode.expected_rows = work.routes;
  layer.decode.expected_experts = work.experts;
  const sm90::MoeDecodeConfig chosen = select_config(layer.decode, properties);
  const double floor = floor_us(c, work, bandwidth);
  for (const sm90::MoeDecodeTile& tile : sm90::list_moe_decode_tiles()) {
    const sm90::MoeDecodeConfig config = make_config(layer.decode, tile, properties);
    if (!has_decode_kernel(c) ||
        (c.num_tokens > 256 && !(config == chosen && c.num_tokens <= 1024)))
      continue;
    HALFBYTE_ASSIGN_OR_RETURN(const Timing t, time_graph(stream, num_steps, [&](int i) {
                                return layer.enqueue(weights, steps[static_cast<std::size_t>(i)], i,
                                                     config, stream);
                              }));
    report(c, work, tile_name(tile), t, floor, config == chosen && takes_decode(c, work), json);
  }
  if (c.num_tokens >= 256 || c.fp8() || !has_decode_kernel(c))
    HALFBYTE_RETURN_IF_ERROR(
        run_prefill(c, work, layer, weights, steps, floor, properties, stream, json));
  HALFBYTE_RETURN_IF_ERROR(report_quantizing(c, layer, weights, stream));
  HALFBYTE_ASSIGN_OR_RETURN(const Timing group, time_graph(stream, num_steps, [&](int i) {
                              return layer.group(steps[static_cast<std::size_t>(i)], stream);
                            }));
  HALFBYTE_ASSIGN_OR_RETURN(const Timing combine, time_graph(stream, num_steps, [&](int i) {
                              return layer.combine(steps[static_cast<std::size_t>(i)], stream);
                            }));
  print_case(c);
  std::printf("group_rows %.2f us, combine_rows %.2f us\n", group.median_us, combine.median_us);
  return {};
}

/// kAuto: no such mode here.
ActivationMode mode_of(std::string_view name) {
  for (const NamedMode& mode : kModes) {
    if (mode.name == name) return mode.mode;
  }
  return ActivationMode::kAuto;
}

Status run(const char* json_path, const std::string& filter, ActivationMode mode) {
  if (mode == ActivationMode::kAuto)
    return {StatusCode::kInvalidArgument, "mode: want w4a16, w4a4, w4a4_dynamic or w4a8"};
  HALFBYTE_ASSIGN_OR_RETURN(const device::Properties properties, device::read_properties(0));
  HALFBYTE_ASSIGN_OR_RETURN(const device::Stream stream, device::Stream::create());
  HALFBYTE_ASSIGN_OR_RETURN(const double bandwidth,
                            tool::measure_read_bandwidth(stream, 0, std::int64_t{4} << 30));
  std::printf("%s: %d SMs, read %.2f TB/s\n", properties.name.c_str(),
              properties.num_multiprocessors, bandwidth / 1e12);
  std::FILE* json = json_path == nullptr ? nullptr : std::fopen(json_path, "w");
  Weights weights;
  for (Case c : cases()) {
    c.mode = mode;
    if ((c.name + "/" + std::to_string(c.num_tokens)).find(filter) == std::string::npos) continue;
    if (weights.num_local != c.num_local || weights.hidden_size != c.hidden_size) {
      weights = {};
      HALFBYTE_ASSIGN_OR_RETURN(weights, make_weights(c, c.hidden_size < 4096 ? 8 : 1, stream));
    }
    HALFBYTE_RETURN_IF_ERROR(run_case(c, weights, bandwidth, properties, stream, json));
  }
  if (json != nullptr) std::fclose(json);
  return {};
}

}  // namespace
}  // namespace halfbyte::bench

int main(int argc, char** argv) {
  const halfbyte::Status status =
      halfbyte::bench::run(argc > 1 ? argv[1] : nullptr, argc > 2 ? argv[2] : "",
                           halfbyte::bench::mode_of(argc > 3 ? argv[3] : "w4a16"));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
