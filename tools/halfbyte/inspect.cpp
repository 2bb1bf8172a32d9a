// SPDX-License-Identifier: Apache-2.0
#include "command.h"

namespace halfbyte::tool {

void add_inspect(CLI::App& app) {
  app.add_subcommand("inspect", "");
}

}  // namespace halfbyte::tool
