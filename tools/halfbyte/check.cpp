// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "command.h"
#include "weights/checkpoint_weights.h"

namespace halfbyte::tool {
namespace {

struct CheckOptions {
  std::string model;
  bool ignore_index = false;
};

void check(const CheckOptions& options) {
  const auto notices = std::make_shared<NoticeSink>(print_notice);
  const auto weights =
      value_or_exit(CheckpointWeights::open(options.model, options.ignore_index, notices));
  exit_on_error(weights->check_all_bytes());
  const CheckpointSummary summary = weights->summarize();
  fmt::print(
      "{} tensors: scalars, shapes and block scales are good; {:.2f} % of the block scales "
      "are at the largest value\n",
      summary.num_tensors, 100.0 * summary.saturated_block_scale_share);
}

}  // namespace

void add_check(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "check", "Reads every byte of a checkpoint that matters; exit status 1 on any fault");
  const auto options = std::make_shared<CheckOptions>();
  command->add_option("model", options->model, "Directory of the checkpoint")
      ->type_name("MODEL")
      ->required();
  command->add_flag("--ignore-index", options->ignore_index,
                    "Read every safetensors file of the directory");
  command->callback([options] { check(*options); });
}

}  // namespace halfbyte::tool
