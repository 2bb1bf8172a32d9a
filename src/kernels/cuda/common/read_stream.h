// SPDX-License-Identifier: Apache-2.0
//
// Reading device memory once, and nothing else: how fast that goes is the ceiling of everything
// that memory bounds, and what it reads has driven all else out of the caches.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_READ_STREAM_H_
#define HALFBYTE_KERNELS_CUDA_COMMON_READ_STREAM_H_

#include <cstdint>

#include "halfbyte/status.h"

struct CUstream_st;

namespace halfbyte::cuda {

/// Reads `num_bytes`, a multiple of 16, of 16-byte aligned memory. `sink` [1] is what the reads are
/// for; it may be written. Enqueues and returns.
Status launch_read_stream(const void* src,
                          std::int64_t num_bytes,
                          std::uint32_t* sink,
                          CUstream_st* stream);

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_READ_STREAM_H_
