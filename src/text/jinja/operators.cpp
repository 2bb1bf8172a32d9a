// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/builtins.h"
#include "text/utf8.h"

namespace halfbyte::jinja {
namespace {

// "list object", "None": how Jinja names what has no such key.
std::string describe(const Value& object) {
  return object.is_none() ? "None" : fmt::format("{} object", object.type_name());
}

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
}

[[noreturn]] void fail_operands(std::string_view op, const Value& a, const Value& b) {
  if (op == "+" && a.is_string()) {
    throw type_error(fmt::format("can only concatenate str (not \"{}\") to str", b.type_name()));
  }
  throw type_error(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op,
                               a.type_name(), b.type_name()));
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value integer_arithmetic(char op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflows = false;
  if (op == '+') overflows = __builtin_add_overflow(a, b, &result);
  if (op == '-') overflows = __builtin_sub_overflow(a, b, &result);
  if (op == '*') overflows = __builtin_mul_overflow(a, b, &result);
  if (op == 'd' || op == '%') {
    if (b == 0) throw Failure(StatusCode::kInvalidArgument, "ZeroDivisionError: division by zero");
    overflows = a == std::numeric_limits<std::int64_t>::min() && b == -1;
    if (!overflows) result = op == 'd' ? floor_divide(a, b) : a - floor_divide(a, b) * b;
  }
  if (overflows) {
    throw Failure(StatusCode::kInvalidArgument, "OverflowError: an integer exceeds 64 bits");
  }
  return Value(result);
}

Value float_arithmetic(char op, double a, double b) {
  if (op == '+') return Value(a + b);
  if (op == '-') return Value(a - b);
  if (op == '*') return Value(a * b);
  if (b == 0) throw Failure(StatusCode::kInvalidArgument, "ZeroDivisionError: division by zero");
  if (op == '/') return Value(a / b);
  if (op == 'd') return Value(std::floor(a / b));
  return Value(a - std::floor(a / b) * b);
}

Value arithmetic(std::string_view op, const Value& a, const Value& b) {
  const char code = op == "//" ? 'd' : op[0];
  if (code != '/' && a.is_small_integer() && b.is_small_integer()) {
    return integer_arithmetic(code, a.to_int64(), b.to_int64());
  }
  return float_arithmetic(code, a.to_double(), b.to_double());
}

Value concatenate(const List& a, const List& b, Budget& budget) {
  budget.make(a.size() + b.size());
  List joined = a;
  joined.insert(joined.end(), b.begin(), b.end());
  return Value::list(std::move(joined));
}

Value repeat(const Value& text, const Value& times, Budget& budget) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times.to_int64(), 0));
  const std::string& unit = text.as_string();
  if (unit.empty() || count == 0) return Value(std::string());
  budget.make(count > Budget::kMaxBytes / unit.size() ? Budget::kMaxBytes + 1
                                                      : count * unit.size());
  std::string out;
  for (std::size_t i = 0; i < count; ++i)
    out += unit;
  return Value(std::move(out));
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_undefined()) return false;
  if (container.is_string()) {
    if (!item.defined().is_string()) {
      throw type_error(
          fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
    }
    budget.make(container.as_string().size());
    return container.as_string().find(item.as_string()) != std::string::npos;
  }
  if (container.is_dict()) return item.is_string() && container.find(item.as_string()) != nullptr;
  if (!container.is_list()) {
    throw type_error(fmt::format("argument of type '{}' is not iterable", container.type_name()));
  }
  return std::any_of(container.as_list().begin(), container.as_list().end(),
                     [&](const Value& v) { return equal(v, item, budget); });
}

// -1, 0, 1 as a < b, a == b, a > b.
template <typename T>
int three_way(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

int order(std::string_view op, const Value& a, const Value& b, Budget& budget);

int order_lists(std::string_view op, const List& a, const List& b, Budget& budget) {
  const std::size_t common = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (const int part = order(op, a[i], b[i], budget); part != 0) return part;
  }
  return three_way(a.size(), b.size());
}

int order_numbers(const Value& a, const Value& b) {
  const bool small = a.is_small_integer() && b.is_small_integer();
  return small ? three_way(a.to_int64(), b.to_int64()) : three_way(a.to_double(), b.to_double());
}

int order(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_number() && b.is_number()) return order_numbers(a, b);
  if (a.is_string() && b.is_string()) return a.as_string().compare(b.as_string());
  if (a.is_list() && b.is_list()) return order_lists(op, a.as_list(), b.as_list(), budget);
  throw type_error(fmt::format("'{}' not supported between instances of '{}' and '{}'", op,
                               a.defined().type_name(), b.defined().type_name()));
}

// One of `size` elements, counted from the end when negative; false outside.
bool resolve_index(std::int64_t index, std::size_t size, std::size_t& resolved) {
  const auto signed_size = static_cast<std::int64_t>(size);
  if (index < -signed_size || index >= signed_size) return false;
  resolved = static_cast<std::size_t>(index < 0 ? index + signed_size : index);
  return true;
}

std::int64_t slice_part(const Value& part, std::int64_t standard) {
  if (part.is_none()) return standard;
  if (!part.defined().is_small_integer()) {
    throw type_error("slice indices must be integers or None");
  }
  return part.to_int64();
}

// Indices of a slice of `size` elements, by Python's rules.
std::vector<std::size_t> slice_indices(std::size_t size, const SliceBounds& bounds) {
  constexpr std::int64_t kFar = std::int64_t{1} << 40;  // beyond any length
  const auto length = static_cast<std::int64_t>(size);
  const std::int64_t step = std::clamp(slice_part(bounds.step, 1), -kFar, kFar);
  if (step == 0) throw type_error("slice step cannot be zero");
  const bool forward = step > 0;
  const auto clip = [&](const Value& part, std::int64_t standard) {
    if (part.is_none()) return standard;
    std::int64_t index = std::clamp(slice_part(part, 0), -kFar, kFar);
    if (index < 0) index += length;
    return std::clamp(index, forward ? std::int64_t{0} : -1, forward ? length : length - 1);
  };
  const std::int64_t stop = clip(bounds.stop, forward ? length : -1);
  std::vector<std::size_t> indices;
  for (std::int64_t i = clip(bounds.start, forward ? 0 : length - 1); forward ? i < stop : i > stop;
       i += step) {
    indices.push_back(static_cast<std::size_t>(i));
  }
  return indices;
}

std::string slice_text(const std::string& text, const SliceBounds& bounds, Budget& budget) {
  std::string out;
  if (is_ascii(text)) {
    for (const std::size_t i : slice_indices(text.size(), bounds))
      out += text[i];
    return out;
  }
  std::vector<char32_t> characters;
  budget.step(text.size());
  for (std::string_view rest = text; !rest.empty();)
    characters.push_back(take_code_point(rest));
  for (const std::size_t i : slice_indices(characters.size(), bounds)) {
    append_code_point(characters[i], out);
  }
  return out;
}

}  // namespace

Value attribute(const Value& object, std::string_view name) {
  if (const Value* value = object.defined().find(name); value != nullptr) return *value;
  const std::string owner = object.is_dict() ? "dict object" : describe(object);
  return Value::undefined(fmt::format("'{}' has no attribute '{}'", owner, name));
}

Value item(const Value& object, const Value& key, Budget& budget) {
  if (key.is_string()) return attribute(object, key.as_string());
  object.defined();
  std::size_t index = 0;
  if (key.is_small_integer() && object.is_list() &&
      resolve_index(key.to_int64(), object.as_list().size(), index)) {
    return object.as_list()[index];
  }
  if (key.is_small_integer() && object.is_string()) {
    const std::size_t length = count_code_points(object.as_string());
    budget.make(object.as_string().size());
    if (resolve_index(key.to_int64(), length, index)) {
      const auto at = static_cast<std::int64_t>(index);
      const SliceBounds bounds = {Value(at), Value(at + 1), Value()};
      return Value(slice_text(object.as_string(), bounds, budget));
    }
  }
  return Value::undefined(
      fmt::format("{} has no element {}", describe(object), to_text(key.defined(), budget)));
}

Value slice(const Value& object, const SliceBounds& bounds, Budget& budget) {
  if (object.defined().is_string()) {
    budget.make(object.as_string().size());
    return Value(slice_text(object.as_string(), bounds, budget));
  }
  if (!object.is_list()) {
    throw type_error(fmt::format("'{}' object is not subscriptable", object.type_name()));
  }
  budget.make(object.as_list().size());
  List items;
  for (const std::size_t i : slice_indices(object.as_list().size(), bounds)) {
    items.push_back(object.as_list()[i]);
  }
  return Value::list(std::move(items));
}

Value binary(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (op == "~") {
    std::string text = to_text(a, budget);
    append_text(b, budget, text);
    return Value(std::move(text));
  }
  a.defined();
  b.defined();
  if (a.is_number() && b.is_number()) return arithmetic(op, a, b);
  if (op == "+" && a.is_string() && b.is_string()) {
    budget.make(a.as_string().size() + b.as_string().size());
    return Value(a.as_string() + b.as_string());
  }
  if (op == "+" && a.is_list() && b.is_list()) return concatenate(a.as_list(), b.as_list(), budget);
  if (op == "*" && a.is_string() && b.is_small_integer()) return repeat(a, b, budget);
  if (op == "*" && b.is_string() && a.is_small_integer()) return repeat(b, a, budget);
  fail_operands(op, a, b);
}

bool compare(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (op == "in") return contains(b, a, budget);
  if (op == "==") return equal(a, b, budget);
  if (op == "!=") return !equal(a, b, budget);
  const int sign = order(op, a, b, budget);
  if (op == "<") return sign < 0;
  if (op == "<=") return sign <= 0;
  return op == ">" ? sign > 0 : sign >= 0;
}

Value negate(const Value& value) {
  if (!value.defined().is_number()) {
    throw type_error(fmt::format("bad operand type for unary -: '{}'", value.type_name()));
  }
  return arithmetic("-", Value(std::int64_t{0}), value);
}

}  // namespace halfbyte::jinja
