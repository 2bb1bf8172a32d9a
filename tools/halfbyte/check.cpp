// SPDX-License-Identifier: Apache-2.0
#include "command.h"

namespace halfbyte::tool {

void add_check(CLI::App& app) {
  app.add_subcommand("check", "");
}

}  // namespace halfbyte::tool
