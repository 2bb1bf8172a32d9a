// SPDX-License-Identifier: Apache-2.0
//
// One function per command, in a file of its name. Only this folder reads the environment and
// prints.
#ifndef HALFBYTE_TOOLS_HALFBYTE_COMMAND_H_
#define HALFBYTE_TOOLS_HALFBYTE_COMMAND_H_

#include <CLI/CLI.hpp>
#include <ios>
#include <nlohmann/json.hpp>
#include <string>

#include "halfbyte/engine.h"
#include "moe/token_budget.h"

namespace halfbyte::tool {

// Adds the command to `app`; its callback runs it and throws CLI::RuntimeError(status) to exit
// non-zero.
void add_run(CLI::App& app);
void add_serve(CLI::App& app);
void add_eval(CLI::App& app);
void add_inspect(CLI::App& app);  // a model, or `inspect backends`
void add_inspect_backends(CLI::App& inspect);
void add_check(CLI::App& app);
void add_plan(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_bench(CLI::App& app);  // `bench layer`, `bench plot`, `bench engine`, `bench serve`
void add_bench_layer(CLI::App& bench);
void add_bench_plot(CLI::App& bench);
void add_bench_engine(CLI::App& bench);
void add_bench_serve(CLI::App& bench);

// ---- shared by the commands (options.cpp, output.cpp)

/// Options of the MoE layer (nvfp4-moe 11.2) that run, eval, check and plan share.
void add_moe_options(CLI::App& command, MoeOptions& options);
/// The part of them that chooses a CPU's kernels, as soon as it is parsed.
void add_cpu_isa_option(CLI::App& command);
/// Those of them that say whether tactics are measured and where they are kept.
void add_tuning_options(CLI::App& command, MoeOptions& options);
/// Options of the engine beyond them: dtypes, token limits, --ignore-index.
void add_engine_options(CLI::App& command, EngineOptions& options);
/// Options that only size the token budget.
void add_token_budget_options(CLI::App& command, TokenBudgetOptions& options);

inline constexpr std::string_view kModelFolder =
    "a model's folder with config.json, tokenizer.json and .safetensors files";

/// Prints "error: <status>" on stderr and throws CLI::RuntimeError(1); no effect when ok.
void exit_on_error(const Status& status);
template <typename T>
T value_or_exit(Result<T> result) {
  if (!result.ok()) exit_on_error(result.status());
  return std::move(result).value();
}
/// Ends the command as exit_on_error does when `event` is a request's error; its text has the code.
void exit_on_error(const TokenEvent& event);
/// kNotFound unless `path` is a folder: told the same way by every command, before any file of it.
void exit_unless_folder(const std::string& path, std::string_view wanted = kModelFolder);
/// Exits on an error. `mode`: std::ios::trunc or std::ios::app.
void write_file(const std::string& path, const std::string& text, std::ios::openmode mode);
/// Prints one JSON object on stdout.
void print_json(const nlohmann::ordered_json& json);
/// A sink that prints "notice: ..." on stderr.
void print_notice(std::string_view line);
/// A progress line on stderr when it is a terminal, one line per tenth otherwise.
void print_progress(std::string_view what, std::int64_t done, std::int64_t total);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_COMMAND_H_
