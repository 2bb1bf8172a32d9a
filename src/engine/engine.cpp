// SPDX-License-Identifier: Apache-2.0
#include "halfbyte/engine.h"

#include <utility>

#include "engine/engine_loop.h"
#include "engine/engine_parts.h"

namespace halfbyte {

struct Engine::Impl {
  explicit Impl(EngineParts parts) : loop(std::move(parts)) {}
  EngineLoop loop;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

std::unique_ptr<Engine> EngineFactory::start(EngineParts parts) {
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Engine::Impl>(std::move(parts))));
}

Result<RequestId> Engine::submit(Request request) {
  return impl_->loop.submit(std::move(request));
}
std::vector<TokenEvent> Engine::poll(int timeout_ms) {
  return impl_->loop.poll(timeout_ms);
}
void Engine::cancel(RequestId request_id) {
  impl_->loop.cancel(request_id);
}
void Engine::set_paused(RequestId request_id, bool paused) {
  impl_->loop.set_paused(request_id, paused);
}
void Engine::flush_cache() {
  impl_->loop.flush_cache();
}
Result<std::vector<float>> Engine::score(const std::vector<std::int32_t>& ids) {
  return impl_->loop.score(ids);
}
const EngineInfo& Engine::info() const {
  return impl_->loop.info();
}
std::vector<ExpertLoad> Engine::expert_load() const {
  return impl_->loop.expert_load();
}
EngineStats Engine::stats() const {
  return impl_->loop.stats();
}
EngineHistograms Engine::histograms() const {
  return impl_->loop.histograms();
}

}  // namespace halfbyte
