// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <map>
#include <optional>

#include "base/json_error.h"
#include "golden.h"
#include "session.h"

namespace halfbyte::tool {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* kDescription =
    "Answers word problems and counts the right ones.\n\n"
    "A problem is a line of JSON: {\"question\": TEXT, \"answer\": INTEGER}. The prompt is the "
    "chat\n"
    "template with the question as the user's message; the answer is greedy, at most 128 tokens, "
    "and\n"
    "right when the text after its last \"####\" is the integer. Problems are decoded together.\n\n"
    "--golden compares with another implementation's output: the logits of its sequences (kl_mean\n"
    "and kl_max in nats over all positions but each sequence's last; logit_rel_max, the largest\n"
    "difference over the largest logit) and its greedy answers.\n\n"
    "Examples:\n"
    "  halfbyte eval MODEL --problems gsm-mini-eval.jsonl --limit 50\n"
    "  halfbyte eval MODEL --problems gsm-mini-eval.jsonl --golden MODEL/golden --dtype float32 "
    "\\\n"
    "    --kv-cache-dtype float32 --moe-activation-mode w4a4 --json\n"
    "  halfbyte eval MODEL --problems gsm-mini-eval.jsonl --ep-size 2 --moe-a2a-backend "
    "all_to_all\n\n"
    "Exit status: 0 whatever the accuracy, 1 on an error.";

constexpr std::int64_t kMaxNewTokens = 128;

using Ids = std::vector<std::int32_t>;

struct EvalOptions {
  EngineOptions engine;
  std::string problems;
  std::string golden;
  std::int64_t limit = 0;  // 0: all
  bool json = false;
};

struct Problem {
  std::string question;
  std::int64_t answer = 0;
  std::string where = {};  // file and line, for errors
};

struct GoldenResult {
  LogitDistance logits;
  std::int64_t greedy_equal = 0;
  std::int64_t greedy_total = 0;
};

struct Generation {
  std::map<Ids, Ids> answers;  // by prompt
  std::int64_t new_tokens = 0;
  double seconds = 0.0;
};

Result<Problem> parse_problem(const std::string& line) {
  try {
    const auto json = ordered_json::parse(line);
    const auto& answer = json.at("answer");
    if (!answer.is_number_integer() ||
        (answer.is_number_unsigned() && answer.get<std::uint64_t>() > INT64_MAX)) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("answer is {}, want an integer of 64 bits", answer.dump()));
    }
    return Problem{json.at("question").get<std::string>(), answer.get<std::int64_t>()};
  } catch (const ordered_json::exception& e) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("want {{\"question\": text, \"answer\": integer}}: {}",
                              plain_json_error(e.what())));
  }
}

Result<std::vector<Problem>> read_problems(const std::string& path, std::int64_t limit) {
  std::ifstream file(path);
  if (!file) return Status(StatusCode::kNotFound, fmt::format("{}: cannot be read", path));
  std::vector<Problem> problems;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const std::string where = fmt::format("{}: line {}", path, number);
    auto problem = parse_problem(line);
    if (!problem.ok()) return problem.take_status().with_context(where);
    problems.push_back(std::move(problem).value());
    problems.back().where = where;
    if (limit > 0 && static_cast<std::int64_t>(problems.size()) == limit) break;
  }
  if (problems.empty()) {
    return Status(StatusCode::kInvalidArgument, fmt::format("{}: holds no problem", path));
  }
  return problems;
}

// Submits every prompt once and waits for all; the engine decodes as many together as it may.
Generation generate(Engine& engine, const std::vector<Ids>& prompts) {
  Generation generation;
  SamplingParams sampling;
  sampling.max_new_tokens = kMaxNewTokens;
  std::map<RequestId, Ids*> answer_of;
  const Clock::time_point start = Clock::now();
  for (const Ids& prompt : prompts) {
    const auto [entry, is_new] = generation.answers.try_emplace(prompt);
    if (is_new) answer_of[value_or_exit(engine.submit({prompt, sampling}))] = &entry->second;
  }
  const auto total = static_cast<std::int64_t>(answer_of.size());
  for (std::int64_t finished = 0; finished < total;) {
    for (const TokenEvent& event : engine.poll(1000)) {
      exit_on_error(event);
      if (event.token_id >= 0) {
        answer_of.at(event.request_id)->push_back(event.token_id);
        ++generation.new_tokens;
      }
      if (event.finish_reason == FinishReason::kNone) continue;
      print_progress("answered", ++finished, total);
    }
  }
  generation.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return generation;
}

std::string_view strip(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

bool is_right(const Tokenizer& tokenizer, const Ids& answer, std::int64_t want) {
  const std::string text = tokenizer.decode(answer, true);
  const std::size_t mark = text.rfind("####");
  if (mark == std::string::npos) return false;
  return strip(std::string_view(text).substr(mark + 4)) == std::to_string(want);
}

void print_table(const ordered_json& result) {
  for (const auto& [key, value] : result.items()) {
    fmt::print("{:<14} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

class Evaluation {
 public:
  explicit Evaluation(const EvalOptions& options) : options_(options) {}

  void run() {
    problems_ = value_or_exit(read_problems(options_.problems, options_.limit));
    session_ = open_text(options_.engine.model_path);
    open_engine(session_, options_.engine);
    const std::string& mode = session_.engine->info().activation_mode;
    std::vector<GoldenGreedy> greedy;
    std::optional<GoldenResult> golden;
    if (!options_.golden.empty()) {
      golden.emplace().logits = measure_logits(mode);
      greedy = value_or_exit(read_golden_greedy(options_.golden, mode));
      if (options_.limit > 0) greedy.resize(std::min(greedy.size(), problems_.size()));
    }
    const std::vector<Ids> prompts = encode(greedy);
    const Generation generation = generate(*session_.engine, prompts);
    if (golden) count_greedy(generation, greedy, *golden);
    report(generation, prompts, golden);
  }

 private:
  LogitDistance measure_logits(const std::string& mode) {
    Engine& engine = *session_.engine;
    return value_or_exit(measure(engine, value_or_exit(read_golden_logits(
                                             options_.golden, mode, engine.info().vocab_size))));
  }

  // The problems' prompts, then the golden ones.
  std::vector<Ids> encode(const std::vector<GoldenGreedy>& greedy) const {
    std::vector<Ids> prompts;
    for (const Problem& problem : problems_) {
      const ordered_json message = {{"role", "user"}, {"content", problem.question}};
      prompts.push_back(session_.encode_chat(ordered_json::array({message})));
      check_fits(prompts.back(), problem.where);
    }
    for (const GoldenGreedy& golden : greedy) {
      prompts.push_back(golden.prompt_ids);
      check_fits(prompts.back(), options_.golden + ": greedy");
    }
    return prompts;
  }

  void check_fits(const Ids& prompt, const std::string& where) const {
    const auto limit = static_cast<std::size_t>(session_.engine->info().max_sequence_tokens);
    if (prompt.size() < limit) return;
    exit_on_error({StatusCode::kInvalidArgument,
                   fmt::format("{}: the prompt has {} tokens, want fewer than {}, what one request "
                               "may hold: shorten it, or leave it out",
                               where, prompt.size(), limit)});
  }

  static void count_greedy(const Generation& generation,
                           const std::vector<GoldenGreedy>& greedy,
                           GoldenResult& result) {
    result.greedy_total = static_cast<std::int64_t>(greedy.size());
    result.greedy_equal = std::count_if(greedy.begin(), greedy.end(), [&](const auto& golden) {
      return generation.answers.at(golden.prompt_ids) == golden.output_ids;
    });
  }

  double accuracy(const Generation& generation, const std::vector<Ids>& prompts) const {
    std::int64_t num_right = 0;
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      const Ids& answer = generation.answers.at(prompts[i]);
      if (is_right(*session_.tokenizer, answer, problems_[i].answer)) ++num_right;
    }
    return static_cast<double>(num_right) / static_cast<double>(problems_.size());
  }

  void report(const Generation& generation,
              const std::vector<Ids>& prompts,
              const std::optional<GoldenResult>& golden) const {
    const EngineInfo& info = session_.engine->info();
    ordered_json result = {
        {"accuracy", accuracy(generation, prompts)},
        {"num_problems", problems_.size()},
        {"tokens_per_s", static_cast<double>(generation.new_tokens) / generation.seconds},
        {"backend", info.backend},
        {"mode", info.activation_mode},
        {"transport", info.transport},
        {"ep_size", info.ep_size}};
    if (golden) {
      result["kl_mean"] = golden->logits.kl_mean();
      result["kl_max"] = golden->logits.kl_max;
      result["logit_rel_max"] = golden->logits.logit_rel_max();
      result["greedy_equal"] = golden->greedy_equal;
      result["greedy_total"] = golden->greedy_total;
    }
    if (options_.json) {
      print_json(result);
    } else {
      print_table(result);
    }
  }

  const EvalOptions& options_;
  std::vector<Problem> problems_;
  Session session_;
};

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command = app.add_subcommand("eval", kDescription);
  command
      ->add_option("model,--model-path,--model", options->engine.model_path, "Folder of the model")
      ->required();
  command->add_option("--problems", options->problems, "File of problems, one JSON object a line")
      ->required();
  command->add_option("--limit", options->limit, "Take the first problems only; 0: all")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{std::numeric_limits<std::int32_t>::max()}));
  command->add_option("--golden", options->golden, "Folder of golden outputs to compare with");
  command->add_flag("--json", options->json, "Print one JSON object instead of a table");
  add_engine_options(*command, options->engine);
  add_moe_options(*command, options->engine.moe);
  command->callback([options] { Evaluation(*options).run(); });
}

}  // namespace halfbyte::tool
