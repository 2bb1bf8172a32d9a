// SPDX-License-Identifier: Apache-2.0
//
// One NVFP4 MoE layer on a GPU: load it, run it once, capture a step, and replay it with other
// tokens.
#include <cuda_runtime_api.h>
#include <halfbyte/moe.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kIntermediate = 32;
constexpr std::int64_t kExperts = 4;
constexpr halfbyte::Device kGpu = {halfbyte::DeviceKind::kCuda, 0};

int fail(const halfbyte::Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}

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

// Expert e answers e + 1 times as much as expert 0.
halfbyte::Status load(halfbyte::MoeLayer& layer) {
  const Constant gate_up(kIntermediate, kHidden, 1.0F / kHidden);
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const Constant down(kHidden, kIntermediate, static_cast<float>(e + 1) / kIntermediate);
    HALFBYTE_RETURN_IF_ERROR(layer.load_expert(e, {gate_up.view, gate_up.view, down.view}));
  }
  return layer.finish_loading();
}

template <typename T>
T* allocate(std::int64_t count) {
  void* data = nullptr;
  cudaMallocManaged(&data, static_cast<std::size_t>(count) * sizeof(T), cudaMemAttachGlobal);
  return static_cast<T*>(data);
}

// One token, its two experts and its answer, in memory that host and device both see.
struct Token {
  float* y = allocate<float>(kHidden);
  std::uint16_t* x = allocate<std::uint16_t>(kHidden);
  std::int32_t* topk_idx = allocate<std::int32_t>(2);
  float* topk_weights = allocate<float>(2);

  Token() {
    for (std::int64_t i = 0; i < kHidden; ++i)
      x[i] = 0x3F80;  // 1.0 in bf16
    for (int slot = 0; slot < 2; ++slot) {
      topk_idx[slot] = slot;
      topk_weights[slot] = 0.5F;
    }
  }
  halfbyte::Status run(halfbyte::MoeLayer& layer) const {
    return layer.run({x, halfbyte::DType::kBf16, 1, kHidden, kGpu},
                     {{topk_idx, 2}, {topk_weights, 2}}, /*shared=*/{},
                     {y, halfbyte::DType::kF32, 1, kHidden, kGpu});
  }
};

halfbyte::Status capture(halfbyte::MoeLayer& layer,
                         const Token& token,
                         cudaStream_t stream,
                         cudaGraphExec_t* step) {
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  halfbyte::Status status = token.run(layer);
  cudaStreamEndCapture(stream, &graph);
  if (status.ok()) cudaGraphInstantiate(step, graph, 0);
  cudaGraphDestroy(graph);
  return status;
}

}  // namespace

int main() {
  halfbyte::MoeSpec spec;
  spec.hidden_size = kHidden;
  spec.intermediate_size = kIntermediate;
  spec.num_experts = kExperts;
  spec.top_k = 2;
  spec.y_dtype = halfbyte::DType::kF32;  // x is bf16
  halfbyte::MoeOptions options;
  options.device = kGpu;
  options.capacity_tokens = 1;
  auto created = halfbyte::MoeLayer::create(spec, options);
  if (!created.ok()) return fail(created.status());
  halfbyte::MoeLayer& layer = **created;
  cudaStream_t stream = nullptr;
  cudaStreamCreate(&stream);
  if (auto status = layer.set_stream(stream); !status.ok()) return fail(status);
  if (auto status = load(layer); !status.ok()) return fail(status);

  const Token token;
  if (auto status = token.run(layer); !status.ok()) return fail(status);
  cudaStreamSynchronize(stream);
  std::printf("%s: experts 0 and 1 give %g\n", std::string(layer.backend_name()).c_str(),
              token.y[0]);
  cudaGraphExec_t step = nullptr;
  if (auto status = capture(layer, token, stream, &step); !status.ok()) return fail(status);
  token.topk_idx[0] = 3;  // a replay reads what lies there then
  cudaGraphLaunch(step, stream);
  const cudaError_t error = cudaStreamSynchronize(stream);
  std::printf("experts 3 and 1 give %g (%s)\n", token.y[0], cudaGetErrorString(error));
  return error == cudaSuccess ? 0 : 1;
}
