// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/moe_decode_nvfp4.cuh"

namespace halfbyte::sm90::moe_decode {

/// In the order of list_moe_decode_tiles().
template <>
KernelPointer find_kernel<DecodeTokens::kBf16>(const MoeDecodeTile& tile) {
  if (tile == MoeDecodeTile{4, 1, 2, 4}) return moe_decode_kernel<4, 1, 2, 4, DecodeTokens::kBf16>;
  if (tile == MoeDecodeTile{4, 2, 2, 3}) return moe_decode_kernel<4, 2, 2, 3, DecodeTokens::kBf16>;
  if (tile == MoeDecodeTile{2, 1, 1, 6}) return moe_decode_kernel<2, 1, 1, 6, DecodeTokens::kBf16>;
  if (tile == MoeDecodeTile{1, 1, 1, 5}) return moe_decode_kernel<1, 1, 1, 5, DecodeTokens::kBf16>;
  return nullptr;
}

}  // namespace halfbyte::sm90::moe_decode
