// SPDX-License-Identifier: Apache-2.0
#include "command.h"

namespace halfbyte::tool {

void add_tokenize(CLI::App& app) {
  app.add_subcommand("tokenize", "");
}

}  // namespace halfbyte::tool
