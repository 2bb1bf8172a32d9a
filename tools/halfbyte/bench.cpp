// SPDX-License-Identifier: Apache-2.0
#include "command.h"

namespace halfbyte::tool {

void add_bench(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("bench", "how fast a layer or an engine is here, and what limits it");
  command->require_subcommand(1);
  add_bench_layer(*command);
  add_bench_engine(*command);
}

}  // namespace halfbyte::tool
