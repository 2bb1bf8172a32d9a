// SPDX-License-Identifier: Apache-2.0
//
// SGLang's /generate: a completion whose answers, and events of a stream, carry the text so far.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <span>
#include <utility>

#include "server/api_format.h"
#include "server/logprobs.h"
#include "server/path_map.h"
#include "server/shared_fields.h"

namespace halfbyte::server {
namespace {

constexpr std::int64_t kDefaultNewTokens = 128;  // SGLang's

// A field of the request, and the completion's of the same meaning.
struct Renamed {
  std::string_view theirs;
  std::string_view ours;
};
constexpr auto kFields = std::to_array<Renamed>({{"model", "model"},
                                                 {"stream", "stream"},
                                                 {"rid", "rid"},
                                                 {"cache_salt", "cache_salt"},
                                                 {"priority", "priority"}});
constexpr auto kSamplingFields =
    std::to_array<Renamed>({{"max_new_tokens", "max_tokens"},
                            {"min_new_tokens", "min_tokens"},
                            {"n", "n"},
                            {"temperature", "temperature"},
                            {"top_p", "top_p"},
                            {"top_k", "top_k"},
                            {"min_p", "min_p"},
                            {"frequency_penalty", "frequency_penalty"},
                            {"presence_penalty", "presence_penalty"},
                            {"repetition_penalty", "repetition_penalty"},
                            {"logit_bias", "logit_bias"},
                            {"sampling_seed", "seed"},
                            {"stop", "stop"},
                            {"stop_token_ids", "stop_token_ids"},
                            {"ignore_eos", "ignore_eos"},
                            {"skip_special_tokens", "skip_special_tokens"},
                            {"no_stop_trim", "include_stop_str_in_output"},
                            {"regex", "regex"},
                            {"ebnf", "ebnf"},
                            {"structural_tag", "structural_tag"}});
// Read on their own; and those that do nothing here.
constexpr auto kOwnFields = std::to_array<std::string_view>(
    {"text", "input_ids", "sampling_params", "return_logprob", "logprob_start_len",
     "top_logprobs_num", "return_text_in_logprobs", "return_hidden_states"});
constexpr auto kOwnSamplingFields =
    std::to_array<std::string_view>({"json_schema", "spaces_between_special_tokens"});
constexpr auto kUnsupported = std::to_array<std::string_view>(
    {"input_embeds", "image_data", "video_data", "audio_data", "lora_path", "session_params",
     "custom_logit_processor", "token_ids_logprob"});
constexpr std::string_view kStopRegex = "stop_regex";

// ---------------------------------------------------------------- requests

class GenerateConversion {
 public:
  GenerateConversion(const Json& body, PathMap& paths, std::optional<ApiError>& error)
      : paths_(paths), error_(error), reader_(body, "", error) {}

  /// The body of a completion that asks for the same.
  Json run() {
    copy(reader_, kFields);
    for (const std::string_view name : kUnsupported) {
      if (reader_.find(name) != nullptr) reader_.refuse(name);
    }
    if (reader_.boolean("return_hidden_states").value_or(false)) {
      reader_.refuse("return_hidden_states");
    }
    add_prompt();
    completion_["max_tokens"] = kDefaultNewTokens;
    if (const Json* sampling = reader_.object("sampling_params")) add_sampling(*sampling);
    add_logprobs();
    completion_["return_token_ids"] = true;
    return std::move(completion_);
  }

 private:
  template <std::size_t Size>
  void copy(FieldReader& reader, const std::array<Renamed, Size>& fields) {
    for (const auto& [theirs, ours] : fields) {
      paths_.add(std::string(ours), reader.path_of(theirs));
      if (const Json* value = reader.find(theirs)) completion_[std::string(ours)] = *value;
    }
  }

  void add_prompt() {
    const Json* text = reader_.find("text");
    const Json* ids = reader_.find("input_ids");
    if ((text == nullptr) == (ids == nullptr)) {
      return reader_.fail("text", "want one of text and input_ids: a prompt, or a list of them");
    }
    paths_.add("prompt", text != nullptr ? "text" : "input_ids");
    completion_["prompt"] = text != nullptr ? *text : *ids;
    check_kind(text != nullptr);
  }

  // A completion's prompt is texts or ids; here each has its name.
  void check_kind(bool is_text) {
    const Json& prompt = completion_["prompt"];
    const auto check = [&](const Json& one) {
      if (one.is_string() == is_text) return;
      reader_.fail_type(is_text ? "text" : "input_ids",
                        is_text ? "a text or a list of texts" : "a list of ids, or a list of those",
                        one);
    };
    if (!prompt.is_array()) return check(prompt);
    std::ranges::for_each(prompt, check);
  }

  void add_sampling(const Json& sampling) {
    FieldReader reader(sampling, "sampling_params", error_);
    copy(reader, kSamplingFields);
    if (reader.find(kStopRegex) != nullptr) reader.refuse(kStopRegex);
    const auto schema = reader.string("json_schema");
    if (!schema) return;
    auto parsed = parse_object(*schema);
    if (const auto* problem = std::get_if<ApiError>(&parsed)) {
      return reader.fail("json_schema", "sampling_params.json_schema: " + problem->message);
    }
    paths_.add("structured_outputs.json", "sampling_params.json_schema");
    paths_.add("structured_outputs", "sampling_params.json_schema");
    completion_["structured_outputs"] = {{"json", std::get<Json>(std::move(parsed))}};
  }

  void add_logprobs() {
    const bool wanted = reader_.boolean("return_logprob").value_or(false);
    const Json* top = reader_.find("top_logprobs_num");
    paths_.add("logprobs", "top_logprobs_num");
    if (wanted) completion_["logprobs"] = top == nullptr ? Json(0) : *top;
    reader_.boolean("return_text_in_logprobs");
    reader_.integer("logprob_start_len", -1, std::numeric_limits<std::int32_t>::max());
  }

  PathMap& paths_;
  std::optional<ApiError>& error_;
  FieldReader reader_;
  Json completion_ = Json::object();
};

// ---------------------------------------------------------------- answers

// null while it goes on. The end of text is an id that matched, as a stop id is.
Json finish_reason_of(const Choice& choice, const AnswerWriter::Tokens& tokens) {
  const std::string& reason = choice.finish_reason();
  if (reason == "length") return {{"type", "length"}, {"length", choice.num_tokens()}};
  if (reason == "abort") return {{"type", "abort"}, {"message", "the request was aborted"}};
  if (reason.empty()) return nullptr;
  Json matched = choice.stop_reason();
  if (matched.is_null() && !tokens.empty()) matched = tokens.back().id;
  return {{"type", "stop"}, {"matched", std::move(matched)}};
}

// What the request's `answer_fields` are: {is_list, has_texts}, whether answers are a list, and
// whether logprobs have texts.
class GenerateWriter : public AnswerWriter {
 public:
  using AnswerWriter::AnswerWriter;

  std::string first_event(const Place&) override { return {}; }
  std::string finish_event(const Place& place, const Tokens& tokens) override {
    return add(place, "", tokens);
  }
  std::string end_events(const Usage&) override { return std::string(kDoneEvent); }
  std::string response(const std::vector<Choice>& choices,
                       const std::vector<AnswerParts>& answers,
                       const Usage& usage) override;

 private:
  std::string text_event(const Place& place, const std::string& text, Tokens& tokens) override {
    return add(place, text, std::exchange(tokens, {}));
  }
  std::string add(const Place& place, const std::string& text, const Tokens& tokens);
  Json answer(const Choice& choice, const AnswerPart& so_far) const;
  void add_logprobs(const Tokens& tokens, Json& meta) const;
  void add_logprobs(const TokenRecord& token, Json& own, Json& top) const;
  Json triple(std::int32_t id, Json logprob) const;
  bool is_list() const { return request().answer_fields.at("is_list").get<bool>(); }

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<AnswerPart> so_far_;  // of each choice, of a stream
};

std::string GenerateWriter::add(const Place& place, const std::string& text, const Tokens& tokens) {
  if (so_far_.size() <= place.choice_idx) so_far_.resize(place.choice_idx + 1);
  AnswerPart& so_far = so_far_[place.choice_idx];
  so_far.append({.content = text, .tokens = tokens});
  Json json = answer(place.choice, so_far);
  if (is_list()) json["index"] = place.choice_idx;
  return to_event(json);
}

Json GenerateWriter::answer(const Choice& choice, const AnswerPart& so_far) const {
  Json meta = {{"id", id()},
               {"finish_reason", finish_reason_of(choice, so_far.tokens)},
               {"prompt_tokens", request().prompts[choice.prompt_idx()].size()},
               {"completion_tokens", choice.num_tokens()},
               {"cached_tokens", choice.num_cached_tokens()}};
  if (request().sampling.num_logprobs >= 0) add_logprobs(so_far.tokens, meta);
  if (choice.finished()) {
    const auto now = std::chrono::steady_clock::now();
    meta["e2e_latency"] = std::chrono::duration<double>(now - start_).count();
  }
  return {{"text", so_far.content},
          {"output_ids", ids_of(so_far.tokens)},
          {"meta_info", std::move(meta)}};
}

// [logprob, id, text], the text null unless asked for, and the logprob where nothing is known.
Json GenerateWriter::triple(std::int32_t id, Json logprob) const {
  const bool has_text = request().answer_fields.at("has_texts").get<bool>();
  Json text = has_text ? Json(tokenizer().decode(std::array{id}, false)) : Json();
  return Json::array({std::move(logprob), id, std::move(text)});
}

// Lists of the triples of tokens, and of the likeliest in their places.
void GenerateWriter::add_logprobs(const TokenRecord& token, Json& own, Json& top) const {
  if (token.logprobs.empty()) {
    own.push_back(triple(token.id, nullptr));
    top.push_back(nullptr);
    return;
  }
  own.push_back(triple(token.id, finite_logprob(token.logprobs.front().logprob)));
  Json likeliest = Json::array();
  for (const TokenLogprob& likely : std::span(token.logprobs).subspan(1)) {
    likeliest.push_back(triple(likely.token_id, finite_logprob(likely.logprob)));
  }
  top.push_back(std::move(likeliest));
}

void GenerateWriter::add_logprobs(const Tokens& tokens, Json& meta) const {
  Json input = Json::array(), input_top = Json::array();
  Json output = Json::array(), output_top = Json::array();
  for (const TokenRecord& token : tokens) {
    if (token.of_prompt) {
      add_logprobs(token, input, input_top);
    } else {
      add_logprobs(token, output, output_top);
    }
  }
  meta["input_token_logprobs"] = std::move(input);
  meta["output_token_logprobs"] = std::move(output);
  if (request().sampling.num_logprobs == 0) return;
  meta["input_top_logprobs"] = std::move(input_top);
  meta["output_top_logprobs"] = std::move(output_top);
}

std::string GenerateWriter::response(const std::vector<Choice>& choices,
                                     const std::vector<AnswerParts>& answers,
                                     const Usage&) {
  Json list = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    list.push_back(answer(choices[i], merge(answers[i])));
  }
  return to_text(is_list() ? list : list.front());
}

// ---------------------------------------------------------------- the format

class GenerateFormat : public ApiFormat {
 public:
  std::string_view id_prefix() const override { return "gen-"; }
  std::variant<GenerationRequest, ApiError> read(const Json& body,
                                                 const RequestScope& scope) const override;
  std::vector<std::string> unknown_fields(const Json& body) const override;
  std::unique_ptr<AnswerWriter> make_writer(AnswerSource source) const override {
    return std::make_unique<GenerateWriter>(std::move(source));
  }
};

// The request has been accepted; with `logprob_start_len` it wants the prompts' logprobs too.
std::optional<ApiError> read_prompt_logprobs(const Json& body, GenerationRequest& request) {
  const Json& start = member_of(body, "logprob_start_len");
  if (request.sampling.num_logprobs < 0 || start.is_null() || start == -1) return std::nullopt;
  request.sampling.num_prompt_logprobs = request.sampling.num_logprobs;
  request.sampling.prompt_logprob_start = start.get<std::int64_t>();
  for (const auto& prompt : request.prompts) {
    if (start <= prompt.size()) continue;
    return ApiError{400,
                    fmt::format("logprob_start_len is {}, want at most the {} tokens of the prompt",
                                start.dump(), prompt.size()),
                    "logprob_start_len", ""};
  }
  return std::nullopt;
}

std::variant<GenerationRequest, ApiError> GenerateFormat::read(const Json& body,
                                                               const RequestScope& scope) const {
  PathMap paths;
  std::optional<ApiError> error;
  const Json completion = GenerateConversion(body, paths, error).run();
  if (error) return std::move(*error);
  auto result = as_written(read_completion_request(completion, scope, true), paths);
  auto* request = std::get_if<GenerationRequest>(&result);
  if (request == nullptr) return result;
  const Json& prompt = completion["prompt"];
  const bool has_many = prompt.is_array() && !prompt.front().is_number();
  request->answer_fields = {{"is_list", has_many || request->n > 1},
                            {"has_texts", member_of(body, "return_text_in_logprobs") == true}};
  if (auto problem = read_prompt_logprobs(body, *request)) return std::move(*problem);
  return result;
}

template <std::size_t Size>
bool lists(const std::array<Renamed, Size>& fields, std::string_view name) {
  return std::ranges::any_of(fields, [name](const Renamed& field) { return field.theirs == name; });
}

std::vector<std::string> GenerateFormat::unknown_fields(const Json& body) const {
  std::vector<std::string> names;
  for (const auto& item : body.items()) {
    const bool is_known = lists(kFields, item.key()) ||
                          std::ranges::count(kOwnFields, item.key()) > 0 ||
                          std::ranges::count(kUnsupported, item.key()) > 0;
    if (!is_known) names.push_back(item.key());
  }
  const Json& sampling = member_of(body, "sampling_params");
  if (!sampling.is_object()) return names;
  for (const auto& item : sampling.items()) {
    const bool is_known = lists(kSamplingFields, item.key()) || item.key() == kStopRegex ||
                          std::ranges::count(kOwnSamplingFields, item.key()) > 0;
    if (!is_known) names.push_back("sampling_params." + item.key());
  }
  return names;
}

}  // namespace

std::unique_ptr<const ApiFormat> make_generate_format() {
  return std::make_unique<GenerateFormat>();
}

}  // namespace halfbyte::server
