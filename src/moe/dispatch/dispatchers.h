// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_DISPATCH_DISPATCHERS_H_
#define HALFBYTE_MOE_DISPATCH_DISPATCHERS_H_

#include <memory>

#include "moe/dispatcher.h"

namespace halfbyte {

/// One rank: permute and unpermute, nothing travels.
std::unique_ptr<Dispatcher> make_local_dispatcher();
std::unique_ptr<Dispatcher> make_local_cuda_dispatcher();
/// What both ask of a plan: one rank, and a payload as given.
Status check_one_rank(const DispatchPlan& request);

/// Tensor- and data-parallel ranks (nvfp4-moe 9.3): tokens replicated, or gathered from every data
/// parallel group; every rank computes its experts on all of them.
std::unique_ptr<Dispatcher> make_standard_dispatcher(Transport* transport);
/// Each token travels once to every rank that owns one of its experts (nvfp4-moe 9.4).
std::unique_ptr<Dispatcher> make_all_to_all_dispatcher(Transport* transport);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_DISPATCH_DISPATCHERS_H_
