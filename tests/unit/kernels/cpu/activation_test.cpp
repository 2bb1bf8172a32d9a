// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/kernel_table.h"
#include "kernels/reference/activation.h"

namespace halfbyte::cpu {
namespace {

// Every exponent and sign, both infinities, a NaN and the borders of the portable sigmoid.
std::vector<float> interesting_values() {
  std::vector<float> values = {0.0F, -0.0F, 87.0F, -87.0F, 87.1F, -87.1F, -1e30F, 1e30F};
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(-std::numeric_limits<float>::infinity());
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  for (std::uint32_t bits = 0x20000000U; bits < 0x45000000U; bits += 0x00012345U) {
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(-std::bit_cast<float>(bits));
  }
  while (values.size() % 8 != 0)
    values.push_back(1.0F);
  return values;
}

bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

const ActivationSpec kSpecs[] = {
    {.function = ActivationFunction::kSwiglu},
    {.function = ActivationFunction::kSwigluClamped, .alpha = 1.702F, .beta = 1.0F, .limit = 7.0F},
    {.function = ActivationFunction::kSwigluClamped, .alpha = 1.0F, .beta = 0.0F},
    {.function = ActivationFunction::kRelu2},
    {.function = ActivationFunction::kGegluTanh},
};

// docs/numerics.md: the portable sigmoid gives the same bits on every backend.
TEST(CpuActivation, HasTheBitsOfTheReference) {
  const std::vector<float> g = interesting_values();
  for (const KernelTable* table : list_kernel_tables()) {
    if (table->activate == nullptr || !missing_feature(*table).empty()) continue;
    for (const ActivationSpec& spec : kSpecs) {
      for (const float up : {-3.0F, 0.37F, 12.5F, std::numeric_limits<float>::quiet_NaN()}) {
        const std::vector<float> u(g.size(), up);
        std::vector<float> h(g.size());
        table->activate(spec, g.data(), u.data(), std::ssize(g), h.data());
        for (std::size_t i = 0; i < g.size(); ++i) {
          ASSERT_TRUE(same_bits(h[i], reference::activate(spec, g[i], up)))
              << table->name << " function " << static_cast<int>(spec.function) << " g " << g[i]
              << " u " << up << " got " << h[i] << " want " << reference::activate(spec, g[i], up);
        }
      }
    }
  }
}

TEST(CpuActivation, AnUngatedFunctionNeedsNoGate) {
  const std::vector<float> u = interesting_values();
  std::vector<float> h(u.size());
  for (const KernelTable* table : list_kernel_tables()) {
    if (table->activate == nullptr || !missing_feature(*table).empty()) continue;
    const ActivationSpec spec{.function = ActivationFunction::kRelu2};
    table->activate(spec, nullptr, u.data(), std::ssize(u), h.data());
    for (std::size_t i = 0; i < u.size(); ++i)
      ASSERT_TRUE(same_bits(h[i], reference::activate(spec, 0.0F, u[i]))) << u[i];
  }
}

}  // namespace
}  // namespace halfbyte::cpu
