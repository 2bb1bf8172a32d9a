// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/not_built.h"

#include <fmt/format.h>

#include <utility>

namespace halfbyte {
namespace {

class NotBuiltBackend final : public ExpertBackend {
 public:
  NotBuiltBackend(std::string name, std::string reason)
      : name_(std::move(name)), reason_(std::move(reason)) {}

  std::string_view name() const override { return name_; }
  Status can_use(const DeviceLimits& /*limits*/) const override { return refusal(); }
  Status can_run(const MoeSpec& /*spec*/, ActivationMode /*mode*/) const override {
    return refusal();
  }
  std::string note() const override { return reason_; }
  ActivationMode resolve_auto(const MoeSpec& /*spec*/) const override {
    return ActivationMode::kW4a16;
  }
  Result<ExpertPlan> plan(ExpertPlan /*request*/) const override { return refusal(); }
  Result<std::unique_ptr<PreparedExpertWeights>> allocate(const ExpertPlan& /*plan*/) override {
    return refusal();
  }
  Status prepare(const ExpertPlan& /*plan*/,
                 std::int64_t /*local_expert_idx*/,
                 const CanonicalExpert& /*expert*/,
                 PreparedExpertWeights& /*prepared*/,
                 device::Stream* /*stream*/) override {
    return refusal();
  }
  Status set_scales(const ExpertPlan& /*plan*/,
                    const ExpertScales& /*scales*/,
                    PreparedExpertWeights& /*prepared*/,
                    device::Stream* /*stream*/) override {
    return refusal();
  }
  Status warm_up(const ExpertPlan& /*plan*/,
                 const PreparedExpertWeights& /*prepared*/,
                 Workspace /*workspace*/,
                 device::Stream* /*stream*/) override {
    return refusal();
  }
  Status run(const ExpertPlan& /*plan*/,
             const PreparedExpertWeights& /*prepared*/,
             const DispatchedTokens& /*tokens*/,
             const ExpertOutput& /*output*/,
             Workspace /*workspace*/,
             device::Stream* /*stream*/) override {
    return refusal();
  }

 private:
  Status refusal() const {
    return {StatusCode::kUnsupported, fmt::format("{}: not built ({})", name_, reason_)};
  }

  std::string name_;
  std::string reason_;
};

}  // namespace

std::shared_ptr<ExpertBackend> make_not_built_backend(std::string name, std::string reason) {
  return std::make_shared<NotBuiltBackend>(std::move(name), std::move(reason));
}

}  // namespace halfbyte
