// SPDX-License-Identifier: Apache-2.0
//
// The AVX-512 kernels on any machine.
#include "emulated_avx512.h"

#include "kernels/cpu/integer_avx512.cpp"
