// SPDX-License-Identifier: Apache-2.0
#include "command.h"

int main(int argc, char** argv) {
  CLI::App app("halfbyte: runs NVFP4 mixture-of-experts language models on the machine at hand",
               "halfbyte");
  app.set_version_flag("--version", std::string("halfbyte ") + HALFBYTE_VERSION);
  app.require_subcommand(1);
  halfbyte::tool::add_run(app);
  halfbyte::tool::add_eval(app);
  halfbyte::tool::add_inspect(app);
  halfbyte::tool::add_check(app);
  halfbyte::tool::add_plan(app);
  halfbyte::tool::add_tokenize(app);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
