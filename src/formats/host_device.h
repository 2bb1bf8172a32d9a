// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_FORMATS_HOST_DEVICE_H_
#define HALFBYTE_FORMATS_HOST_DEVICE_H_

// Marks a function that kernels and the host both call; nothing outside a CUDA compiler.
#ifdef __CUDACC__
#define HALFBYTE_HOST_DEVICE __host__ __device__
#else
#define HALFBYTE_HOST_DEVICE
#endif

#endif  // HALFBYTE_FORMATS_HOST_DEVICE_H_
