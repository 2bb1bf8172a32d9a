// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_DEVICE_GRAPH_H_
#define HALFBYTE_DEVICE_GRAPH_H_

#include <cuda_runtime_api.h>

#include <functional>

#include "device/stream.h"
#include "halfbyte/result.h"

namespace halfbyte::device {

/// Owns an executable CUDA graph. Move-only. Replays read the addresses that were captured.
class Graph {
 public:
  /// Records what `enqueue` puts on the stream. When it fails the capture is ended and its status
  /// returned.
  static Result<Graph> capture(const Stream& stream, const std::function<Status()>& enqueue);
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  Status launch(const Stream& stream) const;

 private:
  explicit Graph(cudaGraphExec_t handle) : handle_(handle) {}
  cudaGraphExec_t handle_ = nullptr;
};

/// True while the stream is being captured: work that cannot be replayed must refuse.
Result<bool> is_capturing(const Stream& stream);

}  // namespace halfbyte::device

#endif  // HALFBYTE_DEVICE_GRAPH_H_
