// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/strings.h"

namespace halfbyte::jinja {
namespace {

const std::string& text_of(const Value& object, std::string_view method) {
  if (!object.is_string()) {
    throw undefined_error(fmt::format(
        "'{}' has no attribute '{}'",
        object.is_none() ? "None" : fmt::format("{} object", object.type_name()), method));
  }
  return object.as_string();
}

const Value& dict_of(const Value& object, std::string_view method) {
  if (object.is_dict()) return object;
  text_of(Value(), method);  // fails
  return object;
}

const std::string& text_argument(const Arguments& arguments,
                                 std::size_t i,
                                 std::string_view method) {
  const Value* value = arguments.find(i, "");
  if (value == nullptr) throw type_error(fmt::format("{}() needs argument {}", method, i + 1));
  if (!value->defined().is_string()) {
    throw type_error(fmt::format("{}() needs a str, got {}", method, value->type_name()));
  }
  return value->as_string();
}

std::int64_t count_argument(const Arguments& arguments, std::size_t i, std::string_view name) {
  const Value* value = arguments.find(i, name);
  if (value == nullptr) return -1;
  if (!value->defined().is_small_integer()) throw type_error(fmt::format("{} is no integer", name));
  return value->to_int64();
}

// startswith and endswith take one text or several.
template <typename Matches>
Value any_affix(const Arguments& arguments, std::string_view method, const Matches& matches) {
  const Value* affix = arguments.find(0, "");
  if (affix == nullptr || !affix->is_list())
    return Value(matches(text_argument(arguments, 0, method)));
  return Value(std::any_of(affix->as_list().begin(), affix->as_list().end(), [&](const Value& v) {
    return v.is_string() && matches(v.as_string());
  }));
}

Value startswith(const Value& object, const Arguments& arguments, Budget&) {
  const std::string& text = text_of(object, "startswith");
  return any_affix(arguments, "startswith",
                   [&](const std::string& a) { return text.starts_with(a); });
}

Value endswith(const Value& object, const Arguments& arguments, Budget&) {
  const std::string& text = text_of(object, "endswith");
  return any_affix(arguments, "endswith", [&](const std::string& a) { return text.ends_with(a); });
}

List split_at_spaces(std::string_view text, std::int64_t max_splits, Budget& budget) {
  List parts;
  text = strip(text, nullptr, Sides::kLeft);
  while (!text.empty()) {
    budget.step();
    std::size_t end = 0;
    const bool is_last = max_splits >= 0 && std::cmp_greater_equal(parts.size(), max_splits);
    if (is_last) {
      parts.emplace_back(std::string(strip(text, nullptr, Sides::kRight)));
      break;
    }
    // The next white space is where stripping a suffix of the text shortens it.
    while (end < text.size() && ((static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U ||
                                 strip(text.substr(end, 4), nullptr, Sides::kLeft).size() ==
                                     text.substr(end, 4).size())) {
      ++end;
    }
    parts.emplace_back(std::string(text.substr(0, end)));
    text = strip(text.substr(end), nullptr, Sides::kLeft);
  }
  return parts;
}

List split_at(std::string_view text,
              std::string_view separator,
              std::int64_t max_splits,
              Budget& budget) {
  if (separator.empty()) throw Failure(StatusCode::kInvalidArgument, "ValueError: empty separator");
  List parts;
  for (;;) {
    budget.step();
    const bool is_last = max_splits >= 0 && std::cmp_greater_equal(parts.size(), max_splits);
    const std::size_t at = is_last ? std::string_view::npos : text.find(separator);
    parts.emplace_back(std::string(text.substr(0, at)));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + separator.size());
  }
}

Value split(const Value& object, const Arguments& arguments, Budget& budget) {
  const std::string& text = text_of(object, "split");
  budget.make(text.size());
  const std::int64_t max_splits = count_argument(arguments, 1, "maxsplit");
  const Value* separator = arguments.find(0, "sep");
  if (separator == nullptr || separator->is_none()) {
    return Value::list(split_at_spaces(text, max_splits, budget));
  }
  if (!separator->defined().is_string()) throw type_error("split() needs a str");
  return Value::list(split_at(text, separator->as_string(), max_splits, budget));
}

template <Sides sides>
Value strip_method(const Value& object, const Arguments& arguments, Budget& budget) {
  const std::string& text = text_of(object, "strip");
  budget.make(text.size());
  return Value(std::string(strip(text, arguments.find(0, "chars"), sides)));
}

Value replace_method(const Value& object, const Arguments& arguments, Budget& budget) {
  return Value(replace(text_of(object, "replace"), text_argument(arguments, 0, "replace"),
                       text_argument(arguments, 1, "replace"),
                       count_argument(arguments, 2, "count"), budget));
}

template <std::string (*function)(std::string_view)>
Value map_method(const Value& object, const Arguments&, Budget& budget) {
  budget.make(text_of(object, "upper").size());
  return Value(function(object.as_string()));
}

std::string capitalize_first(std::string_view text) {
  return capitalize(text, false);
}
std::string capitalize_words(std::string_view text) {
  return capitalize(text, true);
}

Value join_method(const Value& object, const Arguments& arguments, Budget& budget) {
  const std::string& separator = text_of(object, "join");
  const Value* parts = arguments.find(0, "");
  if (parts == nullptr) throw type_error("join() needs a list");
  std::string out;
  bool is_first = true;
  for (const Value& part : iterate(parts->defined(), budget)) {
    if (!part.is_string()) throw type_error("join() of what is not str");
    if (!is_first) append_text(Value(separator), budget, out);
    append_text(part, budget, out);
    is_first = false;
  }
  return Value(std::move(out));
}

Value find_method_of_text(const Value& object, const Arguments& arguments, Budget& budget) {
  const std::string& text = text_of(object, "find");
  budget.make(text.size());
  const std::size_t at = text.find(text_argument(arguments, 0, "find"));
  if (at == std::string::npos) return Value(std::int64_t{-1});
  const Value before(text.substr(0, at));
  return Value(static_cast<std::int64_t>(iterate(before, budget).size()));
}

Value count_method(const Value& object, const Arguments& arguments, Budget& budget) {
  const auto parts =
      split_at(text_of(object, "count"), text_argument(arguments, 0, "count"), -1, budget);
  return Value(static_cast<std::int64_t>(parts.size()) - 1);
}

Value get(const Value& object, const Arguments& arguments, Budget&) {
  const Value* key = arguments.find(0, "");
  if (key == nullptr) throw type_error("get() needs a key");
  const Value* found = key->is_string() ? dict_of(object, "get").find(key->as_string()) : nullptr;
  if (found != nullptr) return *found;
  const Value* standard = arguments.find(1, "");
  return standard == nullptr ? Value() : *standard;
}

Value items(const Value& object, const Arguments&, Budget& budget) {
  return find_filter("items")(dict_of(object, "items"), {}, budget);
}

Value keys(const Value& object, const Arguments&, Budget& budget) {
  return Value::list(iterate(dict_of(object, "keys"), budget));
}

Value values(const Value& object, const Arguments&, Budget& budget) {
  budget.make(dict_of(object, "values").as_dict().size());
  List list;
  for (const auto& item : object.as_dict())
    list.push_back(item.second);
  return Value::list(std::move(list));
}

struct Entry {
  std::string_view name;
  Method method;
};

constexpr Entry kMethods[] = {
    {"startswith", startswith},
    {"endswith", endswith},
    {"split", split},
    {"strip", strip_method<Sides::kBoth>},
    {"lstrip", strip_method<Sides::kLeft>},
    {"rstrip", strip_method<Sides::kRight>},
    {"replace", replace_method},
    {"upper", map_method<to_upper>},
    {"lower", map_method<to_lower>},
    {"capitalize", map_method<capitalize_first>},
    {"title", map_method<capitalize_words>},
    {"join", join_method},
    {"find", find_method_of_text},
    {"count", count_method},
    {"get", get},
    {"items", items},
    {"keys", keys},
    {"values", values},
};

}  // namespace

Method find_method(std::string_view name) {
  for (const Entry& entry : kMethods) {
    if (entry.name == name) return entry.method;
  }
  return nullptr;
}

}  // namespace halfbyte::jinja
