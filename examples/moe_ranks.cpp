// SPDX-License-Identifier: Apache-2.0
//
// One NVFP4 MoE layer over two ranks, each with half of the experts: threads of one process.
#include <halfbyte/moe.h>
#include <halfbyte/transport.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kRanks = 2;
constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kIntermediate = 32;
constexpr std::int64_t kExperts = 4;

// A matrix whose weights all are `value`: code 0x2 is 1.0, block scale 0x38 is 1.0.
struct Constant {
  Constant(std::int64_t rows, std::int64_t cols, float value)
      : codes(static_cast<std::size_t>(rows * cols / 2), 0x22),
        block_scale(static_cast<std::size_t>(rows * cols / 16), 0x38) {
    view.rows = rows;
    view.cols = cols;
    view.codes = codes;
    view.block_scale = block_scale;
    view.global_scale = value;
  }
  std::vector<std::uint8_t> codes, block_scale;
  halfbyte::CanonicalMatrix view;
};

// Expert e answers e + 1 times as much as expert 0. Those of the other rank are ignored.
halfbyte::Status load(halfbyte::MoeLayer& layer) {
  const Constant gate_up(kIntermediate, kHidden, 1.0F / kHidden);
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const Constant down(kHidden, kIntermediate, static_cast<float>(e + 1) / kIntermediate);
    HALFBYTE_RETURN_IF_ERROR(layer.load_expert(e, {gate_up.view, gate_up.view, down.view}));
  }
  return layer.finish_loading();
}

// What each rank does; all ranks have the same token, and each gets the whole answer.
halfbyte::Status run_rank(halfbyte::Transport& transport, float& answer) {
  halfbyte::MoeSpec spec;
  spec.hidden_size = kHidden;
  spec.intermediate_size = kIntermediate;
  spec.num_experts = kExperts;
  spec.top_k = 2;
  spec.x_dtype = spec.y_dtype = halfbyte::DType::kF32;
  halfbyte::MoeOptions options;
  options.capacity_tokens = 1;
  options.tp_size = options.ep_size = kRanks;
  HALFBYTE_ASSIGN_OR_RETURN(const auto layer,
                            halfbyte::MoeLayer::create(spec, options, {}, &transport));
  HALFBYTE_RETURN_IF_ERROR(load(*layer));
  const std::vector<float> x(kHidden, 1.0F);
  std::vector<float> y(kHidden);
  const std::vector<std::int32_t> topk_idx = {0, 3};  // one expert of each rank
  const std::vector<float> topk_weights = {0.5F, 0.5F};
  HALFBYTE_RETURN_IF_ERROR(layer->run({x.data(), spec.x_dtype, 1, kHidden},
                                      {topk_idx, topk_weights}, /*shared=*/{},
                                      {y.data(), spec.y_dtype, 1, kHidden}));
  answer = y[0];
  return {};
}

}  // namespace

int main() {
  const auto ranks = halfbyte::make_in_process_ranks(kRanks);
  if (!ranks.ok()) return 1;
  std::vector<halfbyte::Status> status(kRanks);
  std::vector<float> answer(kRanks);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      status[rank] = run_rank(*(*ranks)[rank], answer[rank]);
      if (!status[rank].ok()) halfbyte::abort_ranks(*(*ranks)[rank], status[rank]);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    if (!status[rank].ok()) {
      std::fprintf(stderr, "rank %zu: %s\n", rank, status[rank].to_string().c_str());
      return 1;
    }
    std::printf("rank %zu: %g\n", rank, answer[rank]);
  }
}
