// SPDX-License-Identifier: Apache-2.0
#include "command.h"

namespace halfbyte::tool {

void add_eval(CLI::App& app) {
  app.add_subcommand("eval", "");
}

}  // namespace halfbyte::tool
