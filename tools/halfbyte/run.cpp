// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <random>

#include "engine/request_validation.h"
#include "session.h"
#include "text/utf8.h"

namespace halfbyte::tool {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* kDescription =
    "Answers one prompt, or holds a conversation.\n\n"
    "With --prompt (or text on standard input) it prints one answer and ends. In a terminal "
    "without\n"
    "--prompt it is a chat: an empty line or Ctrl-D ends it, Ctrl-C ends the answer under way.\n"
    "The answer goes to standard output as it is made; loading, speed and what ran (backend, "
    "mode,\n"
    "transport) go to standard error.\n\n"
    "Examples:\n"
    "  halfbyte run models/gsm-mini-qwen3moe-nvfp4 --prompt \"What is 12 / 4?\"\n"
    "  halfbyte run MODEL --temperature 0.7 --top-p 0.9 --seed 1\n"
    "  halfbyte run MODEL --prompt Hi --ep-size 2 --moe-a2a-backend all_to_all --json\n\n"
    "Exit status: 0; 1 on an error; 130 when Ctrl-C ended the answer.";

constexpr int kInterruptedStatus = 130;  // 128 + SIGINT, as shells report it
constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();
constexpr int kPollMs = 50;  // how soon Ctrl-C is seen

volatile std::sig_atomic_t g_interrupted = 0;

void note_interrupt(int) {
  g_interrupted = 1;
}

// Without SA_RESTART, so that Ctrl-C also ends a wait for input.
void watch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = note_interrupt;
  sigaction(SIGINT, &action, nullptr);
}

struct RunOptions {
  EngineOptions engine;
  SamplingParams sampling;
  std::string prompt;
  std::string system;
  bool raw = false;
  bool json = false;
};

struct Answer {
  std::string text;
  std::int64_t prompt_tokens = 0;
  std::int64_t new_tokens = 0;
  FinishReason finish_reason = FinishReason::kNone;
  double prefill_seconds = 0.0;  // to the first token
  double decode_seconds = 0.0;   // the tokens after it
};

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
}

void print_piece(const std::string& piece, bool quiet) {
  if (quiet || piece.empty()) return;
  fmt::print("{}", piece);
  std::fflush(stdout);
}

// One request from submit to its last event, printed as it comes unless `quiet`.
class AnswerStream {
 public:
  AnswerStream(const Session& session, bool quiet)
      : engine_(*session.engine), detokenizer_(*session.tokenizer, true), quiet_(quiet) {}

  // The error is that of submit().
  Result<Answer> run(std::vector<std::int32_t> prompt_ids, const SamplingParams& sampling) {
    answer_.prompt_tokens = static_cast<std::int64_t>(prompt_ids.size());
    start_ = Clock::now();
    HALFBYTE_ASSIGN_OR_RETURN(const RequestId id,
                              engine_.submit({std::move(prompt_ids), sampling}));
    bool cancelled = false;
    while (answer_.finish_reason == FinishReason::kNone) {
      if (g_interrupted != 0 && !cancelled) {
        engine_.cancel(id);
        cancelled = true;
      }
      for (const TokenEvent& event : engine_.poll(kPollMs)) {
        take(event);
      }
    }
    emit(detokenizer_.finish());
    return answer_;
  }

 private:
  void take(const TokenEvent& event) {
    if (event.finish_reason == FinishReason::kError) print_piece("\n", quiet_);
    exit_on_error(event);
    answer_.finish_reason = event.finish_reason;
    if (event.token_id < 0) return;
    const double seconds = std::chrono::duration<double>(event.time - start_).count();
    if (answer_.new_tokens++ == 0) answer_.prefill_seconds = seconds;
    answer_.decode_seconds = seconds - answer_.prefill_seconds;
    emit(detokenizer_.push(event.token_id));
  }

  void emit(const std::string& piece) {
    answer_.text += piece;
    print_piece(piece, quiet_);
  }

  Engine& engine_;
  Detokenizer detokenizer_;
  bool quiet_;
  Clock::time_point start_;
  Answer answer_;
};

void print_summary(const Answer& answer, const EngineInfo& info) {
  fmt::print(
      stderr,
      "prefill {} tokens, {:.1f} tok/s; decode {} tokens, {:.1f} tok/s; {}; backend {}, mode "
      "{}, transport {}\n",
      answer.prompt_tokens, rate(answer.prompt_tokens, answer.prefill_seconds), answer.new_tokens,
      rate(std::max<std::int64_t>(answer.new_tokens - 1, 0), answer.decode_seconds),
      finish_reason_name(answer.finish_reason), info.backend, info.activation_mode, info.transport);
}

ordered_json to_json(const Answer& answer, const EngineInfo& info) {
  return {{"text", answer.text},
          {"finish_reason", finish_reason_name(answer.finish_reason)},
          {"prompt_tokens", answer.prompt_tokens},
          {"completion_tokens", answer.new_tokens},
          {"prefill_tokens_per_s", rate(answer.prompt_tokens, answer.prefill_seconds)},
          {"decode_tokens_per_s",
           rate(std::max<std::int64_t>(answer.new_tokens - 1, 0), answer.decode_seconds)},
          {"backend", info.backend},
          {"mode", info.activation_mode},
          {"transport", info.transport},
          {"ep_size", info.ep_size}};
}

// JSON, which carries messages to the template, holds nothing else.
Status check_utf8(std::string_view what, std::string_view text) {
  const std::size_t bad = find_invalid_utf8(text);
  if (bad == std::string_view::npos) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("{} is not UTF-8: byte {} is 0x{:02X}; convert it first", what, bad,
                      static_cast<unsigned char>(text[bad]))};
}

ordered_json first_messages(const RunOptions& options) {
  ordered_json messages = ordered_json::array();
  if (!options.system.empty()) {
    messages.push_back({{"role", "system"}, {"content", options.system}});
  }
  return messages;
}

std::vector<std::int32_t> encode_prompt(const Session& session, const RunOptions& options) {
  if (options.raw) return value_or_exit(session.tokenizer->encode(options.prompt));
  ordered_json messages = first_messages(options);
  messages.push_back({{"role", "user"}, {"content", options.prompt}});
  return session.encode_chat(messages);
}

void answer_once(Session& session, const RunOptions& options) {
  std::vector<std::int32_t> ids = encode_prompt(session, options);
  check_prompt_fits(ids.size(), options.engine);
  open_engine(session, options.engine);
  watch_interrupts();
  const Answer answer =
      value_or_exit(AnswerStream(session, options.json).run(std::move(ids), options.sampling));
  const EngineInfo& info = session.engine->info();
  if (options.json) {
    print_json(to_json(answer, info));
  } else {
    fmt::print("\n");
    std::fflush(stdout);
    print_summary(answer, info);
  }
  if (answer.finish_reason == FinishReason::kCancelled) throw CLI::RuntimeError(kInterruptedStatus);
}

// False at the end: an empty line, Ctrl-D or Ctrl-C, of which the last two leave the cursor behind
// the prompt.
bool read_line(std::string& line) {
  fmt::print(stderr, "> ");
  std::fflush(stderr);
  if (!std::getline(std::cin, line)) {
    fmt::print(stderr, "\n");
    return false;
  }
  return !line.empty();
}

void chat(Session& session, const RunOptions& options) {
  open_engine(session, options.engine);
  watch_interrupts();
  ordered_json messages = first_messages(options);
  std::string line;
  while (read_line(line)) {
    if (const Status status = check_utf8("the message", line); !status.ok()) {
      fmt::print(stderr, "error: {}\n", status.to_string());
      continue;
    }
    messages.push_back({{"role", "user"}, {"content", line}});
    g_interrupted = 0;
    const auto answer =
        AnswerStream(session, false).run(session.encode_chat(messages), options.sampling);
    if (!answer.ok()) {  // too long, most likely: what was said before stays
      fmt::print(stderr, "error: {}\n", answer.status().to_string());
      messages.erase(messages.size() - 1);
      continue;
    }
    fmt::print("\n");
    std::fflush(stdout);
    print_summary(*answer, session.engine->info());
    messages.push_back({{"role", "assistant"}, {"content", answer->text}});
  }
}

void run(RunOptions options, bool has_prompt) {
  exit_unless_folder(options.engine.model_path);
  const bool interactive = !has_prompt && isatty(STDIN_FILENO) != 0;
  if (interactive && (options.json || options.raw)) {
    exit_on_error(
        {StatusCode::kInvalidArgument,
         "--json and --raw answer one prompt: give it with --prompt or on standard input"});
  }
  if (!has_prompt && !interactive) {
    options.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    if (options.prompt.empty()) {
      exit_on_error({StatusCode::kInvalidArgument,
                     "no prompt: standard input is empty; give --prompt, or text on it"});
    }
  }
  // Ids are checked when the vocabulary is known; numbers now, before a long load.
  exit_on_error(check_utf8("--system", options.system));
  exit_on_error(check_utf8("the prompt", options.prompt));
  exit_on_error(validate_sampling(options.sampling, std::numeric_limits<std::int64_t>::max()));
  Session session = open_text(options.engine.model_path);
  if (interactive) {
    chat(session, options);
  } else {
    answer_once(session, options);
  }
}

// CLI11 wraps or cuts numbers that do not fit; another seed than the one asked for is no answer.
std::string check_seed(const std::string& given) {
  std::uint64_t seed = 0;
  const char* end = given.data() + given.size();
  const auto [rest, error] = std::from_chars(given.data(), end, seed);
  if (error == std::errc() && rest == end) return {};
  return fmt::format("\"{}\" is not a number from 0 to {}", given,
                     std::numeric_limits<std::uint64_t>::max());
}

CLI::Option* add_sampling_options(CLI::App& command, SamplingParams& sampling) {
  command
      .add_option("--max-new-tokens,--max-tokens", sampling.max_new_tokens,
                  "Tokens of the answer at most; the context ends it too")
      ->check(CLI::Range(std::int64_t{1}, kMaxCount))
      ->capture_default_str();
  command.add_option("--temperature", sampling.temperature, "0 takes the likeliest token (greedy)")
      ->capture_default_str();
  command.add_option("--top-k", sampling.top_k, "Draw from the k likeliest tokens; 0: from all")
      ->check(CLI::Range(std::int64_t{0}, kMaxCount))
      ->capture_default_str();
  command
      .add_option("--top-p", sampling.top_p,
                  "Draw from the likeliest tokens that hold this share of probability")
      ->capture_default_str();
  command.add_flag("--ignore-eos", sampling.ignore_eos, "Go on after the model's end of text");
  return command
      .add_option("--seed", sampling.seed,
                  "Seed of the draw; the same seed gives the same answer (default: random)")
      ->check(check_seed);
}

}  // namespace

void add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", kDescription);
  command
      ->add_option("model,--model-path,--model", options->engine.model_path, "Folder of the model")
      ->required();
  const CLI::Option* prompt =
      command->add_option("--prompt,-p", options->prompt, "The user's message");
  command->add_option("--system", options->system, "A system message before it");
  command->add_flag("--raw", options->raw, "Continue the prompt as it is, without a chat template");
  command->add_flag("--json", options->json, "Print one JSON object instead of text");
  const CLI::Option* seed = add_sampling_options(*command, options->sampling);
  add_engine_options(*command, options->engine);
  add_moe_options(*command, options->engine.moe);
  command->callback([options, prompt, seed] {
    if (seed->count() == 0) options->sampling.seed = std::random_device()();
    run(*options, prompt->count() > 0);
  });
}

}  // namespace halfbyte::tool
