// SPDX-License-Identifier: Apache-2.0
//
// `bench layer` and `bench plot` as a program of their own, for machines that have a GPU and few of
// the project's other dependencies (scripts/gpu).
#include "command.h"

int main(int argc, char** argv) {
  CLI::App app("halfbyte: how fast a layer is, and what limits it", "halfbyte_layer_bench");
  app.require_subcommand(1);
  halfbyte::tool::add_bench_layer(app);
  halfbyte::tool::add_bench_plot(app);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
