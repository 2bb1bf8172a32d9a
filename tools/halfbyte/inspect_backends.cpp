// SPDX-License-Identifier: Apache-2.0
//
// `halfbyte inspect backends`: every pair of transport and backend, and why it can or cannot run.
#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "halfbyte/backends.h"

namespace halfbyte::tool {
namespace {

// A layer that every backend takes, so that the answers are about the machine and this build.
MoeSpec common_layer() {
  MoeSpec spec;
  spec.hidden_size = 2048;
  spec.intermediate_size = 768;
  spec.num_experts = 128;
  spec.top_k = 8;
  spec.declares_activation_quantization = true;
  return spec;
}

nlohmann::ordered_json to_json(const BackendReport& report) {
  nlohmann::ordered_json json;
  json["transport"] = report.transport;
  json["backend"] = report.backend;
  json["taken_by_auto"] = report.taken_by_auto;
  json["can_run"] = report.can_run.ok();
  json["reason"] = std::string(report.can_run.message());
  json["note"] = report.note;
  return json;
}

void print_table(const std::vector<BackendReport>& reports) {
  fmt::print("{:<11} {:<11} {:<10} {}\n", "transport", "backend", "auto", "can run");
  for (const BackendReport& report : reports) {
    const std::string answer = report.can_run.ok()
                                   ? fmt::format("yes: {}", report.note)
                                   : fmt::format("no: {}", report.can_run.message());
    fmt::print("{:<11} {:<11} {:<10} {}\n", report.transport, report.backend, report.taken_by_auto,
               answer);
  }
}

}  // namespace

void add_inspect_backends(CLI::App& inspect) {
  struct Options {
    bool json = false;
    std::string mode = "auto";
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = inspect.add_subcommand(
      "backends", "every pair of transport and backend, whether it can run here, and why not");
  command->add_flag("--json", options->json, "print one JSON object");
  command
      ->add_option("--moe-activation-mode", options->mode,
                   "the mode that each backend is asked about")
      ->capture_default_str();
  command->callback([options] {
    MoeOptions moe;
    moe.activation_mode = value_or_exit(parse_activation_mode(options->mode));
    const std::vector<BackendReport> reports = list_backends(common_layer(), moe);
    if (!options->json) return print_table(reports);
    nlohmann::ordered_json json;
    json["backends"] = nlohmann::ordered_json::array();
    for (const BackendReport& report : reports)
      json["backends"].push_back(to_json(report));
    print_json(json);
  });
}

}  // namespace halfbyte::tool
