// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "command.h"

namespace halfbyte::tool {
namespace {

constexpr int kErrorStatus = 1;

int print_error(StatusCode code, const std::string& message) {
  fmt::print(stderr, "error: {}\n", Status(code, message).to_string());
  return kErrorStatus;
}

// The innermost command that was named on the command line.
const CLI::App& named_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty())
    command = command->get_subcommands().front();
  return *command;
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : full_name(*parent) + " " + command.get_name();
}

// A value that came from the environment is not on the command line: its variable is named.
std::string name_variable(const CLI::App& command, const std::string& text) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string variable = option->get_envname();
    const char* value = variable.empty() ? nullptr : std::getenv(variable.c_str());
    if (value == nullptr || !text.starts_with(option->get_name())) continue;
    if (option->results() == std::vector<std::string>{value}) {
      return fmt::format(" (from {}={})", variable, value);
    }
  }
  return {};
}

// Characters to insert, drop or change to make one of the other.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// The option that was probably meant: of a third of its letters at most.
std::string suggest_option(const CLI::App& command, std::string_view word) {
  word = word.substr(0, word.find('='));
  std::string nearest;
  std::size_t least = word.size() / 3 + 1;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const std::size_t distance = edit_distance(word, "--" + name);
      if (distance >= least) continue;
      least = distance;
      nearest = name;
    }
  }
  return nearest.empty() ? std::string() : fmt::format(", did you mean --{}?", nearest);
}

// A word that nobody asked for explains a required one that is absent, so it is named first.
std::string describe(const CLI::ParseError& error, const CLI::App& app) {
  const CLI::App& command = named_command(app);
  const std::vector<std::string> words = command.remaining();
  std::string text = error.what();
  if (!words.empty()) {
    const bool is_option = words.front().starts_with("-");
    text = fmt::format("\"{}\" is not {} of {}{}", words.front(),
                       is_option ? "an option" : "a command or argument", full_name(command),
                       is_option ? suggest_option(command, words.front()) : "");
  }
  if (text == "--model-path is required") text = "MODEL, the folder of a model, is required";
  std::replace(text.begin(), text.end(), '\n', ' ');
  return fmt::format("{}{}: see {} --help", text, name_variable(command, text), full_name(command));
}

int run_command(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::RuntimeError& end) {  // said why already
    return end.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return print_error(StatusCode::kInvalidArgument, describe(error, app));
  } catch (const std::bad_alloc&) {
    return print_error(StatusCode::kOutOfMemory, "host memory ran out");
  } catch (const std::exception& error) {
    return print_error(StatusCode::kInternal, error.what());
  }
}

// An answer that did not arrive is an error, also when only the last flush tells.
int finish_output(int status) {
  const bool lost = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !lost) return status;
  return print_error(StatusCode::kInternal, fmt::format("standard output cannot be written: {}",
                                                        std::strerror(lost ? EIO : errno)));
}

}  // namespace
}  // namespace halfbyte::tool

int main(int argc, char** argv) {
  CLI::App app("halfbyte: runs NVFP4 mixture-of-experts language models on the machine at hand",
               "halfbyte");
  app.set_version_flag("--version", std::string("halfbyte ") + HALFBYTE_VERSION);
  app.require_subcommand(1);
  halfbyte::tool::add_run(app);
  halfbyte::tool::add_serve(app);
  halfbyte::tool::add_eval(app);
  halfbyte::tool::add_inspect(app);
  halfbyte::tool::add_check(app);
  halfbyte::tool::add_plan(app);
  halfbyte::tool::add_tokenize(app);
  halfbyte::tool::add_bench(app);
  return halfbyte::tool::finish_output(halfbyte::tool::run_command(app, argc, argv));
}
