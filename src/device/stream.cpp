// SPDX-License-Identifier: Apache-2.0
#include "device/stream.h"

#include <utility>

#include "device/cuda_status.h"

namespace halfbyte::device {

Result<Stream> Stream::create() {
  cudaStream_t handle = nullptr;
  HALFBYTE_RETURN_IF_ERROR(
      cuda_status(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "create a stream"));
  return Stream(handle);
}

Stream::~Stream() {
  if (handle_ != nullptr) cudaStreamDestroy(handle_);
}

Stream::Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Status Stream::synchronize() const {
  return cuda_status(cudaStreamSynchronize(handle_), "synchronise a stream");
}

}  // namespace halfbyte::device
