// SPDX-License-Identifier: Apache-2.0
#include "text/post_processor.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "text/json_sequence.h"

namespace halfbyte {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

Status corrupt(const json& part) {
  return {StatusCode::kCorruptData,
          "post_processor TemplateProcessing: want special tokens around one Sequence A, got " +
              part.dump()};
}

// The ids of {"SpecialToken": {"id": NAME}}, which "special_tokens" has by name.
Result<Ids> read_special(const json& piece, const json& special_tokens) {
  constexpr std::int32_t kMaxId = 1 << 24;
  const json token = piece.value("SpecialToken", json::object());
  const auto listed = special_tokens.find(token.value("id", ""));
  const Ids ids = listed == special_tokens.end() ? Ids() : listed->value("ids", Ids());
  const bool are_ids = !ids.empty() && std::ranges::all_of(ids, [](std::int32_t id) {
    return id >= 0 && id <= kMaxId;
  });
  if (!are_ids) return corrupt(piece);
  return ids;
}

void append(const Ids& more, Ids& ids) {
  ids.insert(ids.end(), more.begin(), more.end());
}

bool begins_with(const Ids& ids, const Ids& part) {
  return part.size() <= ids.size() && std::equal(part.begin(), part.end(), ids.begin());
}

bool ends_with(const Ids& ids, const Ids& part) {
  return part.size() <= ids.size() && std::equal(part.rbegin(), part.rend(), ids.rbegin());
}

}  // namespace

Result<PostProcessor> PostProcessor::create(const json& post_processor) {
  PostProcessor result;
  if (post_processor.is_null()) return result;
  for (const json& part : sequence_parts(post_processor, "processors"))
    HALFBYTE_RETURN_IF_ERROR(result.add(part));
  return result;
}

Status PostProcessor::add(const json& part) {
  const std::string type = part.is_object() ? part.value("type", "") : part.dump();
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return add_template(part);
  return {
      StatusCode::kUnsupported,
      fmt::format("post_processor {}; wanted ByteLevel, TemplateProcessing or a Sequence of them",
                  type)};
}

// "single" is the template of one text; "pair" is of no use here. Each is put around the ones
// before it.
Status PostProcessor::add_template(const json& part) {
  const json special_tokens = part.value("special_tokens", json::object());
  Ids before, behind;
  int num_texts = 0;
  for (const json& piece : part.value("single", json::array())) {
    if (piece.contains("Sequence")) {
      ++num_texts;
      continue;
    }
    HALFBYTE_ASSIGN_OR_RETURN(const Ids ids, read_special(piece, special_tokens));
    append(ids, num_texts == 0 ? before : behind);
  }
  if (num_texts != 1) return corrupt(part.value("single", json()));
  append(before_, before);
  before_ = std::move(before);
  append(behind, behind_);
  return {};
}

std::vector<std::int32_t> PostProcessor::apply(std::vector<std::int32_t> ids) const {
  if (!begins_with(ids, before_)) ids.insert(ids.begin(), before_.begin(), before_.end());
  if (!ends_with(ids, behind_)) append(behind_, ids);
  return ids;
}

}  // namespace halfbyte
