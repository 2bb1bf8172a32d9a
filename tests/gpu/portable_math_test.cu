// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <bit>
#include <random>

#include "device_data.h"
#include "kernels/cuda/common/portable_activation.h"

namespace halfbyte::cuda {
namespace {

using test::DeviceArray;

/// Counts the x of one exponent, all 2^23 of them, whose inverse is not that of a division.
__global__ void compare_reciprocals(int exponent, int* num_different) {
  const std::uint32_t mantissa = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = float_of(static_cast<std::uint32_t>(exponent + 127) << 23 | mantissa);
  if (reciprocal(x) != __frcp_rn(x)) atomicAdd(num_different, 1);
  const float tiny = x * 0x1p-40F;
  if (bounded_reciprocal(tiny) != fminf(__frcp_rn(tiny), 0x1.fffffep127F))
    atomicAdd(num_different, 1);
}

TEST(PortableMath, ReciprocalsRoundAsDivisionsDo) {
  HALFBYTE_NEED_HOPPER();
  const device::Stream stream = device::Stream::create().value();
  const DeviceArray<int> different(std::vector<int>{0}, stream);
  for (const int exponent : {-126, -90, -20, -1, 0, 1, 60, 125})
    compare_reciprocals<<<(1 << 23) / 256, 256, 0, stream.handle()>>>(exponent, different.data());
  EXPECT_EQ(different.download(), std::vector<int>{0});
}

__global__ void sigmoid_kernel(const float* x, float* y, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = portable_sigmoid(x[i]);
}

// On the host portable_sigmoid has the bits of the reference (unit tests).
TEST(PortableMath, SigmoidHasTheBitsOfTheHost) {
  HALFBYTE_NEED_HOPPER();
  const device::Stream stream = device::Stream::create().value();
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0F, 30.0F);
  std::vector<float> x = {0.0F, -0.0F, 87.0F, -87.0F, 88.0F, -88.0F, 1e30F, -1e30F, 1e-30F};
  for (int i = 0; i < 100000; ++i)
    x.push_back(i % 2 == 0 ? normal(random) : normal(random) / 16);
  const DeviceArray<float> device_x(x, stream), y(x.size(), stream);
  const int count = static_cast<int>(x.size());
  sigmoid_kernel<<<(count + 255) / 256, 256, 0, stream.handle()>>>(device_x.data(), y.data(),
                                                                   count);
  const std::vector<float> got = y.download();
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]),
              std::bit_cast<std::uint32_t>(portable_sigmoid(x[i])))
        << x[i];
}

}  // namespace
}  // namespace halfbyte::cuda
