// SPDX-License-Identifier: Apache-2.0
#include "device/stream.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "device/cuda_status.h"

namespace halfbyte::device {

Result<Stream> Stream::create() {
  cudaStream_t handle = nullptr;
  HALFBYTE_RETURN_IF_ERROR(
      cuda_status(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "create a stream"));
  return Stream(handle, true);
}

Stream::~Stream() {
  if (owned_) cudaStreamDestroy(handle_);
}

Stream::Stream(Stream&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), owned_(std::exchange(other.owned_, false)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(owned_, other.owned_);
  return *this;
}

Status Stream::synchronize() const {
  return cuda_status(cudaStreamSynchronize(handle_), "synchronise a stream");
}

// The default stream answers "implicit" while a stream that it would wait for is being captured.
Result<bool> Stream::is_capturing() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(handle_, &status);
  if (error == cudaErrorStreamCaptureImplicit) {
    cudaGetLastError();  // it is answered, and not the next launch's error
    return true;
  }
  HALFBYTE_RETURN_IF_ERROR(cuda_status(error, "ask for a capture"));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace halfbyte::device
