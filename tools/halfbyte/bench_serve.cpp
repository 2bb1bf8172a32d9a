// SPDX-License-Identifier: Apache-2.0
//
// `halfbyte bench serve`: requests to a server, a number of them at a time or a number a second.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <memory>

#include "bench_serve/arrivals.h"
#include "bench_serve/plot.h"
#include "bench_serve/report.h"
#include "command.h"
#include "text/tokenizer.h"

namespace halfbyte::tool {
namespace {

using nlohmann::ordered_json;

constexpr const char* kDescription =
    "Sends requests to a server with OpenAI's API and reports its speed.\n\n"
    "Requests come all at once, or --request-rate a second, of which --max-concurrency are under "
    "way;\n"
    "a list gives a run each. Times begin before a request's connection is made; an answer ends "
    "with\n"
    "its last byte. Percentiles between two values are interpolated.\n\n"
    "  TTFT   to the first piece of text      ITL   between two pieces of one answer\n"
    "  TPOT   (last - first piece) / (tokens - 1) of one answer      E2E   the whole answer\n\n"
    "Data sets:\n"
    "  random        texts of random words: a word is a token, or what --tokenizer counts\n"
    "  random-ids    random token ids (--backend openai)\n"
    "  sharegpt      a JSON list of {\"conversations\": [{\"value\": TEXT}, ..]}\n"
    "  custom        a line each: {\"prompt\": TEXT, \"output_tokens\": N}, or a conversation\n"
    "  generated-shared-prefix   groups of texts that begin alike\n\n"
    "Examples:\n"
    "  halfbyte bench serve --random-input-len 64 --random-output-len 32 --num-prompts 64 \\\n"
    "    --max-concurrency 1,4,16,64 --plot speed.svg\n"
    "  halfbyte bench serve --base-url http://HOST:8000/v1 --model NAME --request-rate 4 \\\n"
    "    --goodput ttft:500 tpot:50 --output-file runs.jsonl";

constexpr const char* kServerGroup = "Server";
constexpr const char* kLoadGroup = "Load";
constexpr const char* kDatasetGroup = "Data set";
constexpr const char* kReportGroup = "Report";
constexpr std::int64_t kMaxCount = (std::int64_t{1} << 31) - 1;

struct Options {
  LoadOptions load;
  DatasetOptions dataset;
  std::string base_url, host, port;  // the URL wins
  bool is_chat = false;
  std::string model, tokenizer;
  std::vector<std::int64_t> concurrency;
  double request_rate = INFINITY;
  std::int64_t warmup_requests = 1;
  std::string extra_request_body;
  bool disable_stream = false, disable_ignore_eos = false, flush_cache = false;
  std::vector<std::string> goodput;
  std::string output_file, plot;
  bool json = false;
};

ordered_json parse_extra(const std::string& text) {
  if (text.empty()) return ordered_json::object();
  ordered_json extra = ordered_json::parse(text, nullptr, false);
  if (extra.is_object()) return extra;
  exit_on_error({StatusCode::kInvalidArgument,
                 fmt::format("--extra-request-body {}: want a JSON object", text)});
  return {};
}

HttpAnswer get(const Options& options, const std::string& path) {
  return value_or_exit(http_call(options.load.server, options.load.api_key, "GET", path));
}

// Null unless the server answers with an object that has the member.
ordered_json server_says(const Options& options, const std::string& path, const char* member) {
  const HttpAnswer answer = get(options, path);
  const ordered_json body = ordered_json::parse(answer.body, nullptr, false);
  if (answer.status != 200 || !body.is_object() || !body.contains(member)) return nullptr;
  return body[member];
}

std::string first_model(const Options& options) {
  const ordered_json models = server_says(options, "/v1/models", "data");
  if (models.is_array() && !models.empty() && models[0].is_object() && models[0].contains("id") &&
      models[0]["id"].is_string())
    return models[0]["id"].get<std::string>();
  exit_on_error({StatusCode::kNotFound,
                 "GET /v1/models names no model: is this a server with OpenAI's API, is it ready, "
                 "and is --api-key right? --model NAME asks for one without"});
  return {};
}

std::string client_cpu() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// The tokenizer outlives the options that count with it.
std::unique_ptr<Tokenizer> load_tokenizer(Options& options) {
  if (options.tokenizer.empty()) return nullptr;
  auto tokenizer = value_or_exit(Tokenizer::load(options.tokenizer));
  options.dataset.vocab_size = tokenizer->vocab_size();
  options.dataset.count_tokens = [&tokenizer =
                                      *tokenizer](std::string_view text) -> Result<std::int64_t> {
    HALFBYTE_ASSIGN_OR_RETURN(const auto ids, tokenizer.encode(text));
    return static_cast<std::int64_t>(ids.size());
  };
  return tokenizer;
}

std::string request_body(const Options& options, const ordered_json& extra, const Prompt& prompt) {
  ordered_json body = {{"model", options.model}};
  if (options.is_chat) {
    body["messages"] =
        ordered_json::array({ordered_json({{"role", "user"}, {"content", prompt.content}})});
  } else {
    body["prompt"] = prompt.content;
  }
  body["max_tokens"] = prompt.output_tokens;
  body["temperature"] = 0;
  if (!options.disable_ignore_eos) body["ignore_eos"] = true;
  body["stream"] = options.load.streams;
  if (options.load.streams) body["stream_options"] = {{"include_usage", true}};
  body.update(extra);
  return body.dump();
}

std::vector<std::string> request_bodies(const Options& options, std::span<const Prompt> prompts) {
  const ordered_json extra = parse_extra(options.extra_request_body);
  std::vector<std::string> bodies;
  for (const Prompt& prompt : prompts)
    bodies.push_back(request_body(options, extra, prompt));
  return bodies;
}

// What every request would fail at is told before the first run. The prompts are no run's: a prefix
// cache shall not know them.
void warm_up(Options options) {
  options.dataset.seed += options.concurrency.size();
  options.dataset.num_prompts = std::min(options.warmup_requests, options.dataset.num_prompts);
  if (options.warmup_requests == 0) return;
  const std::vector<std::string> bodies =
      request_bodies(options, value_or_exit(make_prompts(options.dataset)));
  const std::vector<double> at_once(bodies.size(), 0.0);
  const LoadResult load = value_or_exit(run_load(options.load, bodies, at_once));
  for (const Outcome& outcome : load.outcomes) {
    if (outcome.error.empty()) continue;
    exit_on_error({StatusCode::kTransportError,
                   fmt::format("a request to warm up failed: {}", outcome.error)});
  }
}

void flush_cache(const Options& options) {
  const HttpAnswer answer = value_or_exit(
      http_call(options.load.server, options.load.api_key, "POST", "/flush_cache", "{}"));
  if (answer.status == 200) return;
  exit_on_error({StatusCode::kUnsupported,
                 fmt::format("--flush-cache: POST /flush_cache answers {}", answer.status)});
}

// Infinity has no JSON number.
ordered_json rate_json(double rate) {
  return std::isinf(rate) ? ordered_json("inf") : ordered_json(rate);
}

ordered_json options_json(const Options& options) {
  const ServerAddress& server = options.load.server;
  const DatasetOptions& dataset = options.dataset;
  return {{"backend", options.is_chat ? "openai-chat" : "openai"},
          {"base_url", fmt::format("http://{}:{}{}", server.host, server.port, server.prefix)},
          {"model", options.model},
          {"tokenizer", options.tokenizer},
          {"dataset_name", dataset.name},
          {"dataset_path", dataset.path},
          {"num_prompts", dataset.num_prompts},
          {"random_input_len", dataset.input_len},
          {"random_output_len", dataset.output_len},
          {"random_range_ratio", dataset.range_ratio},
          {"random_vocab_size", dataset.vocab_size},
          {"output_len", dataset.fixed_output_len},
          {"gsp_num_groups", dataset.num_groups},
          {"gsp_prompts_per_group", dataset.prompts_per_group},
          {"gsp_system_prompt_len", dataset.system_prompt_len},
          {"gsp_question_len", dataset.question_len},
          {"request_rate", rate_json(options.request_rate)},
          {"max_concurrency", options.load.max_concurrency},
          {"warmup_requests", options.warmup_requests},
          {"seed", dataset.seed},
          {"stream", options.load.streams},
          {"ignore_eos", !options.disable_ignore_eos},
          {"flush_cache", options.flush_cache},
          {"extra_request_body", parse_extra(options.extra_request_body)},
          {"goodput", options.goodput}};
}

void print_run(const Options& options, const ServeReport& report) {
  const std::int64_t concurrency = options.load.max_concurrency;
  const std::string at_a_time =
      concurrency > 0 ? fmt::format("{} at a time", concurrency) : "any number at a time";
  fmt::print("{}: {} requests, {}, {} a second, {}\n{}", options.model,
             report.num_successful + report.num_failed + report.num_aborted, options.dataset.name,
             options.request_rate, at_a_time, to_text(report, !options.goodput.empty()));
}

PlotPoint plot_point(std::int64_t concurrency, const ServeReport& report) {
  return {concurrency > 0 ? concurrency : report.max_under_way,
          report.per_second(report.output_tokens), report.ttft.median, report.ttft.p99};
}

// Of the client and the server: what a number is worth nothing without.
ordered_json versions_json(const Options& options) {
  return {{"client_version", HALFBYTE_VERSION},
          {"client_cpu", client_cpu()},
          {"server_version", server_says(options, "/version", "version")},
          {"server_engine", server_says(options, "/server_info", "engine")}};
}

// Everything that can be refused, before anything is sent.
void check_options(const Options& options) {
  value_or_exit(parse_goodput(options.goodput));
  parse_extra(options.extra_request_body);
  if (options.dataset.name != "random-ids" || !options.is_chat) return;
  exit_on_error({StatusCode::kInvalidArgument,
                 "--dataset-name random-ids needs --backend openai: a chat has no token ids"});
}

void resolve(Options& options) {
  if (options.base_url.empty()) {
    options.load.server.host = options.host;
    options.load.server.port = options.port;
  } else {
    options.load.server = value_or_exit(parse_base_url(options.base_url));
  }
  options.load.path = options.is_chat ? "/v1/chat/completions" : "/v1/completions";
  options.load.streams = !options.disable_stream;
  if (options.concurrency.empty()) options.concurrency = {0};
}

ServeReport run_once(const Options& options) {
  if (options.flush_cache) flush_cache(options);
  const std::vector<Prompt> prompts = value_or_exit(make_prompts(options.dataset));
  const std::vector<std::string> bodies = request_bodies(options, prompts);
  const std::vector<double> arrivals =
      arrival_times(std::ssize(bodies), options.request_rate, options.dataset.seed);
  const LoadResult load = value_or_exit(run_load(options.load, bodies, arrivals));
  return make_report(load, prompts, value_or_exit(parse_goodput(options.goodput)), options.dataset);
}

void show(const Options& options, const ordered_json& row, const ServeReport& report) {
  if (options.json) {
    print_json(row);
  } else {
    print_run(options, report);
  }
  std::fflush(stdout);
  if (!options.output_file.empty()) {
    write_file(options.output_file, row.dump() + "\n", std::ios::app);
  }
}

void run_bench_serve(Options options) {
  resolve(options);
  check_options(options);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(options);
  value_or_exit(make_prompts(options.dataset));  // what is wrong with them is told first
  if (options.model.empty()) options.model = first_model(options);
  const ordered_json versions = versions_json(options);
  warm_up(options);
  std::vector<PlotPoint> points;
  bool any_failed = false;
  for (const std::int64_t concurrency : options.concurrency) {
    options.load.max_concurrency = concurrency;
    const ServeReport report = run_once(options);
    ordered_json row = options_json(options);
    row.update(versions);
    row.update(to_json(report));
    show(options, row, report);
    points.push_back(plot_point(concurrency, report));
    any_failed = any_failed || report.num_failed > 0;
    ++options.dataset.seed;  // other prompts in the next run
  }
  if (!options.plot.empty()) {
    write_file(options.plot, plot_svg(options.model, points), std::ios::trunc);
  }
  if (any_failed) throw CLI::RuntimeError(1);
}

void add_backend_option(CLI::App& command, Options& options) {
  command
      .add_option_function<std::string>(
          "--backend",
          [&options](const std::string& name) { options.is_chat = name.ends_with("-chat"); },
          "openai: /v1/completions; openai-chat: /v1/chat/completions; the other names mean the "
          "same of those servers (default: openai)")
      ->check(CLI::IsMember({"openai", "openai-chat", "halfbyte", "halfbyte-chat", "sglang-oai",
                             "sglang-oai-chat", "vllm", "vllm-chat"}))
      ->group(kServerGroup);
}

void add_server_options(CLI::App& command, Options& options) {
  const auto add = [&command](const char* names, auto& value, const char* help) {
    return command.add_option(names, value, help)->group(kServerGroup);
  };
  add_backend_option(command, options);
  add("--base-url", options.base_url, "http://HOST[:PORT][/PREFIX], with or without /v1");
  options.host = options.load.server.host;
  options.port = options.load.server.port;
  add("--host", options.host, "of the server, without --base-url")->capture_default_str();
  add("--port", options.port, "of the server, without --base-url")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  add("--model", options.model, "name to ask for; default: the first of /v1/models");
  add("--api-key", options.load.api_key, "sent as Authorization: Bearer KEY");
  add("--extra-request-body", options.extra_request_body,
      "a JSON object whose members every request gets");
  command
      .add_flag("--disable-ignore-eos", options.disable_ignore_eos,
                "let answers end where the model ends them")
      ->group(kServerGroup);
  command.add_flag("--disable-stream", options.disable_stream, "ask for whole answers")
      ->group(kServerGroup);
}

void add_load_options(CLI::App& command, Options& options) {
  const auto add = [&command](const char* names, auto& value, const char* help) {
    return command.add_option(names, value, help)->group(kLoadGroup);
  };
  add("--num-prompts", options.dataset.num_prompts, "requests of each run")
      ->check(CLI::Range(std::int64_t{1}, kMaxCount))
      ->capture_default_str();
  add("--request-rate", options.request_rate,
      "requests a second, as a Poisson process; inf: all at once")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add("--max-concurrency", options.concurrency,
      "requests under way at most; a list gives a run each; default: no limit")
      ->check(CLI::Range(std::int64_t{1}, kMaxCount))
      ->delimiter(',');
  add("--warmup-requests", options.warmup_requests,
      "requests before the first run, which are not counted")
      ->check(CLI::Range(std::int64_t{0}, kMaxCount))
      ->capture_default_str();
  add("--seed", options.dataset.seed,
      "of prompts and arrivals; the second run has the next one, and so on")
      ->capture_default_str();
  command
      .add_flag("--flush-cache", options.flush_cache,
                "empty the server's prefix cache before each run (POST /flush_cache)")
      ->group(kLoadGroup);
}

void add_dataset_options(CLI::App& command, DatasetOptions& dataset, std::string& tokenizer) {
  const auto add = [&command](const char* names, auto& value, const char* help) {
    return command.add_option(names, value, help)->group(kDatasetGroup)->capture_default_str();
  };
  const auto add_count = [&](const char* names, std::int64_t& value, const char* help) {
    add(names, value, help)->check(CLI::Range(std::int64_t{1}, kMaxCount));
  };
  add("--dataset-name", dataset.name, "see above");
  add("--dataset-path", dataset.path, "file of sharegpt or custom");
  add("--tokenizer", tokenizer,
      "a folder with tokenizer.json: counts tokens here, for lengths and to check usage");
  add_count("--random-input-len", dataset.input_len, "tokens of a prompt");
  add_count("--random-output-len", dataset.output_len, "tokens of an answer");
  add("--random-range-ratio", dataset.range_ratio,
      "lengths are drawn from [RATIO * len, len]; 1: all alike")
      ->check(CLI::Range(0.0, 1.0));
  add_count("--random-vocab-size", dataset.vocab_size,
            "random-ids: ids below it; with --tokenizer: its vocabulary");
  add_count("--output-len,--sharegpt-output-len,--custom-output-len", dataset.fixed_output_len,
            "sharegpt, custom: tokens of every answer; 0: as in the file");
  add_count("--gsp-num-groups", dataset.num_groups, "generated-shared-prefix: groups");
  add_count("--gsp-prompts-per-group", dataset.prompts_per_group,
            "texts of a group; --num-prompts of all are sent at most");
  add_count("--gsp-system-prompt-len", dataset.system_prompt_len, "tokens that a group shares");
  add_count("--gsp-question-len", dataset.question_len, "tokens of each text after them");
}

void add_report_options(CLI::App& command, Options& options) {
  const auto add = [&command](const char* names, auto& value, const char* help) {
    return command.add_option(names, value, help)->group(kReportGroup);
  };
  add("--goodput", options.goodput, "limits that a good request keeps: ttft:MS tpot:MS e2e:MS");
  add("--output-file", options.output_file, "append one JSON line a run, with all options");
  add("--plot", options.plot, "write throughput and TTFT over concurrency as an SVG");
  command.add_flag("--json", options.json, "print one JSON line a run instead of text")
      ->group(kReportGroup);
}

}  // namespace

void add_bench_serve(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand("serve", kDescription);
  add_server_options(*command, *options);
  add_load_options(*command, *options);
  add_dataset_options(*command, options->dataset, options->tokenizer);
  add_report_options(*command, *options);
  command->callback([options] { run_bench_serve(*options); });
}

}  // namespace halfbyte::tool
