// SPDX-License-Identifier: Apache-2.0
//
// `halfbyte bench plot`: results of `bench layer` as a picture.
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <sstream>

#include "bench/layer_plot.h"
#include "command.h"

namespace halfbyte::tool {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string output;
  std::string title = "MoE layer";
};

std::string read_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) exit_on_error({StatusCode::kNotFound, fmt::format("{}: cannot be read", path)});
  return text.str() + "\n";
}

void run_bench_plot(const Options& options) {
  std::string lines;
  for (const std::string& path : options.files)
    lines += read_lines(path);
  write_file(options.output, value_or_exit(plot_layers(options.title, lines)), std::ios::trunc);
}

}  // namespace

void add_bench_plot(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand(
      "plot",
      "Draws rows of `bench layer --json` as an SVG: time, and share of the limit, over tokens;\n"
      "a curve for each shape, mode and backend.\n\n"
      "Example:\n"
      "  halfbyte bench layer --shape qwen3-30b-a3b --tokens 1,8,64,512 --json layer.jsonl\n"
      "  halfbyte bench plot layer.jsonl --output layer.svg");
  command->add_option("files", options->files, "files of JSON lines")->required();
  command->add_option("-o,--output", options->output, "the SVG to write")->required();
  command->add_option("--title", options->title, "above the picture")->capture_default_str();
  command->callback([options] { run_bench_plot(*options); });
}

}  // namespace halfbyte::tool
