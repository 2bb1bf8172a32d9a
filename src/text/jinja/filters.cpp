// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "text/jinja/builtins.h"
#include "text/jinja/json.h"
#include "text/jinja/strings.h"
#include "text/utf8.h"

namespace halfbyte::jinja {
namespace {

Value tojson(const Value& input, const Arguments& arguments, Budget& budget) {
  constexpr std::int64_t kMaxIndent = 16;
  const Value* indent = arguments.find(1, "indent");
  if (indent == nullptr || indent->is_none()) return Value(dump_json(input, std::nullopt, budget));
  if (!indent->is_small_integer()) throw type_error("the indent of tojson is no integer");
  return Value(
      dump_json(input, std::clamp<std::int64_t>(indent->to_int64(), 0, kMaxIndent), budget));
}

Value trim(const Value& input, const Arguments& arguments, Budget& budget) {
  const std::string text = to_text(input, budget);
  return Value(std::string(strip(text, arguments.find(0, "chars"), Sides::kBoth)));
}

Value length(const Value& input, const Arguments&, Budget& budget) {
  std::size_t size = 0;
  if (input.is_string()) {
    budget.make(input.as_string().size());
    size = count_code_points(input.as_string());
  } else if (input.is_list()) {
    size = input.as_list().size();
  } else if (input.is_dict()) {
    size = input.as_dict().size();
  } else if (!input.is_undefined()) {
    throw type_error(fmt::format("object of type '{}' has no len()", input.type_name()));
  }
  return Value(static_cast<std::int64_t>(size));
}

Value items(const Value& input, const Arguments&, Budget& budget) {
  if (input.is_undefined()) return Value::list({});
  if (!input.is_dict()) throw type_error("Can only get item pairs from a mapping.");
  budget.make(input.as_dict().size());
  List pairs;
  for (const auto& [key, value] : input.as_dict()) {
    pairs.push_back(Value::list({Value(key), value}));
  }
  return Value::list(std::move(pairs));
}

Value string(const Value& input, const Arguments&, Budget& budget) {
  return Value(to_text(input, budget));
}

Value default_value(const Value& input, const Arguments& arguments, Budget&) {
  const Value* replacement = arguments.find(0, "default_value");
  const Value* boolean = arguments.find(1, "boolean");
  const bool is_missing =
      input.is_undefined() || (boolean != nullptr && boolean->truthy() && !input.truthy());
  if (!is_missing) return input;
  return replacement == nullptr ? Value(std::string()) : *replacement;
}

Value join(const Value& input, const Arguments& arguments, Budget& budget) {
  const Value* separator = arguments.find(0, "d");
  const Value* name = arguments.find(1, "attribute");
  std::string out;
  bool is_first = true;
  for (const Value& part : iterate(input, budget)) {
    if (!is_first && separator != nullptr) append_text(*separator, budget, out);
    append_text(name == nullptr ? part : item(part, *name, budget), budget, out);
    is_first = false;
  }
  return Value(std::move(out));
}

template <std::string (*function)(std::string_view)>
Value map_text(const Value& input, const Arguments&, Budget& budget) {
  return Value(function(to_text(input, budget)));
}

std::string capitalize_first(std::string_view text) {
  return capitalize(text, false);
}
std::string capitalize_words(std::string_view text) {
  return capitalize(text, true);
}

Value replace_filter(const Value& input, const Arguments& arguments, Budget& budget) {
  const Value* from = arguments.find(0, "old");
  const Value* to = arguments.find(1, "new");
  const Value* count = arguments.find(2, "count");
  if (from == nullptr || to == nullptr) throw type_error("replace needs old and new");
  const bool has_count = count != nullptr && count->is_small_integer();
  return Value(replace(to_text(input, budget), to_text(*from, budget), to_text(*to, budget),
                       has_count ? count->to_int64() : -1, budget));
}

Value first(const Value& input, const Arguments&, Budget& budget) {
  const List list = iterate(input, budget);
  return list.empty() ? Value::undefined("No first item, sequence was empty.") : list.front();
}

Value last(const Value& input, const Arguments&, Budget& budget) {
  const List list = iterate(input, budget);
  return list.empty() ? Value::undefined("No last item, sequence was empty.") : list.back();
}

Value list(const Value& input, const Arguments&, Budget& budget) {
  return Value::list(iterate(input, budget));
}

Value reverse(const Value& input, const Arguments&, Budget& budget) {
  return slice(input, {Value(), Value(), Value(std::int64_t{-1})}, budget);
}

Value unchanged(const Value& input, const Arguments&, Budget&) {
  return input;
}

Value to_integer(const Value& input, const Arguments& arguments, Budget&) {
  const Value* standard = arguments.find(0, "default");
  const Value fallback = standard == nullptr ? Value(std::int64_t{0}) : *standard;
  if (input.is_integer()) return input;
  const double value = input.is_number()   ? input.to_double()
                       : input.is_string() ? std::strtod(input.as_string().c_str(), nullptr)
                                           : std::nan("");
  constexpr double kLimit = 9.2e18;
  const bool is_text =
      input.is_string() && input.as_string().find_first_of("0123456789") == std::string::npos;
  if (is_text || !(std::abs(value) < kLimit)) return fallback;
  return Value(static_cast<std::int64_t>(value));
}

// map(attribute=name, default=...) or map(filter, arguments...).
Value map(const Value& input, const Arguments& arguments, Budget& budget) {
  const Value* name = arguments.find(arguments.positional.size(), "attribute");
  const Value* standard = arguments.find(arguments.positional.size(), "default");
  List mapped;
  if (name != nullptr) {
    for (const Value& part : iterate(input, budget)) {
      mapped.push_back(item(part, *name, budget));
      if (mapped.back().is_undefined() && standard != nullptr) mapped.back() = *standard;
    }
    return Value::list(std::move(mapped));
  }
  const bool is_named = !arguments.positional.empty() && arguments.positional[0].is_string();
  const Filter filter = is_named ? find_filter(arguments.positional[0].as_string()) : nullptr;
  if (filter == nullptr) throw type_error("map needs an attribute or the name of a filter");
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& part : iterate(input, budget))
    mapped.push_back(filter(part, rest, budget));
  return Value::list(std::move(mapped));
}

// select(test, ...) and selectattr(name, test, ...); no test: truth.
template <bool by_attribute, bool keep>
Value select(const Value& input, const Arguments& arguments, Budget& budget) {
  Arguments rest = arguments;
  Value name;
  const auto take = [&](std::string_view what) {
    if (rest.positional.empty()) throw type_error(fmt::format("select needs {}", what));
    Value taken = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return taken;
  };
  if constexpr (by_attribute) name = take("an attribute");
  Test test = nullptr;
  if (!rest.positional.empty()) {
    const Value word = take("a test");
    test = word.is_string() ? find_test(word.as_string()) : nullptr;
    if (test == nullptr) throw type_error("select with an unknown test");
  }
  List kept;
  for (const Value& part : iterate(input, budget)) {
    const Value value = by_attribute ? item(part, name, budget) : part;
    if ((test == nullptr ? value.truthy() : test(value, rest, budget)) == keep)
      kept.push_back(part);
  }
  return Value::list(std::move(kept));
}

struct Entry {
  std::string_view name;
  Filter filter;
};

constexpr Entry kFilters[] = {
    {"tojson", tojson},
    {"trim", trim},
    {"length", length},
    {"count", length},
    {"items", items},
    {"string", string},
    {"default", default_value},
    {"d", default_value},
    {"join", join},
    {"upper", map_text<to_upper>},
    {"lower", map_text<to_lower>},
    {"capitalize", map_text<capitalize_first>},
    {"title", map_text<capitalize_words>},
    {"replace", replace_filter},
    {"first", first},
    {"last", last},
    {"list", list},
    {"reverse", reverse},
    {"safe", unchanged},
    {"int", to_integer},
    {"map", map},
    {"select", select<false, true>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<true, false>},
};

}  // namespace

const Value* Arguments::find(std::size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  const auto it = std::find_if(named.begin(), named.end(),
                               [&](const auto& item) { return item.first == name; });
  return it == named.end() ? nullptr : &it->second;
}

Filter find_filter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.filter;
  }
  return nullptr;
}

}  // namespace halfbyte::jinja
