// SPDX-License-Identifier: Apache-2.0
#include "command.h"

namespace halfbyte::tool {

void add_bench(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("bench", "how fast a layer, an engine or a server is, and what limits it");
  command->require_subcommand(1);
  add_bench_layer(*command);
  add_bench_plot(*command);
  add_bench_engine(*command);
  add_bench_serve(*command);
}

}  // namespace halfbyte::tool
