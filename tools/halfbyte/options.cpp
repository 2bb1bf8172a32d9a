// SPDX-License-Identifier: Apache-2.0
#include "command.h"

namespace halfbyte::tool {

void add_moe_options(CLI::App& command, MoeOptions& options) {
  (void)command;
  (void)options;
}

void add_engine_options(CLI::App& command, EngineOptions& options) {
  (void)command;
  (void)options;
}

void add_token_budget_options(CLI::App& command, TokenBudgetOptions& options) {
  (void)command;
  (void)options;
}

}  // namespace halfbyte::tool
