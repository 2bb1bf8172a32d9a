// SPDX-License-Identifier: Apache-2.0
#include "command.h"

namespace halfbyte::tool {

void add_run(CLI::App& app) {
  app.add_subcommand("run", "");
}

}  // namespace halfbyte::tool
