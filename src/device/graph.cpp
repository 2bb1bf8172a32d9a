// SPDX-License-Identifier: Apache-2.0
#include "device/graph.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "device/cuda_status.h"

namespace halfbyte::device {

Result<Graph> Graph::capture(const Stream& stream, const std::function<Status()>& enqueue) {
  HALFBYTE_RETURN_IF_ERROR(
      cuda_status(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal),
                  "begin a capture"));
  Status enqueued = enqueue();
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream.handle(), &graph);
  cudaGraphExec_t handle = nullptr;
  cudaError_t instantiated = ended;
  if (enqueued.ok() && ended == cudaSuccess) instantiated = cudaGraphInstantiate(&handle, graph, 0);
  if (graph != nullptr) cudaGraphDestroy(graph);
  HALFBYTE_RETURN_IF_ERROR(std::move(enqueued));
  HALFBYTE_RETURN_IF_ERROR(cuda_status(instantiated, "capture a graph"));
  return Graph(handle);
}

Graph::~Graph() {
  if (handle_ != nullptr) cudaGraphExecDestroy(handle_);
}

Graph::Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Status Graph::launch(const Stream& stream) const {
  return cuda_status(cudaGraphLaunch(handle_, stream.handle()), "launch a graph");
}

}  // namespace halfbyte::device
