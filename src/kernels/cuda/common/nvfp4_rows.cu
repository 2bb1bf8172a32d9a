// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/common/nvfp4_rows.cuh"

#include <algorithm>

#include "kernels/cuda/common/launch.cuh"

namespace halfbyte::cuda {
namespace {

constexpr std::int64_t kMaxBlocks = 4096;  // some waves of any device; a block takes several rows

template <typename Kernel, typename Params>
Status launch_over_rows(const char* name,
                        Kernel kernel,
                        std::int64_t max_rows,
                        const Params& params,
                        CUstream_st* stream) {
  if (max_rows == 0) return {};
  const auto blocks = static_cast<unsigned>(std::min(max_rows, kMaxBlocks));
  return launch_overlapped(name, kernel, {dim3(blocks), nvfp4_rows::kNumThreads, 0}, stream,
                           params);
}

}  // namespace

Status launch_quantize_rows(std::int64_t num_rows,
                            std::int64_t cols,
                            const QuantizeRowsArgs& args,
                            CUstream_st* stream) {
  const nvfp4_rows::QuantizeParams params = {args, num_rows, cols};
  return launch_over_rows("nvfp4_rows: quantize", nvfp4_rows::quantize_kernel, num_rows, params,
                          stream);
}

Status launch_gather_rows(const Nvfp4Operand& operand,
                          const GatherRowsArgs& args,
                          CUstream_st* stream) {
  const nvfp4_rows::GatherParams params = {args, operand};
  return launch_over_rows("nvfp4_rows: gather", nvfp4_rows::gather_kernel, args.routes.max_routes,
                          params, stream);
}

Status launch_activate_rows(const Nvfp4Operand& operand,
                            const ActivateRowsArgs& args,
                            CUstream_st* stream) {
  const nvfp4_rows::ActivateParams params = {args, operand};
  return launch_over_rows("nvfp4_rows: activate", nvfp4_rows::activate_kernel,
                          args.routes.max_routes, params, stream);
}

Status launch_scale_rows(std::int64_t cols, const ScaleRowsArgs& args, CUstream_st* stream) {
  const nvfp4_rows::ScaleParams params = {args, cols};
  return launch_over_rows("nvfp4_rows: scale", nvfp4_rows::scale_kernel, args.routes.max_routes,
                          params, stream);
}

}  // namespace halfbyte::cuda
