// SPDX-License-Identifier: Apache-2.0
#include "command.h"

namespace halfbyte::tool {

void add_plan(CLI::App& app) {
  app.add_subcommand("plan", "");
}

}  // namespace halfbyte::tool
