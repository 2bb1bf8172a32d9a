// SPDX-License-Identifier: Apache-2.0
//
// The matrix product that layers bound by multiplying are compared with: cuBLAS's, loaded at run
// time, so that neither a build nor a run needs it.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "bench/device_timing.h"
#include "bench/synthetic_layer.h"
#include "device/buffer.h"

namespace halfbyte::tool {
namespace {

constexpr std::array kLibraries = {"libcublas.so.13", "libcublas.so.12"};
constexpr int kSize = 8192;
constexpr int kSteps = 4;
constexpr std::int64_t kRandomRows = 251;  // of a matrix, then again

// Values of cublas_api.h and library_types.h, which no version changes.
constexpr int kTransposed = 1, kPlain = 0;
constexpr int kBfloat16 = 14;
constexpr int kComputeFloat32 = 68;
constexpr int kDefaultAlgorithm = -1;

class Cublas {
 public:
  static Result<Cublas> load(const device::Stream& stream);

  /// c = a @ b.T, [kSize, kSize] bf16 each.
  Status multiply(const void* a, const void* b, void* c) const {
    const float one = 1.0F;
    const float zero = 0.0F;
    return check("cublasGemmEx", gemm_(handle_, kTransposed, kPlain, kSize, kSize, kSize, &one, b,
                                       kBfloat16, kSize, a, kBfloat16, kSize, &zero, c, kBfloat16,
                                       kSize, kComputeFloat32, kDefaultAlgorithm));
  }

 private:
  using Create = int (*)(void**);
  using SetStream = int (*)(void*, CUstream_st*);
  using Gemm = int (*)(void*,
                       int,
                       int,
                       int,
                       int,
                       int,
                       const void*,
                       const void*,
                       int,
                       int,
                       const void*,
                       int,
                       int,
                       const void*,
                       void*,
                       int,
                       int,
                       int,
                       int);

  static Status check(std::string_view call, int code) {
    if (code == 0) return {};
    return {StatusCode::kDeviceError, fmt::format("{} gives status {}", call, code)};
  }

  void* handle_ = nullptr;  // lives as long as the process, as the library does
  Gemm gemm_ = nullptr;
};

void* open_library() {
  for (const char* name : kLibraries) {
    if (void* library = dlopen(name, RTLD_NOW)) return library;
  }
  return nullptr;
}

Result<Cublas> Cublas::load(const device::Stream& stream) {
  void* library = open_library();
  if (library == nullptr) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("{} is not found: put its folder into LD_LIBRARY_PATH", kLibraries.front()));
  }
  const auto create = reinterpret_cast<Create>(dlsym(library, "cublasCreate_v2"));
  const auto set_stream = reinterpret_cast<SetStream>(dlsym(library, "cublasSetStream_v2"));
  Cublas cublas;
  cublas.gemm_ = reinterpret_cast<Gemm>(dlsym(library, "cublasGemmEx"));
  if (create == nullptr || set_stream == nullptr || cublas.gemm_ == nullptr)
    return Status(StatusCode::kUnsupported, "cuBLAS lacks a call that every version has");
  HALFBYTE_RETURN_IF_ERROR(check("cublasCreate", create(&cublas.handle_)));
  HALFBYTE_RETURN_IF_ERROR(check("cublasSetStream", set_stream(cublas.handle_, stream.handle())));
  return cublas;
}

// Random: zeros would let it run faster than any layer.
Result<device::DeviceBuffer> random_matrix(const device::Stream& stream) {
  constexpr std::int64_t kRowBytes = 2 * kSize;
  HALFBYTE_ASSIGN_OR_RETURN(
      device::DeviceBuffer matrix,
      device::DeviceBuffer::allocate(static_cast<std::size_t>(kSize * kRowBytes)));
  const std::vector<std::uint16_t> rows = make_synthetic_rows(kRandomRows, kSize);
  for (std::int64_t row = 0; row < kSize; row += kRandomRows) {
    const auto bytes = static_cast<std::size_t>(std::min(kRandomRows, kSize - row) * kRowBytes);
    HALFBYTE_RETURN_IF_ERROR(matrix.upload(std::as_bytes(std::span(rows)).first(bytes),
                                           static_cast<std::size_t>(row * kRowBytes), stream));
  }
  HALFBYTE_RETURN_IF_ERROR(stream.synchronize());
  return matrix;
}

}  // namespace

Result<double> measure_bf16_product(const device::Stream& stream, int device_idx) {
  HALFBYTE_ASSIGN_OR_RETURN(const Cublas cublas, Cublas::load(stream));
  HALFBYTE_ASSIGN_OR_RETURN(const auto a, random_matrix(stream));
  HALFBYTE_ASSIGN_OR_RETURN(const auto b, random_matrix(stream));
  HALFBYTE_ASSIGN_OR_RETURN(const auto c, device::DeviceBuffer::allocate(a.size()));
  const auto multiply = [&](int) { return cublas.multiply(a.data(), b.data(), c.data()); };
  HALFBYTE_RETURN_IF_ERROR(multiply(0));  // what it does once, before the capture
  HALFBYTE_RETURN_IF_ERROR(stream.synchronize());
  HALFBYTE_ASSIGN_OR_RETURN(const GraphTiming timing,
                            time_graph(stream, device_idx, kSteps, multiply));
  constexpr double kOperations = 2.0 * kSize * kSize * kSize;
  return kOperations / (timing.median_us * 1e-6);
}

}  // namespace halfbyte::tool
