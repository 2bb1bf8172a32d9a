// SPDX-License-Identifier: Apache-2.0
#include "bench_serve/prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

namespace halfbyte::tool {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Prompts = std::vector<Prompt>;

// Most vocabularies have a token for each, with the space before it.
constexpr std::array<std::string_view, 32> kWords = {
    "the", "of", "and", "to",  "in",   "is",   "for",  "that", "with", "on",  "as",
    "are", "at", "be",  "was", "have", "from", "this", "not",  "by",   "but", "some",
    "all", "or", "one", "had", "what", "we",   "out",  "up",   "time", "day"};

// std::uniform_int_distribution differs between standard libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(limit));
  }
  // Of [ratio * len, len], at least 1.
  std::int64_t length(std::int64_t len, double ratio) {
    const auto least = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(std::ceil(ratio * static_cast<double>(len))));
    return least + below(len - least + 1);
  }

 private:
  std::mt19937_64 engine_;
};

Result<std::int64_t> count_tokens(const DatasetOptions& options, std::string_view text) {
  if (options.count_tokens) return options.count_tokens(text);
  return std::int64_t{-1};
}

// Words until they have `len` tokens; a word counts for one where nobody counts.
Result<std::string> random_text(const DatasetOptions& options, Random& random, std::int64_t len) {
  std::string text;
  std::int64_t num_tokens = 0;
  while (num_tokens < len) {
    const std::string word =
        fmt::format(" {}", kWords[static_cast<std::size_t>(random.below(std::ssize(kWords)))]);
    HALFBYTE_ASSIGN_OR_RETURN(const std::int64_t counted, count_tokens(options, word));
    num_tokens += std::max<std::int64_t>(1, counted);
    text += word;
  }
  return text;
}

Result<Prompt> text_prompt(const DatasetOptions& options,
                           const std::string& text,
                           std::int64_t output_tokens) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::int64_t num_tokens, count_tokens(options, text));
  return Prompt{text, output_tokens, num_tokens};
}

Result<Prompts> random_texts(const DatasetOptions& options) {
  Random random(options.seed);
  Prompts prompts;
  for (std::int64_t i = 0; i < options.num_prompts; ++i) {
    const std::int64_t input_len = random.length(options.input_len, options.range_ratio);
    const std::int64_t output_len = random.length(options.output_len, options.range_ratio);
    HALFBYTE_ASSIGN_OR_RETURN(const std::string text, random_text(options, random, input_len));
    HALFBYTE_ASSIGN_OR_RETURN(Prompt prompt, text_prompt(options, text, output_len));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

Result<Prompts> random_ids(const DatasetOptions& options) {
  Random random(options.seed);
  Prompts prompts;
  for (std::int64_t i = 0; i < options.num_prompts; ++i) {
    Prompt prompt;
    prompt.num_tokens = random.length(options.input_len, options.range_ratio);
    prompt.output_tokens = random.length(options.output_len, options.range_ratio);
    prompt.content = ordered_json::array();
    for (std::int64_t t = 0; t < prompt.num_tokens; ++t)
      prompt.content.push_back(random.below(options.vocab_size));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

// Groups take turns, so that a prefix is wanted again while others are in use.
Result<Prompts> shared_prefixes(const DatasetOptions& options) {
  Random random(options.seed);
  std::vector<std::string> prefixes;
  for (std::int64_t g = 0; g < options.num_groups; ++g) {
    HALFBYTE_ASSIGN_OR_RETURN(std::string prefix,
                              random_text(options, random, options.system_prompt_len));
    prefixes.push_back(std::move(prefix));
  }
  const std::int64_t all = options.num_groups * options.prompts_per_group;
  Prompts prompts;
  for (std::int64_t i = 0; i < std::min(all, options.num_prompts); ++i) {
    HALFBYTE_ASSIGN_OR_RETURN(const std::string question,
                              random_text(options, random, options.question_len));
    const auto group = static_cast<std::size_t>(i % options.num_groups);
    HALFBYTE_ASSIGN_OR_RETURN(
        Prompt prompt,
        text_prompt(options, prefixes[group] + "\n\n" + question, options.output_len));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

// ---------------------------------------------------------------- files

Result<std::string> read_file(const DatasetOptions& options) {
  if (options.path.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("--dataset-name {} needs --dataset-path FILE", options.name));
  }
  std::ifstream file(options.path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return Status(StatusCode::kNotFound,
                  fmt::format("{}: cannot be read; want a data set", options.path));
  }
  return text.str();
}

Status corrupt(const DatasetOptions& options, std::string_view where, std::string_view want) {
  return {StatusCode::kCorruptData, fmt::format("{}, {}: want {}", options.path, where, want)};
}

// The tokens of the answer that the file has, where no option says how many to ask for.
Result<std::int64_t> answer_length(const DatasetOptions& options, std::string_view answer) {
  if (options.fixed_output_len > 0) return options.fixed_output_len;
  HALFBYTE_ASSIGN_OR_RETURN(const std::int64_t num_tokens, count_tokens(options, answer));
  if (num_tokens >= 0) return std::max<std::int64_t>(1, num_tokens);
  return Status(
      StatusCode::kInvalidArgument,
      fmt::format("--dataset-name {} needs --output-len N, or --tokenizer FOLDER to count "
                  "the tokens of its answers",
                  options.name));
}

// The text of one turn; absent: the turn is not one.
const std::string* turn_text(const json& turn) {
  for (const char* name : {"value", "content"}) {
    if (turn.is_object() && turn.contains(name) && turn[name].is_string())
      return turn[name].get_ptr<const std::string*>();
  }
  return nullptr;
}

// {"conversations": [{"value": question}, {"value": answer}, ..]}: the first two turns.
Result<Prompt> conversation_prompt(const DatasetOptions& options, const json& turns) {
  const std::string* question = turn_text(turns[0]);
  const std::string* answer = turn_text(turns[1]);
  if (question == nullptr || answer == nullptr) {
    return Status(StatusCode::kCorruptData, "a turn has no \"value\" or \"content\"");
  }
  HALFBYTE_ASSIGN_OR_RETURN(const std::int64_t output_len, answer_length(options, *answer));
  return text_prompt(options, *question, output_len);
}

bool has_two_turns(const json& entry) {
  return entry.is_object() && entry.contains("conversations") &&
         entry["conversations"].is_array() && entry["conversations"].size() >= 2;
}

// The list of ShareGPT; entries of fewer than two turns are left out, as other clients do.
Result<Prompts> sharegpt(const DatasetOptions& options) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::string text, read_file(options));
  const json entries = json::parse(text, nullptr, false);
  if (!entries.is_array()) return corrupt(options, "whole", "a JSON list of conversations");
  Prompts prompts;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (std::ssize(prompts) == options.num_prompts) break;
    if (!has_two_turns(entries[i])) continue;
    auto prompt = conversation_prompt(options, entries[i]["conversations"]);
    if (!prompt.ok()) return prompt.take_status().with_context(fmt::format("entry {}", i));
    prompts.push_back(std::move(prompt).value());
  }
  return prompts;
}

// {"prompt": TEXT, "output_tokens": N}, or a conversation.
Result<Prompt> custom_prompt(const DatasetOptions& options, const std::string& line) {
  const json entry = json::parse(line, nullptr, false);
  if (has_two_turns(entry)) return conversation_prompt(options, entry["conversations"]);
  if (!entry.is_object() || !entry.contains("prompt") || !entry["prompt"].is_string()) {
    return Status(StatusCode::kCorruptData,
                  "want {\"prompt\": TEXT, \"output_tokens\": N} or {\"conversations\": [..]}");
  }
  std::int64_t output_len = options.fixed_output_len;
  if (output_len == 0 && entry.contains("output_tokens") &&
      entry["output_tokens"].is_number_integer())
    output_len = entry["output_tokens"].get<std::int64_t>();
  if (output_len < 1) {
    return Status(StatusCode::kCorruptData,
                  "no \"output_tokens\" above 0, and no --output-len is given");
  }
  return text_prompt(options, entry["prompt"].get<std::string>(), output_len);
}

Result<Prompts> custom(const DatasetOptions& options) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::string text, read_file(options));
  std::istringstream lines(text);
  Prompts prompts;
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line) && std::ssize(prompts) < options.num_prompts;) {
    ++number;
    if (line.empty()) continue;
    auto prompt = custom_prompt(options, line);
    if (!prompt.ok())
      return prompt.take_status().with_context(fmt::format("{}, line {}", options.path, number));
    prompts.push_back(std::move(prompt).value());
  }
  return prompts;
}

}  // namespace

Result<Prompts> make_prompts(const DatasetOptions& options) {
  using Maker = Result<Prompts> (*)(const DatasetOptions&);
  constexpr std::array<std::pair<std::string_view, Maker>, 5> kMakers = {
      {{"random", random_texts},
       {"random-ids", random_ids},
       {"sharegpt", sharegpt},
       {"generated-shared-prefix", shared_prefixes},
       {"custom", custom}}};
  const auto* const maker =
      std::ranges::find_if(kMakers, [&](const auto& entry) { return entry.first == options.name; });
  if (maker == kMakers.end()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("\"{}\" is no data set here: want random, random-ids, sharegpt, "
                              "generated-shared-prefix or custom",
                              options.name));
  }
  HALFBYTE_ASSIGN_OR_RETURN(Prompts prompts, maker->second(options));
  if (!prompts.empty()) return prompts;
  return Status(StatusCode::kCorruptData, fmt::format("{}: no prompt in it", options.path));
}

}  // namespace halfbyte::tool
