// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_DEVICE_STREAM_H_
#define HALFBYTE_DEVICE_STREAM_H_

#include "halfbyte/result.h"

struct CUstream_st;  // cudaStream_t points to it: the headers of this folder need no CUDA

namespace halfbyte::device {

/// A CUDA stream: a non-blocking one of its own, or a borrowed one. Move-only. Thread rule: one
/// thread at a time.
class Stream {
 public:
  static Result<Stream> create();
  /// Somebody else's, which outlives this; null is the device's default stream.
  static Stream borrow(CUstream_st* handle) { return Stream(handle, false); }
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  CUstream_st* handle() const { return handle_; }
  /// Waits for everything enqueued; reports faults of earlier kernels.
  Status synchronize() const;
  /// True while it is being captured into a graph: work that cannot be replayed must refuse. Leaves
  /// the capture as it is.
  Result<bool> is_capturing() const;

 private:
  Stream(CUstream_st* handle, bool owned) : handle_(handle), owned_(owned) {}
  CUstream_st* handle_ = nullptr;
  [[maybe_unused]] bool owned_ = false;
};

}  // namespace halfbyte::device

#endif  // HALFBYTE_DEVICE_STREAM_H_
