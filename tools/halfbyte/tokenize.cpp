// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <utility>

#include "base/json_error.h"
#include "command.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace halfbyte::tool {
namespace {

using nlohmann::ordered_json;

constexpr const char* kDescription =
    "Runs the tokenizer and the chat template of a model: one JSON object a line, from standard\n"
    "input to standard output.\n\n"
    "  {\"text\": \"Hi\"}          ->  {\"ids\": [13347], \"decoded\": \"Hi\"}\n"
    "  {\"ids\": [13347]}        ->  {\"decoded\": \"Hi\"}\n"
    "  {\"messages\": [...]}     ->  {\"rendered\": \"...\"} or {\"error\": \"...\"}\n\n"
    "Added tokens inside a text (<|im_end|>) are recognised; none are put around it. `decoded` "
    "keeps\n"
    "special tokens. Beside `messages`, every other key of a line is a variable of the template:\n"
    "tools, add_generation_prompt, enable_thinking, ... (`rendered` and `error` are left out, so "
    "that\n"
    "this command's own output can be fed back to it).\n\n"
    "Example:\n"
    "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
    "\"add_generation_prompt\": true}' |\n"
    "    halfbyte tokenize models/gsm-mini-qwen3moe-nvfp4\n\n"
    "Exit status: 0 when every line was answered (an error of the template is an answer), 1 when\n"
    "the tokenizer cannot be loaded or a line is none of these; the line is named.";

class Answerer {
 public:
  explicit Answerer(std::string directory)
      : directory_(std::move(directory)), tokenizer_(value_or_exit(Tokenizer::load(directory_))) {}

  Result<ordered_json> answer(const ordered_json& line) {
    if (line.contains("messages")) return render(line);
    if (line.contains("text") && line["text"].is_string()) {
      HALFBYTE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids,
                                tokenizer_->encode(line["text"].get<std::string>()));
      return ordered_json{{"ids", ids}, {"decoded", tokenizer_->decode(ids, false)}};
    }
    if (line.contains("ids") && line["ids"].is_array()) return decode(line["ids"]);
    return Status(StatusCode::kInvalidArgument,
                  "wanted a \"text\" (string), \"ids\" (list of integers) or \"messages\" (list)");
  }

 private:
  Result<ordered_json> decode(const ordered_json& list) const {
    std::vector<std::int32_t> ids;
    for (const ordered_json& id : list) {
      if (!id.is_number_integer() || id < 0 || id >= tokenizer_->vocab_size()) {
        return Status(StatusCode::kInvalidArgument,
                      fmt::format("id {} is not in [0, {})", id.dump(), tokenizer_->vocab_size()));
      }
      ids.push_back(id.get<std::int32_t>());
    }
    return ordered_json{{"decoded", tokenizer_->decode(ids, false)}};
  }

  Result<ordered_json> render(ordered_json variables) {
    if (template_ == nullptr) {
      HALFBYTE_ASSIGN_OR_RETURN(template_, ChatTemplate::load(directory_));
    }
    variables.erase("rendered");
    variables.erase("error");
    const auto rendered = template_->render(variables.dump());
    if (!rendered.ok()) return ordered_json{{"error", std::string(rendered.status().message())}};
    return ordered_json{{"rendered", rendered.value()}};
  }

  std::string directory_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> template_;  // loaded by the first line that needs it
};

Result<ordered_json> parse_line(const std::string& line) {
  try {
    ordered_json parsed = ordered_json::parse(line);
    if (parsed.is_object()) return parsed;
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("want a JSON object, got {}", parsed.type_name()));
  } catch (const ordered_json::exception& e) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("want a JSON object: {}", plain_json_error(e.what())));
  }
}

void answer_lines(const std::string& directory) {
  exit_unless_folder(directory, "a folder with tokenizer.json");
  Answerer answerer(directory);
  std::string line;
  for (std::int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.empty()) continue;
    auto answer = parse_line(line);
    if (answer.ok()) answer = answerer.answer(*answer);
    if (!answer.ok())
      exit_on_error(answer.take_status().with_context(fmt::format("line {}", number)));
    print_json(answer.value());
  }
}

}  // namespace

void add_tokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", kDescription);
  auto directory = std::make_shared<std::string>();
  command
      ->add_option("TOKENIZER_DIR", *directory,
                   "Directory with tokenizer.json and, for messages, the chat template")
      ->required();
  command->callback([directory] { answer_lines(*directory); });
}

}  // namespace halfbyte::tool
