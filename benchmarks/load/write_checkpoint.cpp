// SPDX-License-Identifier: Apache-2.0
//
// Writes a checkpoint as wide as Qwen3-30B-A3B and a few layers deep, with random weights: what
// `halfbyte bench engine` and profilers run where no real one is at hand.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <string>

#include "synthetic_checkpoint.h"

namespace halfbyte::benchmarks {
namespace {

constexpr std::int64_t kModelLayers = 48;
constexpr std::int64_t kModelVocab = 151936;
constexpr SyntheticSizes kModel = {.layers = kModelLayers,
                                   .hidden = 2048,
                                   .intermediate = 768,
                                   .experts = 128,
                                   .top_k = 8,
                                   .heads = 32,
                                   .kv_heads = 4,
                                   .head_dim = 128,
                                   .vocab = kModelVocab,
                                   .context = 40960};

struct Options {
  std::string directory;
  std::string tokenizer_from;
  std::int64_t layers = 4;
  std::int64_t vocab = 0;  // 0: cut as the layers are
};

// The head of a model that lost most of its layers would be most of its work: it is cut alike.
std::int64_t cut_vocab(std::int64_t layers) {
  return (kModelVocab * layers / kModelLayers + 63) / 64 * 64;
}

void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    if (!std::filesystem::exists(from / file)) continue;
    std::filesystem::copy_file(from / file, to / file,
                               std::filesystem::copy_options::overwrite_existing);
  }
}

void write(const Options& options) {
  SyntheticSizes sizes = kModel;
  sizes.layers = options.layers;
  sizes.vocab = options.vocab > 0 ? options.vocab : cut_vocab(options.layers);
  sizes.shards = options.layers;
  std::filesystem::create_directories(options.directory);
  const SyntheticCheckpoint written = write_synthetic_checkpoint(options.directory, sizes);
  if (!options.tokenizer_from.empty()) copy_tokenizer(options.tokenizer_from, options.directory);
  fmt::print("{}: {} layers, {} tokens of vocabulary, {} tensors, {:.2f} GB\n", options.directory,
             sizes.layers, sizes.vocab, written.num_tensors,
             static_cast<double>(written.tensor_bytes) * 1e-9);
}

}  // namespace
}  // namespace halfbyte::benchmarks

int main(int argc, char** argv) {
  using namespace halfbyte::benchmarks;
  Options options;
  CLI::App app("Writes a synthetic checkpoint as wide as Qwen3-30B-A3B");
  app.add_option("directory", options.directory, "where to; made if it is not there")->required();
  app.add_option("--layers", options.layers, "of the model's 48")
      ->check(CLI::Range(std::int64_t{1}, kModelLayers))
      ->capture_default_str();
  app.add_option("--vocab", options.vocab, "default: cut as the layers are")
      ->check(CLI::Range(std::int64_t{1}, kModelVocab));
  app.add_option("--tokenizer-from", options.tokenizer_from,
                 "copy tokenizer and chat template of this model")
      ->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);
  try {
    write(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
