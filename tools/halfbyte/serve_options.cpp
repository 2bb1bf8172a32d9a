// SPDX-License-Identifier: Apache-2.0
#include "serve_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "command.h"

namespace halfbyte::tool {
namespace {

constexpr const char* kServerGroup = "Server";
constexpr const char* kAcceptedGroup = "Options of other servers";

// An option whose only values are what is so in any case.
struct Fixed {
  const char* names;
  std::vector<std::string> values;
  const char* why;
};

std::vector<Fixed> fixed_options() {
  return {{"--load-format",
           {"auto", "safetensors"},
           "weights are what the model's .safetensors files hold"},
          {"--page-size,--block-size", {"16"}, "a block of the KV cache holds 16 tokens"},
          {"--attention-backend", {"auto"}, "attention runs on the host, in one way"},
          {"--fp4-gemm-backend",
           {"auto"},
           "the best kernels of the machine run; --moe-runner-backend chooses those of experts"},
          {"--nnodes", {"1"}, "ranks are threads of one process"},
          {"--node-rank", {"0"}, "ranks are threads of one process"},
          {"--ep-num-redundant-experts", {"0"}, "each expert is on one rank of its group"}};
}

// An option that changes nothing, whatever it says.
struct Accepted {
  const char* names;
  const char* why;
};

std::vector<Accepted> accepted_flags() {
  return {{"--trust-remote-code", "no code of a checkpoint is ever run"},
          {"--disable-cuda-graph", "there are no captured graphs"},
          {"--disable-overlap-schedule", "steps do not overlap"},
          {"--skip-server-warmup", "there is none"},
          {"--enable-metrics", "/metrics is always there"},
          {"--enable-trace", "no traces are written; /start_profile counts steps"}};
}

std::vector<Accepted> accepted_options() {
  return {{"--schedule-conservativeness",
           "a request starts when there is room for it, and is sent back when that runs out"},
          {"--dist-init-addr", "ranks are threads of one process"}};
}

std::string not_empty(const std::string& given) {
  return given.empty() ? "want some text, got none" : "";
}

class ServerOptions {
 public:
  ServerOptions(CLI::App& command, ServeOptions& options) : command_(command), options_(options) {}

  void add_all() {
    add_address_and_keys();
    add_limits();
    add_answers();
    add_text();
    add_log();
    add_fixed();
    add_accepted();
    add_flag("--protect-metrics", options_.protect_metrics, "/metrics wants a key too");
    add_flag("--exit-on-failure", options_.exit_on_failure,
             "end with status 1 when the engine has failed, instead of staying for inspection");
    add_flag("--enable-expert-metrics", options_.expert_metrics,
             "/metrics has the tokens of each expert of each layer: as many lines as there are");
  }

 private:
  template <typename T>
  CLI::Option* add(const char* names, T& value, const char* help) {
    return command_.add_option(names, value, help)->group(kServerGroup);
  }
  void add_flag(const char* names, bool& value, const char* help) {
    command_.add_flag(names, value, help)->group(kServerGroup);
  }
  template <typename T>
  void add_number(
      const char* names, T& value, std::int64_t low, std::int64_t high, const char* help) {
    add(names, value, help)->check(CLI::Range(low, high))->capture_default_str();
  }

  void add_address_and_keys() {
    add("--host", options_.http.host, "address to listen on")->capture_default_str();
    add_number("--port", options_.http.port, 0, 65535, "port; 0: any free one");
    add("--served-model-name", options_.model_names,
        "names that requests may use (default: the folder's); may be repeated")
        ->allow_extra_args(false)
        ->check(not_empty);
    add("--api-key", options_.api_keys, "a key that requests must bring; may be repeated")
        ->allow_extra_args(false)
        ->check(not_empty);
    add("--admin-api-key", options_.admin_api_key,
        "the key of /flush_cache, /abort_request and the profile; opens everything else too")
        ->check(not_empty);
    add("--api-key-file", options_.api_key_file, "a file of keys, one a line");
    add("--allowed-origins", options_.http.allowed_origins,
        "origins whose pages may ask from a browser (CORS), or *; may be repeated; default: none")
        ->allow_extra_args(false)
        ->check(not_empty);
  }

  void add_limits() {
    add_number("--max-queued-requests", options_.max_queued_requests, 1, std::int64_t{1} << 30,
               "requests that may wait; more are refused with 429");
    add_number("--shutdown-timeout", options_.shutdown_timeout_s, 0, 86400,
               "seconds that requests under way have to end after a signal");
    add_number("--request-timeout", options_.request_timeout_s, 0, 86400,
               "seconds until a request's first token, else 408; 0: any");
    add_number("--watchdog-timeout", options_.watchdog_timeout_s, 0, 86400,
               "seconds that a step may take before a notice, and twice that before the engine "
               "counts as failed; 0: any");
  }

  void add_answers() {
    add_number("--sse-keepalive", options_.sse_keepalive_s, 0, 3600,
               "seconds between comments in a stream that waits; 0: none");
    add_number("--stream-interval", options_.stream_interval, 1, 1 << 20,
               "tokens between the events of a stream");
    command_
        .add_option_function<std::string>(
            "--sampling-defaults",
            [options = &options_](const std::string& name) {
              options->text.openai_defaults = name == "openai";
            },
            "temperature, top_p, top_k, min_p and repetition_penalty of requests without them: "
            "the model's generation_config.json, or 1, 1, off, 0 and 1")
        ->check(CLI::IsMember({"model", "openai"}))
        ->group(kServerGroup);
    command_
        .add_option_function<std::string>(
            "--grammar-backend",
            [options = &options_](const std::string& name) {
              options->constrains_output = name == "xgrammar";
            },
            "what holds answers to schemas and grammars; none: requests for it are refused")
        ->check(CLI::IsMember({"xgrammar", "none"}))
        ->default_str("xgrammar")
        ->group(kServerGroup);
  }

  void add_text() {
    add("--tokenizer-path,--tokenizer", options_.text.tokenizer_path,
        "a folder with the tokenizer and its chat template, instead of the model's");
    add("--chat-template", options_.text.chat_template, "a file in Jinja, instead of the model's");
    add("--random-seed", options_.random_seed,
        "requests without a seed get theirs from this one, in the order in which they come");
    add("--tool-call-parser", options_.text.tool_call_parser,
        "how the model writes tool calls; auto: by its vocabulary")
        ->check(CLI::IsMember(server::tool_call_parsers()))
        ->capture_default_str();
    add("--reasoning-parser", options_.text.reasoning_parser,
        "how the model writes its reasoning; auto: by its vocabulary")
        ->check(CLI::IsMember(server::reasoning_parsers()))
        ->capture_default_str();
  }

  void add_log() {
    add("--access-log", options_.access_log,
        "a line of JSON for each request, without what was said: a file to add to, - for standard "
        "error, or none")
        ->capture_default_str()
        ->check(not_empty);
    command_
        .add_option_function<std::string>(
            "--log-level",
            [options = &options_](const std::string& name) {
              options->log_level = name == "error"     ? LogLevel::kError
                                   : name == "warning" ? LogLevel::kWarning
                                                       : LogLevel::kInfo;
            },
            "what is told on standard error: errors alone, notices too, or also what goes on; the "
            "access log is apart")
        ->check(CLI::IsMember({"error", "warning", "info"}))
        ->default_str("info")
        ->group(kServerGroup);
    add_flag("--log-requests", options_.log_requests,
             "write the beginning of every request's body to standard error: prompts are in it");
  }

  void add_fixed() {
    for (const Fixed& option : fixed_options()) {
      const auto check = [option](const std::string& given) {
        if (std::ranges::find(option.values, given) != option.values.end()) return;
        throw CLI::ValidationError(option.names,
                                   fmt::format("\"{}\" is not {}: {}; leave the option out", given,
                                               fmt::join(option.values, " or "), option.why));
      };
      command_
          .add_option_function<std::string>(
              option.names, check,
              fmt::format("accepted: {} {{{}}}", option.why, fmt::join(option.values, ", ")))
          ->group(kAcceptedGroup);
    }
  }

  void add_accepted() {
    const auto note = [this](const Accepted& option) {
      return [options = &options_,
              notice = fmt::format("{} has no effect: {}", option.names, option.why)] {
        options->notices.push_back(notice);
      };
    };
    for (const Accepted& option : accepted_flags()) {
      command_
          .add_flag_callback(option.names, note(option), fmt::format("accepted: {}", option.why))
          ->group(kAcceptedGroup);
    }
    for (const Accepted& option : accepted_options()) {
      command_
          .add_option_function<std::string>(
              option.names, [add = note(option)](const std::string&) { add(); },
              fmt::format("accepted: {}", option.why))
          ->group(kAcceptedGroup);
    }
  }

  CLI::App& command_;
  ServeOptions& options_;
};

}  // namespace

void add_serve_options(CLI::App& command, ServeOptions& options) {
  command
      .add_option("model,--model-path,--model", options.engine.model_path, "Folder of the model")
      ->required();
  ServerOptions(command, options).add_all();
  add_engine_options(command, options.engine);
  add_moe_options(command, options.engine.moe);
}

}  // namespace halfbyte::tool
