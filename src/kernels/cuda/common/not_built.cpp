// SPDX-License-Identifier: Apache-2.0
//
// The launches of this folder in a build without CUDA. Their plans are the real ones.
#include "kernels/cuda/common/combine_rows.h"
#include "kernels/cuda/common/group_rows.h"
#include "kernels/cuda/common/nvfp4_rows.h"
#include "kernels/cuda/common/read_stream.h"
#include "kernels/cuda/common/route_rows.h"

namespace halfbyte::cuda {
namespace {

Status not_built() {
  return {StatusCode::kUnsupported, "CUDA kernels are not built (HALFBYTE_CUDA is off)"};
}

}  // namespace

Status launch(const CombineRowsShape& /*shape*/,
              const CombineRowsConfig& /*config*/,
              const CombineRowsArgs& /*args*/,
              CUstream_st* /*stream*/) {
  return not_built();
}
Status launch(const GroupRowsShape& /*shape*/,
              const GroupRowsConfig& /*config*/,
              const GroupRowsArgs& /*args*/,
              CUstream_st* /*stream*/) {
  return not_built();
}
Status launch(const RouteRowsShape& /*shape*/,
              const RouteRowsArgs& /*args*/,
              CUstream_st* /*stream*/) {
  return not_built();
}
Status launch_quantize_rows(std::int64_t /*num_rows*/,
                            std::int64_t /*cols*/,
                            const QuantizeRowsArgs& /*args*/,
                            CUstream_st* /*stream*/) {
  return not_built();
}
Status launch_gather_rows(const Nvfp4Operand& /*operand*/,
                          const GatherRowsArgs& /*args*/,
                          CUstream_st* /*stream*/) {
  return not_built();
}
Status launch_activate_rows(const Nvfp4Operand& /*operand*/,
                            const ActivateRowsArgs& /*args*/,
                            CUstream_st* /*stream*/) {
  return not_built();
}
Status launch_read_stream(const void* /*src*/,
                          std::int64_t /*num_bytes*/,
                          std::uint32_t* /*sink*/,
                          CUstream_st* /*stream*/) {
  return not_built();
}
Status launch_scale_rows(std::int64_t /*cols*/,
                         const ScaleRowsArgs& /*args*/,
                         CUstream_st* /*stream*/) {
  return not_built();
}

}  // namespace halfbyte::cuda
