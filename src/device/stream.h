// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_DEVICE_STREAM_H_
#define HALFBYTE_DEVICE_STREAM_H_

#include <cuda_runtime_api.h>

#include "halfbyte/result.h"

namespace halfbyte::device {

/// Owns a non-blocking CUDA stream. Move-only. Thread rule: one thread at a time.
class Stream {
 public:
  static Result<Stream> create();
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  cudaStream_t handle() const { return handle_; }
  /// Waits for everything enqueued; reports faults of earlier kernels.
  Status synchronize() const;

 private:
  explicit Stream(cudaStream_t handle) : handle_(handle) {}
  cudaStream_t handle_ = nullptr;
};

}  // namespace halfbyte::device

#endif  // HALFBYTE_DEVICE_STREAM_H_
