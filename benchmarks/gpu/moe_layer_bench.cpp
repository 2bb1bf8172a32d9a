// SPDX-License-Identifier: Apache-2.0
//
// Whole MoE layers on one GPU, without the router: grouping, both GEMMs, combine; w4a16, bf16 in
// and out. Prints a table, and JSON lines to the file given as the first argument. A second
// argument selects the cases whose NAME/TOKENS contains it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "device/properties.h"
#include "kernels/cuda/common/combine_rows.h"
#include "kernels/cuda/common/group_rows.h"
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"
#include "kernels/cuda/sm90/moe_decode_bf16_nvfp4.h"
#include "kernels/cuda/sm90/prepare_weights.h"
#include "kernels/cuda/sm90/token_tiles.h"
#include "measure.h"

namespace halfbyte::bench {
namespace {

using device::DeviceBuffer;

constexpr double kMatrixFlops = 790e12;  // bf16, a library's 8192^3 product on this card

struct Case {
  std::string name;
  std::int64_t num_tokens = 0;
  int num_experts = 0, num_local = 0, top_k = 8;
  std::int64_t hidden_size = 0, intermediate_size = 0;
  double best_public_us = 0, target_us = 0;
  bool even = false;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  const auto add = [&](std::string name, std::int64_t tokens, int experts, int local,
                       std::int64_t h, std::int64_t i, double best, double target,
                       bool even = false) {
    list.push_back({std::move(name), tokens, experts, local, 8, h, i, best, target, even});
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

struct Weights {
  int num_local = 0;
  std::int64_t hidden_size = 0, intermediate_size = 0;
  std::vector<DeviceBuffer> gate_up, down;  // rotating copies
  DeviceBuffer alpha;                       // [3, num_local]
};

Status prepare(const sm90::WeightLayout& layout,
               const DeviceBuffer& dst,
               std::uint32_t seed,
               const device::Stream& stream) {
  const std::int64_t half = layout.shape.half_rows * layout.shape.cols;
  HALFBYTE_ASSIGN_OR_RETURN(const auto codes,
                            DeviceBuffer::allocate(static_cast<std::size_t>(half)));
  HALFBYTE_ASSIGN_OR_RETURN(const auto scales,
                            DeviceBuffer::allocate(static_cast<std::size_t>(half / 8)));
  for (std::int64_t e = 0; e < layout.shape.num_experts; ++e) {
    const auto s = seed + static_cast<std::uint32_t>(2 * e);
    HALFBYTE_RETURN_IF_ERROR(fill_random(codes.data(), half, s, 0, 0, stream));
    HALFBYTE_RETURN_IF_ERROR(fill_random(scales.data(), half / 8, s + 1, 40, 72, stream));
    sm90::PrepareWeightsArgs args;
    for (int i = 0; i < layout.shape.num_halves; ++i) {
      args.codes[i] = codes.as<std::uint8_t>(static_cast<std::size_t>(i * half / 2));
      args.block_scale[i] = scales.as<std::uint8_t>(static_cast<std::size_t>(i * half / 16));
    }
    args.dst = dst.as<std::uint8_t>();
    HALFBYTE_RETURN_IF_ERROR(launch(layout, e, args, stream.handle()));
  }
  return stream.synchronize();
}

Result<Weights> make_weights(const Case& c, int copies, const device::Stream& stream) {
  Weights w = {c.num_local, c.hidden_size, c.intermediate_size, {}, {}, {}};
  const sm90::MoeDecodeShape shape = {c.num_local, c.hidden_size, c.intermediate_size};
  for (int i = 0; i < copies; ++i) {
    HALFBYTE_ASSIGN_OR_RETURN(
        auto gate_up, DeviceBuffer::allocate(static_cast<std::size_t>(shape.gate_up().bytes())));
    HALFBYTE_ASSIGN_OR_RETURN(
        auto down, DeviceBuffer::allocate(static_cast<std::size_t>(shape.down().bytes())));
    HALFBYTE_RETURN_IF_ERROR(
        prepare(shape.gate_up(), gate_up, 7U + 1000U * static_cast<unsigned>(i), stream));
    HALFBYTE_RETURN_IF_ERROR(
        prepare(shape.down(), down, 9U + 1000U * static_cast<unsigned>(i), stream));
    w.gate_up.push_back(std::move(gate_up));
    w.down.push_back(std::move(down));
  }
  std::vector<float> alpha(static_cast<std::size_t>(3 * c.num_local));
  for (std::size_t i = 0; i < alpha.size(); ++i)
    alpha[i] = 0.3F / std::sqrt(static_cast<float>(c.hidden_size)) *
               (1 + 0.1F * static_cast<float>(i % 7));
  HALFBYTE_ASSIGN_OR_RETURN(w.alpha, DeviceBuffer::allocate(alpha.size() * 4));
  HALFBYTE_RETURN_IF_ERROR(w.alpha.upload(std::as_bytes(std::span(alpha)), 0, stream));
  HALFBYTE_RETURN_IF_ERROR(stream.synchronize());
  return w;
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

struct Step {
  DeviceBuffer ids;
  std::int64_t routes = 0;
  std::int64_t experts = 0;
};

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

/// Buffers of a layer, and its three launches.
class Layer {
 public:
  static Result<Layer> create(const Case& c, std::int64_t max_routes, const device::Stream& stream);
  Status enqueue(const Weights& weights,
                 const Step& step,
                 int copy,
                 const sm90::MoeDecodeConfig& config,
                 const device::Stream& stream) const;
  Status enqueue_prefill(const Weights& weights,
                         const Step& step,
                         int copy,
                         int tile_tokens,
                         const device::Properties& properties,
                         const device::Stream& stream) const;
  sm90::GroupedGemmShape gate_up(double rows_per_expert) const {
    return {decode.gate_up(), sm90::GemmOutput::kActivated, DType::kBf16, rows_per_expert};
  }
  Status group(const Step& step, const device::Stream& stream) const;
  Status gather(int tile_tokens, const device::Stream& stream) const {
    const sm90::GatherTokensArgs args = {x_.data(), route_row_.as<std::int32_t>(),
                                         offset_.as<std::int64_t>(), count_.as<std::int32_t>(),
                                         x_tiles_.data()};
    return sm90::launch_gather_tokens(c_.num_local, c_.num_tokens * c_.top_k, c_.hidden_size,
                                      tile_tokens, args, stream.handle());
  }
  /// Bytes of the token tiles of this step's routes, for the width that needs most.
  std::size_t tile_bytes(std::int64_t cols) const {
    std::int64_t most = 0;
    for (const int tokens : sm90::list_tile_tokens()) {
      const sm90::TokenTiles tiles = {tokens, cols};
      most = std::max(most, tiles.max_tiles(max_routes_, c_.num_local) * tiles.tile_bytes());
    }
    return static_cast<std::size_t>(most);
  }
  Status gemm(bool second,
              const Weights& weights,
              int copy,
              int tile_tokens,
              const device::Properties& properties,
              const device::Stream& stream) const;
  Status combine(const Step& step, const device::Stream& stream) const;
  sm90::MoeDecodeShape decode;

 private:
  Case c_;
  std::int64_t max_routes_ = 0;  // of the steps; a plan would take num_tokens * top_k
  cuda::GroupRowsShape group_;
  cuda::CombineRowsShape combine_;
  DeviceBuffer x_, x_tiles_, h_tiles_, y_, h_, rows_, weights_, offset_, count_, route_row_,
      slot_route_, workspace_, counters_;
};

Result<Layer> Layer::create(const Case& c, std::int64_t max_routes, const device::Stream& stream) {
  Layer layer;
  layer.c_ = c;
  layer.max_routes_ = max_routes;
  const auto slots = static_cast<std::size_t>(c.num_tokens * c.top_k);
  const auto hidden = static_cast<std::size_t>(c.hidden_size);
  const auto tokens = static_cast<std::size_t>(c.num_tokens);
  const auto local = static_cast<std::size_t>(c.num_local);
  layer.group_ = {c.num_tokens, c.top_k, c.num_experts, 0, c.num_local};
  layer.combine_ = {c.num_tokens,  c.top_k,      c.num_experts,
                    c.hidden_size, DType::kBf16, DType::kBf16};
  layer.decode = {c.num_local, c.hidden_size, c.intermediate_size, true, DType::kBf16};
  const auto allocate = [&](DeviceBuffer& buffer, std::size_t bytes) -> Status {
    HALFBYTE_ASSIGN_OR_RETURN(buffer, DeviceBuffer::allocate(bytes));
    return buffer.fill(std::byte{0}, stream);
  };
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.x_, tokens * hidden * 2));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.x_tiles_, layer.tile_bytes(c.hidden_size)));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.h_tiles_, layer.tile_bytes(c.intermediate_size)));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.y_, tokens * hidden * 2));
  HALFBYTE_RETURN_IF_ERROR(
      allocate(layer.h_, slots * static_cast<std::size_t>(c.intermediate_size) * 2));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.rows_, slots * hidden * 2));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.weights_, slots * 4));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.offset_, (local + 1) * 8));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.count_, local * 4));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.route_row_, slots * 4));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.slot_route_, slots * 4));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.workspace_, select_config(layer.group_).workspace_bytes));
  HALFBYTE_RETURN_IF_ERROR(allocate(layer.counters_, (local + 2) * 4));
  // bf16 of random sign and mantissa near 1: bytes 0x3E, 0x3F, 0xBE, 0xBF would do; a narrow range
  // of the upper byte keeps every value finite.
  std::vector<std::uint16_t> x(tokens * hidden);
  std::mt19937 random(5);
  for (std::uint16_t& v : x)
    v = static_cast<std::uint16_t>((random() & 0x80FFU) | 0x3F00U);
  HALFBYTE_RETURN_IF_ERROR(layer.x_.upload(std::as_bytes(std::span(x)), 0, stream));
  std::vector<float> weights(slots);
  for (float& v : weights)
    v = static_cast<float>(random() % 1000 + 1) / 8000.0F;
  HALFBYTE_RETURN_IF_ERROR(layer.weights_.upload(std::as_bytes(std::span(weights)), 0, stream));
  HALFBYTE_RETURN_IF_ERROR(stream.synchronize());
  return layer;
}

Status Layer::group(const Step& step, const device::Stream& stream) const {
  const cuda::GroupRowsArgs args = {step.ids.as<std::int32_t>(),
                                    nullptr,
                                    offset_.as<std::int64_t>(),
                                    count_.as<std::int32_t>(),
                                    route_row_.as<std::int32_t>(),
                                    slot_route_.as<std::int32_t>(),
                                    workspace_.data()};
  return launch(group_, select_config(group_), args, stream.handle());
}

Status Layer::combine(const Step& step, const device::Stream& stream) const {
  const cuda::CombineRowsArgs args = {rows_.data(),
                                      step.ids.as<std::int32_t>(),
                                      weights_.as<float>(),
                                      slot_route_.as<std::int32_t>(),
                                      nullptr,
                                      nullptr,
                                      y_.data()};
  return launch(combine_, select_config(combine_), args, stream.handle());
}

Status Layer::enqueue(const Weights& weights,
                      const Step& step,
                      int copy,
                      const sm90::MoeDecodeConfig& config,
                      const device::Stream& stream) const {
  HALFBYTE_RETURN_IF_ERROR(group(step, stream));
  const auto index = static_cast<std::size_t>(copy) % weights.gate_up.size();
  const auto* alpha = weights.alpha.as<float>();
  const sm90::MoeDecodeArgs args = {x_.data(),
                                    route_row_.as<std::int32_t>(),
                                    offset_.as<std::int64_t>(),
                                    count_.as<std::int32_t>(),
                                    weights.gate_up[index].as<std::uint8_t>(),
                                    weights.down[index].as<std::uint8_t>(),
                                    alpha,
                                    alpha + c_.num_local,
                                    alpha + 2 * c_.num_local,
                                    {},
                                    h_.data(),
                                    rows_.data(),
                                    counters_.as<std::int32_t>()};
  HALFBYTE_RETURN_IF_ERROR(launch(decode, config, args, stream.handle()));
  return combine(step, stream);
}

Status Layer::gemm(bool second,
                   const Weights& weights,
                   int copy,
                   int tile_tokens,
                   const device::Properties& properties,
                   const device::Stream& stream) const {
  const auto index = static_cast<std::size_t>(copy) % weights.gate_up.size();
  const auto* alpha = weights.alpha.as<float>();
  const sm90::GroupedGemmShape shape =
      second ? sm90::GroupedGemmShape{decode.down(), sm90::GemmOutput::kRows} : gate_up(0);
  sm90::GroupedGemmArgs args;
  args.tokens = second ? h_tiles_.data() : x_tiles_.data();
  args.expert_offset = offset_.as<std::int64_t>();
  args.expert_count = count_.as<std::int32_t>();
  args.weights = (second ? weights.down[index] : weights.gate_up[index]).as<std::uint8_t>();
  args.alpha[0] = second ? alpha + 2 * c_.num_local : alpha;
  args.alpha[1] = alpha + c_.num_local;
  args.output = second ? rows_.data() : h_tiles_.data();
  return launch(shape, make_config(shape, tile_tokens, properties), args, stream.handle());
}

Status Layer::enqueue_prefill(const Weights& weights,
                              const Step& step,
                              int copy,
                              int tile_tokens,
                              const device::Properties& properties,
                              const device::Stream& stream) const {
  HALFBYTE_RETURN_IF_ERROR(group(step, stream));
  HALFBYTE_RETURN_IF_ERROR(gather(tile_tokens, stream));
  HALFBYTE_RETURN_IF_ERROR(gemm(false, weights, copy, tile_tokens, properties, stream));
  HALFBYTE_RETURN_IF_ERROR(gemm(true, weights, copy, tile_tokens, properties, stream));
  return combine(step, stream);
}

struct Work {
  double routes = 0, experts = 0;
};

double floor_us(const Case& c, const Work& work, double bandwidth) {
  const double weights = 3.0 * static_cast<double>(c.hidden_size * c.intermediate_size);
  const double bytes =
      work.experts * weights * 9 / 16 + 4.0 * static_cast<double>(c.num_tokens * c.hidden_size);
  const double flops = 2 * work.routes * weights;
  return 1e6 * std::max(bytes / bandwidth, flops / kMatrixFlops);
}

void report(const Case& c,
            const Work& work,
            const std::string& kernel,
            const Timing& t,
            double floor,
            bool chosen,
            std::FILE* json) {
  fmt::print(
      "{:10} T {:5}{} rows {:7.1f} experts {:5.1f} {:24}{} {:8.1f} us [{:.1f} {:.1f}] floor "
      "{:7.1f} "
      "{:4.1f}% target {:6.0f} best public {:6.1f} ({:.2f}x) {:4.0f} MHz {:3.0f} W\n",
      c.name, c.num_tokens, c.even ? " even" : "", work.routes, work.experts, kernel,
      chosen ? "*" : " ", t.median_us, t.fastest_us, t.slowest_us, floor, 100 * floor / t.median_us,
      c.target_us, c.best_public_us, c.best_public_us / t.median_us, t.sm_mhz, t.watts);
  std::fflush(stdout);
  if (json == nullptr) return;
  fmt::print(
      json,
      R"({{"shape":"{}","tokens":{},"even":{},"rows":{},"experts":{},"kernel":"{}","chosen":{},)"
      R"("median_us":{:.2f},"fastest_us":{:.2f},"slowest_us":{:.2f},"floor_us":{:.2f},)"
      R"("sm_mhz":{},"watts":{:.1f}}})"
      "\n",
      c.name, c.num_tokens, c.even, work.routes, work.experts, kernel, chosen, t.median_us,
      t.fastest_us, t.slowest_us, floor, t.sm_mhz, t.watts);
  std::fflush(json);
}

std::string tile_name(const sm90::MoeDecodeTile& tile) {
  return fmt::format("decode {}x{}", 32 * tile.row_groups, 8 * tile.token_blocks);
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
  const int chosen =
      select_config(layer.gate_up(work.routes / work.experts), properties).tile_tokens;
  for (const int tokens : sm90::list_tile_tokens()) {
    HALFBYTE_ASSIGN_OR_RETURN(const Timing t, time_graph(stream, num_steps, [&](int i) {
                                return layer.enqueue_prefill(weights,
                                                             steps[static_cast<std::size_t>(i)], i,
                                                             tokens, properties, stream);
                              }));
    report(c, work, fmt::format("prefill 256x{}", tokens), t, floor,
           tokens == chosen && work.routes / work.experts > sm90::kMaxDecodeRowsPerExpert, json);
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
  fmt::print(
      "{:10} T {:5} gather {:.2f} us, gemm1 {:.1f} us ({:.0f} TFLOP/s, {:.0f} MHz, {:.0f} W), "
      "gemm2 "
      "{:.1f} us ({:.0f} TFLOP/s, {:.0f} MHz, {:.0f} W)\n",
      c.name, c.num_tokens, gather.median_us, first.median_us, flops / first.median_us / 1e6,
      first.sm_mhz, first.watts, second.median_us, flops / 2 / second.median_us / 1e6,
      second.sm_mhz, second.watts);
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
    if (c.num_tokens > 256 && !(config == chosen && c.num_tokens <= 1024)) continue;
    HALFBYTE_ASSIGN_OR_RETURN(const Timing t, time_graph(stream, num_steps, [&](int i) {
                                return layer.enqueue(weights, steps[static_cast<std::size_t>(i)], i,
                                                     config, stream);
                              }));
    report(c, work, tile_name(tile), t, floor,
           config == chosen && work.routes / work.experts <= sm90::kMaxDecodeRowsPerExpert, json);
  }
  if (c.num_tokens >= 256)
    HALFBYTE_RETURN_IF_ERROR(
        run_prefill(c, work, layer, weights, steps, floor, properties, stream, json));
  HALFBYTE_ASSIGN_OR_RETURN(const Timing group, time_graph(stream, num_steps, [&](int i) {
                              return layer.group(steps[static_cast<std::size_t>(i)], stream);
                            }));
  HALFBYTE_ASSIGN_OR_RETURN(const Timing combine, time_graph(stream, num_steps, [&](int i) {
                              return layer.combine(steps[static_cast<std::size_t>(i)], stream);
                            }));
  fmt::print("{:10} T {:5} group_rows {:.2f} us, combine_rows {:.2f} us\n", c.name, c.num_tokens,
             group.median_us, combine.median_us);
  return {};
}

Status run(const char* json_path, const std::string& filter) {
  HALFBYTE_ASSIGN_OR_RETURN(const device::Properties properties, device::read_properties(0));
  HALFBYTE_ASSIGN_OR_RETURN(const device::Stream stream, device::Stream::create());
  HALFBYTE_ASSIGN_OR_RETURN(const double bandwidth,
                            measure_read_bandwidth(stream, std::int64_t{4} << 30));
  fmt::print("{}: {} SMs, read {:.2f} TB/s\n", properties.name, properties.num_multiprocessors,
             bandwidth / 1e12);
  std::FILE* json = json_path == nullptr ? nullptr : std::fopen(json_path, "w");
  Weights weights;
  for (const Case& c : cases()) {
    if (fmt::format("{}/{}", c.name, c.num_tokens).find(filter) == std::string::npos) continue;
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
      halfbyte::bench::run(argc > 1 ? argv[1] : nullptr, argc > 2 ? argv[2] : "");
  if (!status.ok()) fmt::print(stderr, "{}\n", status.to_string());
  return status.ok() ? 0 : 1;
}
