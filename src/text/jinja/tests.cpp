// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "text/jinja/builtins.h"

namespace halfbyte::jinja {
namespace {

const Value& argument(const Arguments& arguments) {
  if (arguments.positional.empty()) throw type_error("the test needs an argument");
  return arguments.positional[0];
}

template <bool (Value::*is_kind)() const>
bool is(const Value& input, const Arguments&, Budget&) {
  return (input.*is_kind)();
}

bool is_defined(const Value& input, const Arguments&, Budget&) {
  return !input.is_undefined();
}
bool is_true(const Value& input, const Arguments&, Budget&) {
  return input.is_bool() && input.as_bool();
}
bool is_false(const Value& input, const Arguments&, Budget&) {
  return input.is_bool() && !input.as_bool();
}
bool is_integer(const Value& input, const Arguments&, Budget&) {
  return input.is_integer();
}
bool is_sequence(const Value& input, const Arguments&, Budget&) {
  return input.is_list() || input.is_string() || input.is_dict() || input.is_undefined();
}
bool is_callable(const Value& input, const Arguments&, Budget&) {
  return input.is_macro();
}

bool divides(const Value& input, const Value& by, Budget& budget) {
  return equal(binary("%", input, by, budget), Value(std::int64_t{0}), budget);
}
bool is_even(const Value& input, const Arguments&, Budget& budget) {
  return divides(input, Value(std::int64_t{2}), budget);
}
bool is_odd(const Value& input, const Arguments&, Budget& budget) {
  return !divides(input, Value(std::int64_t{2}), budget);
}
bool is_divisible(const Value& input, const Arguments& arguments, Budget& budget) {
  return divides(input, argument(arguments), budget);
}
bool is_equal(const Value& input, const Arguments& arguments, Budget& budget) {
  return equal(input, argument(arguments), budget);
}
bool is_different(const Value& input, const Arguments& arguments, Budget& budget) {
  return !equal(input, argument(arguments), budget);
}
bool is_in(const Value& input, const Arguments& arguments, Budget& budget) {
  return compare("in", input, argument(arguments), budget);
}

struct Entry {
  std::string_view name;
  Test test;
};

constexpr Entry kTests[] = {
    {"defined", is_defined},
    {"undefined", is<&Value::is_undefined>},
    {"none", is<&Value::is_none>},
    {"string", is<&Value::is_string>},
    {"number", is<&Value::is_number>},
    {"integer", is_integer},
    {"float", is<&Value::is_float>},
    {"boolean", is<&Value::is_bool>},
    {"mapping", is<&Value::is_dict>},
    {"sequence", is_sequence},
    {"iterable", is_sequence},
    {"callable", is_callable},
    {"true", is_true},
    {"false", is_false},
    {"even", is_even},
    {"odd", is_odd},
    {"divisibleby", is_divisible},
    {"eq", is_equal},
    {"equalto", is_equal},
    {"ne", is_different},
    {"in", is_in},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const Entry& entry : kTests) {
    if (entry.name == name) return entry.test;
  }
  return nullptr;
}

}  // namespace halfbyte::jinja
