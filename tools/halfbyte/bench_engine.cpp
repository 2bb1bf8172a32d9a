// SPDX-License-Identifier: Apache-2.0
//
// `halfbyte bench engine`: requests of random tokens through the engine, a number of them at a
// time.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/statistics.h"
#include "command.h"

namespace halfbyte::tool {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* kDescription =
    "Sends requests of random tokens through the engine and reports its speed.\n\n"
    "Every request has --prompt-tokens tokens and gets --new-tokens more, whatever they are;\n"
    "--concurrency of them are under way until --requests are done, --repetitions times. One "
    "short\n"
    "request goes first and is not counted.\n\n"
    "  prefill   prompt tokens over the time in which any request waited for its first token\n"
    "  decode    later tokens over the time in which any request was past its first token\n"
    "  TTFT      from submission to the first token        E2E   from submission to the last\n"
    "  ITL       between two tokens of one request         TPOT  mean ITL of one request\n"
    "  host      of a step, what is not its forward pass: scheduling and sampling\n\n"
    "--output md and csv have a row for prefill (pp512) and one for decode (tg128), with the mean "
    "over\n"
    "the repetitions and their standard deviation.\n\n"
    "Examples:\n"
    "  halfbyte bench engine models/gsm-mini-qwen3moe-nvfp4\n"
    "  halfbyte bench engine MODEL -p 512 -n 128 -b 1,8,64 -r 5 -o md";

constexpr std::int64_t kMaxCount = (std::int64_t{1} << 31) - 1;
constexpr int kPollMs = 1000;  // events end a wait at once
constexpr std::int64_t kWarmUpTokens = 2;

enum class Output { kText, kMarkdown, kCsv, kJson };

struct Options {
  EngineOptions engine;
  std::int64_t prompt_tokens = 512;
  std::int64_t new_tokens = 128;
  std::int64_t num_requests = 0;  // 0: as many as are under way at a time
  std::int64_t repetitions = 1;
  std::vector<std::int64_t> concurrency = {1};
  Output output = Output::kText;
};

// Seconds since the run began.
struct Timeline {
  double submitted = 0.0;
  std::vector<double> tokens;
};

// One run: `concurrency` requests under way until all are done.
class Load {
 public:
  Load(Engine& engine, std::int64_t prompt_tokens, std::int64_t new_tokens)
      : engine_(engine), prompt_tokens_(prompt_tokens), new_tokens_(new_tokens) {}

  std::vector<Timeline> run(std::int64_t num_requests, std::int64_t concurrency) {
    start_ = Clock::now();
    for (std::int64_t i = 0; i < std::min(num_requests, concurrency); ++i)
      submit();
    while (!under_way_.empty()) {
      for (const TokenEvent& event : engine_.poll(kPollMs))
        take(event);
      while (num_submitted_ < num_requests &&
             under_way_.size() < static_cast<std::size_t>(concurrency))
        submit();
    }
    return std::move(done_);
  }

 private:
  double seconds_at(Clock::time_point time) const {
    return std::chrono::duration<double>(time - start_).count();
  }

  void submit() {
    Request request;
    std::mt19937 random(static_cast<std::uint32_t>(num_submitted_++));
    const auto vocab = static_cast<std::uint32_t>(engine_.info().vocab_size);
    for (std::int64_t i = 0; i < prompt_tokens_; ++i)
      request.prompt_ids.push_back(static_cast<std::int32_t>(random() % vocab));
    request.sampling.max_new_tokens = new_tokens_;
    request.sampling.ignore_eos = true;
    const double now = seconds_at(Clock::now());
    under_way_[value_or_exit(engine_.submit(std::move(request)))].submitted = now;
  }

  void take(const TokenEvent& event) {
    exit_on_error(event);
    Timeline& timeline = under_way_[event.request_id];
    if (event.token_id >= 0) timeline.tokens.push_back(seconds_at(event.time));
    if (event.finish_reason == FinishReason::kNone) return;
    done_.push_back(std::move(timeline));
    under_way_.erase(event.request_id);
  }

  Engine& engine_;
  std::int64_t prompt_tokens_, new_tokens_;
  Clock::time_point start_;
  std::int64_t num_submitted_ = 0;
  std::map<RequestId, Timeline> under_way_;
  std::vector<Timeline> done_;
};

// One repetition, or the sum of several.
struct Run {
  std::int64_t num_requests = 0;
  std::int64_t output_tokens = 0;
  double seconds = 0.0;
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;
};

// All repetitions.
struct Report {
  Run total;
  Summary prefill, decode;       // tokens a second, of the repetitions
  Summary ttft, tpot, itl, e2e;  // milliseconds, of the requests
  double host_us = 0.0;          // of a step
};

// Milliseconds of each kind, of all requests.
struct Latencies {
  std::vector<double> ttft, tpot, itl, e2e;

  void add(const Timeline& timeline) {
    const std::vector<double>& tokens = timeline.tokens;
    ttft.push_back(1e3 * (tokens.front() - timeline.submitted));
    e2e.push_back(1e3 * (tokens.back() - timeline.submitted));
    for (std::size_t i = 1; i < tokens.size(); ++i)
      itl.push_back(1e3 * (tokens[i] - tokens[i - 1]));
    if (tokens.size() > 1) {
      tpot.push_back(1e3 * (tokens.back() - tokens.front()) /
                     static_cast<double>(tokens.size() - 1));
    }
  }
};

Run make_run(const std::vector<Timeline>& timelines) {
  Run run;
  std::vector<Interval> prefill, decode;
  for (const Timeline& timeline : timelines) {
    if (timeline.tokens.empty()) continue;
    ++run.num_requests;
    run.output_tokens += std::ssize(timeline.tokens);
    run.seconds = std::max(run.seconds, timeline.tokens.back());
    prefill.push_back({timeline.submitted, timeline.tokens.front()});
    decode.push_back({timeline.tokens.front(), timeline.tokens.back()});
  }
  run.prefill_seconds = covered_length(std::move(prefill));
  run.decode_seconds = covered_length(std::move(decode));
  return run;
}

double rate(std::int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

// What is said of several repetitions, gathered one by one.
class Reporter {
 public:
  explicit Reporter(std::int64_t prompt_tokens) : prompt_tokens_(prompt_tokens) {}

  void add(const std::vector<Timeline>& timelines) {
    const Run run = make_run(timelines);
    total_.num_requests += run.num_requests;
    total_.output_tokens += run.output_tokens;
    total_.seconds += run.seconds;
    prefill_.push_back(rate(run.num_requests * prompt_tokens_, run.prefill_seconds));
    decode_.push_back(rate(run.output_tokens - run.num_requests, run.decode_seconds));
    for (const Timeline& timeline : timelines) {
      if (!timeline.tokens.empty()) latencies_.add(timeline);
    }
  }

  Report report() {
    return {.total = total_,
            .prefill = summarize(std::move(prefill_)),
            .decode = summarize(std::move(decode_)),
            .ttft = summarize(std::move(latencies_.ttft)),
            .tpot = summarize(std::move(latencies_.tpot)),
            .itl = summarize(std::move(latencies_.itl)),
            .e2e = summarize(std::move(latencies_.e2e))};
  }

 private:
  std::int64_t prompt_tokens_;
  Run total_;
  std::vector<double> prefill_, decode_;
  Latencies latencies_;
};

ordered_json to_json(const Options& options,
                     std::int64_t concurrency,
                     const EngineInfo& info,
                     const Report& report) {
  const Run& total = report.total;
  return {{"model", options.engine.model_path},
          {"architecture", info.model_name},
          {"backend", info.backend},
          {"mode", info.activation_mode},
          {"transport", info.transport},
          {"ep_size", info.ep_size},
          {"version", HALFBYTE_VERSION},
          {"prompt_tokens", options.prompt_tokens},
          {"new_tokens", options.new_tokens},
          {"concurrency", concurrency},
          {"repetitions", options.repetitions},
          {"requests", total.num_requests},
          {"duration_s", rounded(total.seconds)},
          {"requests_per_s", rounded(rate(total.num_requests, total.seconds))},
          {"input_tokens_per_s",
           rounded(rate(total.num_requests * options.prompt_tokens, total.seconds))},
          {"output_tokens_per_s", rounded(rate(total.output_tokens, total.seconds))},
          {"prefill_tokens_per_s", rounded(report.prefill.mean)},
          {"prefill_tokens_per_s_std", rounded(report.prefill.std)},
          {"decode_tokens_per_s", rounded(report.decode.mean)},
          {"decode_tokens_per_s_std", rounded(report.decode.std)},
          {"host_us_per_step", rounded(report.host_us)},
          {"ttft_ms", to_json(report.ttft)},
          {"tpot_ms", to_json(report.tpot)},
          {"itl_ms", to_json(report.itl)},
          {"e2e_ms", to_json(report.e2e)}};
}

void print_text(const Options& options,
                std::int64_t concurrency,
                const EngineInfo& info,
                const Report& report) {
  const Run& total = report.total;
  fmt::print("{} requests of {} + {} tokens, {} at a time; backend {}, mode {}, transport {}\n",
             total.num_requests, options.prompt_tokens, options.new_tokens, concurrency,
             info.backend, info.activation_mode, info.transport);
  fmt::print(
      "  {:.2f} s: {:.2f} requests/s; prefill {:.1f} tok/s, decode {:.1f} tok/s; "
      "host {:.0f} us a step\n",
      total.seconds, rate(total.num_requests, total.seconds), report.prefill.mean,
      report.decode.mean, report.host_us);
  fmt::print("{}{}{}{}{}", summary_header("ms"), summary_row("TTFT", report.ttft),
             summary_row("TPOT", report.tpot), summary_row("ITL", report.itl),
             summary_row("E2E", report.e2e));
}

void print_header(Output output) {
  if (output == Output::kMarkdown) {
    fmt::print(
        "| model | backend | mode | at a time | test | tok/s |\n|---|---|---|--:|---|--:|\n");
  } else if (output == Output::kCsv) {
    fmt::print("model,backend,mode,concurrency,test,repetitions,tokens_per_s,tokens_per_s_std\n");
  }
}

// A table's rows: prefill, and decode where there is any.
void print_rows(const Options& options,
                std::int64_t concurrency,
                const EngineInfo& info,
                const Report& report) {
  const auto print_row = [&](const std::string& test, const Summary& speed) {
    if (options.output == Output::kMarkdown) {
      fmt::print("| {} | {} | {} | {} | {} | {:.2f} \u00b1 {:.2f} |\n", info.model_name,
                 info.backend, info.activation_mode, concurrency, test, speed.mean, speed.std);
    } else {
      fmt::print("{},{},{},{},{},{},{:.2f},{:.2f}\n", info.model_name, info.backend,
                 info.activation_mode, concurrency, test, options.repetitions, speed.mean,
                 speed.std);
    }
  };
  print_row(fmt::format("pp{}", options.prompt_tokens), report.prefill);
  if (options.new_tokens > 1) print_row(fmt::format("tg{}", options.new_tokens), report.decode);
}

void print_report(const Options& options,
                  std::int64_t concurrency,
                  const EngineInfo& info,
                  const Report& report) {
  switch (options.output) {
    case Output::kText:
      return print_text(options, concurrency, info, report);
    case Output::kJson:
      return print_json(to_json(options, concurrency, info, report));
    case Output::kMarkdown:
    case Output::kCsv:
      return print_rows(options, concurrency, info, report);
  }
}

void notice_waiting(const Options& options, std::int64_t concurrency) {
  if (concurrency <= options.engine.max_running_requests) return;
  print_notice(
      fmt::format("{} requests at a time, of which {} run and the others wait: see "
                  "--max-running-requests",
                  concurrency, options.engine.max_running_requests));
}

// A request that the context ends early would be another load than the one asked for.
void check_context(const Options& options, const EngineInfo& info) {
  if (options.prompt_tokens + options.new_tokens <= info.max_context_tokens) return;
  exit_on_error({StatusCode::kInvalidArgument,
                 fmt::format("--prompt-tokens {} and --new-tokens {} do not fit the context of {} "
                             "tokens: give fewer",
                             options.prompt_tokens, options.new_tokens, info.max_context_tokens)});
}

// Seconds that the host has added to steps, and steps, since the start.
std::pair<double, std::int64_t> host_cost(const Engine& engine) {
  return {engine.histograms().step_host_seconds.sum, engine.stats().steps};
}

Report measure(Engine& engine, const Options& options, std::int64_t concurrency) {
  const std::int64_t num_requests = options.num_requests > 0 ? options.num_requests : concurrency;
  const auto [seconds_before, steps_before] = host_cost(engine);
  Reporter reporter(options.prompt_tokens);
  for (std::int64_t i = 0; i < options.repetitions; ++i) {
    reporter.add(
        Load(engine, options.prompt_tokens, options.new_tokens).run(num_requests, concurrency));
  }
  const auto [seconds, steps] = host_cost(engine);
  Report report = reporter.report();
  report.host_us = 1e6 * (seconds - seconds_before) /
                   static_cast<double>(std::max(steps - steps_before, std::int64_t{1}));
  return report;
}

void run_bench_engine(Options options) {
  exit_unless_folder(options.engine.model_path);
  options.engine.disable_radix_cache = true;  // every run has the same prompts
  options.engine.notice = print_notice;
  options.engine.load_progress = [](std::int64_t done, std::int64_t total) {
    print_progress("loading layer", done, total);
  };
  const auto engine = value_or_exit(Engine::create(options.engine));
  check_context(options, engine->info());
  Load(*engine, 1, kWarmUpTokens).run(1, 1);
  print_header(options.output);
  for (const std::int64_t concurrency : options.concurrency) {
    notice_waiting(options, concurrency);
    print_report(options, concurrency, engine->info(), measure(*engine, options, concurrency));
    std::fflush(stdout);
  }
}

void add_output_options(CLI::App& command, Options& options) {
  const std::map<std::string, Output> outputs = {{"text", Output::kText},
                                                 {"md", Output::kMarkdown},
                                                 {"csv", Output::kCsv},
                                                 {"json", Output::kJson}};
  command
      .add_option_function<std::string>(
          "--output,-o",
          [&options, outputs](const std::string& name) { options.output = outputs.at(name); },
          "What is printed: a table of its own for each --concurrency, rows of one table, or one "
          "JSON object each")
      ->check(CLI::IsMember({"text", "md", "csv", "json"}))
      ->default_str("text");
  command.add_flag_callback(
      "--json", [&options] { options.output = Output::kJson; }, "The same as --output json");
}

}  // namespace

void add_bench_engine(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand("engine", kDescription);
  const auto add_count = [&](const char* names, auto& value, const char* help) {
    return command->add_option(names, value, help)
        ->check(CLI::Range(std::int64_t{1}, kMaxCount))
        ->capture_default_str();
  };
  command
      ->add_option("model,--model-path,--model", options->engine.model_path,
                   "Folder of the model; a tokenizer is not needed")
      ->required();
  add_count("--prompt-tokens,-p", options->prompt_tokens, "Tokens of each prompt");
  add_count("--new-tokens,-n", options->new_tokens, "Tokens generated for each");
  command->add_option("--requests", options->num_requests, "Requests in all; default: one round")
      ->check(CLI::Range(std::int64_t{1}, kMaxCount));
  add_count("--repetitions,-r", options->repetitions, "How often that is done");
  add_count("--concurrency,-b", options->concurrency,
            "Requests under way at a time; a list gives a run each")
      ->delimiter(',');
  add_output_options(*command, *options);
  add_engine_options(*command, options->engine);
  add_moe_options(*command, options->engine.moe);
  command->callback([options] { run_bench_engine(*options); });
}

}  // namespace halfbyte::tool
