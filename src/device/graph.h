// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_DEVICE_GRAPH_H_
#define HALFBYTE_DEVICE_GRAPH_H_

#include <functional>

#include "device/stream.h"
#include "halfbyte/result.h"

struct CUgraphExec_st;  // cudaGraphExec_t points to it

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
  explicit Graph(CUgraphExec_st* handle) : handle_(handle) {}
  [[maybe_unused]] CUgraphExec_st* handle_ = nullptr;
};

}  // namespace halfbyte::device

#endif  // HALFBYTE_DEVICE_GRAPH_H_
