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

#include "bench/statistics.h"
#include "command.h"

namespace halfbyte::tool {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* kDescription =
    "Sends requests of random tokens through the engine and reports its speed.\n\n"
    "Every request has --prompt-tokens tokens and gets --new-tokens more, whatever they are;\n"
    "--concurrency of them are under way until --requests are done. One short request goes first "
    "and\n"
    "is not counted.\n\n"
    "  prefill   prompt tokens over the time in which any request waited for its first token\n"
    "  decode    later tokens over the time in which any request was past its first token\n"
    "  TTFT      from submission to the first token        E2E   from submission to the last\n"
    "  ITL       between two tokens of one request         TPOT  mean ITL of one request\n\n"
    "Examples:\n"
    "  halfbyte bench engine models/gsm-mini-qwen3moe-nvfp4\n"
    "  halfbyte bench engine MODEL -p 512 -n 128 --requests 64 -b 1,8,64 --json";

constexpr std::int64_t kMaxCount = (std::int64_t{1} << 31) - 1;
constexpr int kPollMs = 1000;  // events end a wait at once
constexpr std::int64_t kWarmUpTokens = 2;

struct Options {
  EngineOptions engine;
  std::int64_t prompt_tokens = 512;
  std::int64_t new_tokens = 128;
  std::int64_t num_requests = 0;  // 0: as many as are under way at a time
  std::vector<std::int64_t> concurrency = {1};
  bool json = false;
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

struct Report {
  std::int64_t num_requests = 0;
  std::int64_t output_tokens = 0;
  double seconds = 0.0;
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;
  Summary ttft, tpot, itl, e2e;  // milliseconds
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

Report make_report(const std::vector<Timeline>& timelines) {
  Report report;
  Latencies latencies;
  std::vector<Interval> prefill, decode;
  for (const Timeline& timeline : timelines) {
    if (timeline.tokens.empty()) continue;
    ++report.num_requests;
    report.output_tokens += std::ssize(timeline.tokens);
    report.seconds = std::max(report.seconds, timeline.tokens.back());
    prefill.push_back({timeline.submitted, timeline.tokens.front()});
    decode.push_back({timeline.tokens.front(), timeline.tokens.back()});
    latencies.add(timeline);
  }
  report.prefill_seconds = covered_length(std::move(prefill));
  report.decode_seconds = covered_length(std::move(decode));
  report.ttft = summarize(std::move(latencies.ttft));
  report.tpot = summarize(std::move(latencies.tpot));
  report.itl = summarize(std::move(latencies.itl));
  report.e2e = summarize(std::move(latencies.e2e));
  return report;
}

double rate(std::int64_t count, double seconds) {
  return seconds > 0.0 ? rounded(static_cast<double>(count) / seconds) : 0.0;
}

ordered_json to_json(const Options& options,
                     std::int64_t concurrency,
                     const EngineInfo& info,
                     const Report& report) {
  const std::int64_t input_tokens = report.num_requests * options.prompt_tokens;
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
          {"requests", report.num_requests},
          {"duration_s", rounded(report.seconds)},
          {"requests_per_s", rate(report.num_requests, report.seconds)},
          {"input_tokens_per_s", rate(input_tokens, report.seconds)},
          {"output_tokens_per_s", rate(report.output_tokens, report.seconds)},
          {"prefill_tokens_per_s", rate(input_tokens, report.prefill_seconds)},
          {"decode_tokens_per_s",
           rate(report.output_tokens - report.num_requests, report.decode_seconds)},
          {"ttft_ms", to_json(report.ttft)},
          {"tpot_ms", to_json(report.tpot)},
          {"itl_ms", to_json(report.itl)},
          {"e2e_ms", to_json(report.e2e)}};
}

void print_text(const Options& options,
                std::int64_t concurrency,
                const EngineInfo& info,
                const Report& report) {
  fmt::print("{} requests of {} + {} tokens, {} at a time; backend {}, mode {}, transport {}\n",
             report.num_requests, options.prompt_tokens, options.new_tokens, concurrency,
             info.backend, info.activation_mode, info.transport);
  const std::int64_t input_tokens = report.num_requests * options.prompt_tokens;
  fmt::print("  {:.2f} s: {:.2f} requests/s; prefill {:.1f} tok/s, decode {:.1f} tok/s\n",
             report.seconds, rate(report.num_requests, report.seconds),
             rate(input_tokens, report.prefill_seconds),
             rate(report.output_tokens - report.num_requests, report.decode_seconds));
  fmt::print("{}{}{}{}{}", summary_header("ms"), summary_row("TTFT", report.ttft),
             summary_row("TPOT", report.tpot), summary_row("ITL", report.itl),
             summary_row("E2E", report.e2e));
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
  for (const std::int64_t concurrency : options.concurrency) {
    notice_waiting(options, concurrency);
    const std::int64_t num_requests = options.num_requests > 0 ? options.num_requests : concurrency;
    const Report report = make_report(
        Load(*engine, options.prompt_tokens, options.new_tokens).run(num_requests, concurrency));
    if (options.json) {
      print_json(to_json(options, concurrency, engine->info(), report));
    } else {
      print_text(options, concurrency, engine->info(), report);
    }
    std::fflush(stdout);
  }
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
  command->add_option("--requests,-r", options->num_requests, "Requests in all; default: one round")
      ->check(CLI::Range(std::int64_t{1}, kMaxCount));
  add_count("--concurrency,-b", options->concurrency,
            "Requests under way at a time; a list gives a run each")
      ->delimiter(',');
  command->add_flag("--json", options->json, "Print one JSON object a run instead of text");
  add_engine_options(*command, options->engine);
  add_moe_options(*command, options->engine.moe);
  command->callback([options] { run_bench_engine(*options); });
}

}  // namespace halfbyte::tool
