// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_FORMATS_OWNED_MATRIX_H_
#define HALFBYTE_FORMATS_OWNED_MATRIX_H_

#include <cstdint>
#include <vector>

#include "halfbyte/moe.h"

namespace halfbyte {

/// A canonical matrix with the bytes it views. Move-only, since moving keeps the views valid.
struct OwnedMatrix {
  CanonicalMatrix view;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> block_scale;
  std::vector<float> scale;

  OwnedMatrix() = default;
  OwnedMatrix(OwnedMatrix&&) = default;
  OwnedMatrix& operator=(OwnedMatrix&&) = default;

  /// Copies `matrix`; in place when it has the sizes of the one before.
  void assign(const CanonicalMatrix& matrix) {
    codes.assign(matrix.codes.begin(), matrix.codes.end());
    block_scale.assign(matrix.block_scale.begin(), matrix.block_scale.end());
    scale.assign(matrix.scale.begin(), matrix.scale.end());
    view = matrix;
    view.codes = codes;
    view.block_scale = block_scale;
    view.scale = scale;
  }
};

}  // namespace halfbyte

#endif  // HALFBYTE_FORMATS_OWNED_MATRIX_H_
