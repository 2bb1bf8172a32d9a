// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "text/utf8.h"

namespace halfbyte::jinja {
namespace {

void check_depth(int depth) {
  if (depth > kMaxValueDepth) {
    throw Failure(StatusCode::kInvalidArgument,
                  fmt::format("a value is nested deeper than {} levels", kMaxValueDepth));
  }
}

// Python's repr of a string.
void append_quoted(std::string_view text, std::string& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += quote;
}

void append_repr(const Value& value, Budget& budget, std::string& out) {
  if (value.is_string()) {
    append_quoted(value.as_string(), out);
    budget.make(out.size() > Budget::kMaxBytes ? out.size() : value.as_string().size());
  } else {
    append_text(value, budget, out);
  }
}

void append_list(const List& list, Budget& budget, std::string& out) {
  out += '[';
  for (const Value& item : list) {
    if (&item != &list.front()) out += ", ";
    append_repr(item, budget, out);
  }
  out += ']';
}

void append_dict(const Dict& dict, Budget& budget, std::string& out) {
  out += '{';
  for (const auto& item : dict) {
    if (&item != &dict.front()) out += ", ";
    append_quoted(item.first, out);
    out += ": ";
    append_repr(item.second, budget, out);
  }
  out += '}';
}

bool equal_lists(const List& a, const List& b, Budget& budget) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Value& x, const Value& y) { return equal(x, y, budget); });
}

bool equal_dicts(const Value& a, const Value& b, Budget& budget) {
  if (a.as_dict().size() != b.as_dict().size()) return false;
  return std::all_of(a.as_dict().begin(), a.as_dict().end(), [&](const auto& item) {
    budget.step(b.as_dict().size());
    const Value* other = b.find(item.first);
    return other != nullptr && equal(item.second, *other, budget);
  });
}

}  // namespace

Failure type_error(const std::string& message) {
  return {StatusCode::kInvalidArgument, "TypeError: " + message};
}

Failure undefined_error(const std::string& message) {
  return {StatusCode::kInvalidArgument, "UndefinedError: " + message};
}

Value Value::list(List items) {
  int depth = 0;
  for (const Value& item : items)
    depth = std::max(depth, item.depth());
  check_depth(depth + 1);
  Value value;
  value.data_ = std::make_shared<const Nested<List>>(Nested<List>{std::move(items), depth + 1});
  return value;
}

Value Value::dict(Dict items) {
  int depth = 0;
  for (const auto& item : items)
    depth = std::max(depth, item.second.depth());
  check_depth(depth + 1);
  Value value;
  value.data_ = std::make_shared<const Nested<Dict>>(Nested<Dict>{std::move(items), depth + 1});
  return value;
}

Value Value::undefined(std::string why) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

int Value::depth() const {
  if (is_list()) return std::get<std::shared_ptr<const Nested<List>>>(data_)->depth;
  if (is_dict()) return std::get<std::shared_ptr<const Nested<Dict>>>(data_)->depth;
  return 0;
}

double Value::to_double() const {
  if (is_float()) return std::get<double>(data_);
  if (holds<BigInteger>()) return std::strtod(digits().c_str(), nullptr);
  return static_cast<double>(to_int64());
}

bool Value::truthy() const {
  if (is_number()) return to_double() != 0;
  if (is_string()) return !as_string().empty();
  if (is_list()) return !as_list().empty();
  if (is_dict()) return !as_dict().empty();
  return is_namespace() || is_macro();
}

std::string_view Value::type_name() const {
  if (is_none()) return "NoneType";
  if (is_undefined()) return "Undefined";
  if (is_bool()) return "bool";
  if (is_integer()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "str";
  if (is_list()) return "list";
  if (is_dict()) return "dict";
  return is_namespace() ? "Namespace" : "Macro";
}

const Value* Value::find(std::string_view key) const {
  if (!is_dict() && !is_namespace()) return nullptr;
  const Dict& dict = is_dict() ? as_dict() : as_namespace().fields;
  const auto it =
      std::find_if(dict.begin(), dict.end(), [&](const auto& item) { return item.first == key; });
  return it == dict.end() ? nullptr : &it->second;
}

const Value& Value::defined() const {
  if (is_undefined()) throw undefined_error(why_undefined());
  return *this;
}

void Budget::step(std::size_t steps) {
  steps_left_ -= static_cast<std::int64_t>(steps);
  if (steps_left_ < 0) {
    throw Failure(StatusCode::kInvalidArgument,
                  fmt::format("the template took more than {} steps", kMaxSteps));
  }
}

void Budget::make(std::size_t size) {
  if (size > kMaxBytes) {
    throw Failure(StatusCode::kInvalidArgument,
                  fmt::format("the template made a text of more than {} bytes", kMaxBytes));
  }
  step(size / 64 + 1);
}

std::string format_float(double value) {
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void append_text(const Value& value, Budget& budget, std::string& out) {
  budget.step();
  if (value.is_undefined()) return;
  if (value.is_string()) {
    budget.make(out.size() + value.as_string().size() > Budget::kMaxBytes
                    ? Budget::kMaxBytes + 1
                    : value.as_string().size());
    out += value.as_string();
  } else if (value.is_list()) {
    append_list(value.as_list(), budget, out);
  } else if (value.is_dict()) {
    append_dict(value.as_dict(), budget, out);
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "True" : "False";
  } else if (value.is_float()) {
    out += format_float(value.to_double());
  } else if (value.is_integer()) {
    out += value.is_small_integer() ? std::to_string(value.as_int64()) : value.digits();
  } else {
    out += value.is_namespace() ? "<Namespace>" : "<Macro>";
  }
}

std::string to_text(const Value& value, Budget& budget) {
  std::string text;
  append_text(value, budget, text);
  return text;
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_number() && b.is_number()) {
    if (a.is_small_integer() && b.is_small_integer()) return a.to_int64() == b.to_int64();
    if (a.is_integer() && b.is_integer()) return to_text(a, budget) == to_text(b, budget);
    return a.to_double() == b.to_double();
  }
  if (a.is_string() && b.is_string()) return a.as_string() == b.as_string();
  if (a.is_list() && b.is_list()) return equal_lists(a.as_list(), b.as_list(), budget);
  if (a.is_dict() && b.is_dict()) return equal_dicts(a, b, budget);
  if (a.is_namespace() && b.is_namespace()) return &a.as_namespace() == &b.as_namespace();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

List iterate(const Value& value, Budget& budget) {
  if (value.is_undefined()) return {};
  List items;
  if (value.is_list()) {
    budget.make(value.as_list().size());
    return value.as_list();
  }
  if (value.is_dict()) {
    for (const auto& item : value.as_dict())
      items.emplace_back(item.first);
  } else if (value.is_string()) {
    budget.step(value.as_string().size());
    for (std::string_view rest = value.as_string(); !rest.empty();) {
      const std::string_view before = rest;
      take_code_point(rest);
      items.emplace_back(std::string(before.substr(0, before.size() - rest.size())));
    }
  } else {
    throw type_error(fmt::format("'{}' object is not iterable", value.type_name()));
  }
  budget.make(items.size());
  return items;
}

}  // namespace halfbyte::jinja
