// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_BACKENDS_H_
#define HALFBYTE_BACKENDS_H_

#include <string>
#include <vector>

#include "halfbyte/moe.h"

namespace halfbyte {

/// One (transport, backend) pair of the registry and what it says of a layer.
struct BackendReport {
  std::string transport;
  std::string backend;
  std::string taken_by_auto;  // "world 1", "world > 1" or "no"
  Status can_run;             // ok, or the reason
  std::string note;           // ok: what it would run with, for example the instruction set
};

/// Asks every pair of the registry, in its order, whether it can run the layer here. Any thread; of
/// `options` the activation mode is read, and the CUDA device that backends of one are asked about
/// (the first unless named).
std::vector<BackendReport> list_backends(const MoeSpec& spec, const MoeOptions& options);

}  // namespace halfbyte

#endif  // HALFBYTE_BACKENDS_H_
