// SPDX-License-Identifier: Apache-2.0
//
// Filters, tests and methods: functions of values alone. All fail by throwing Failure.
#ifndef HALFBYTE_TEXT_JINJA_BUILTINS_H_
#define HALFBYTE_TEXT_JINJA_BUILTINS_H_

#include <string_view>

#include "text/jinja/value.h"

namespace halfbyte::jinja {

struct Arguments {
  List positional;
  Dict named;
  /// The argument at `index` or of that name; null when it is not given.
  const Value* find(std::size_t index, std::string_view name) const;
};

using Filter = Value (*)(const Value& input, const Arguments& arguments, Budget& budget);
using Method = Filter;
using Test = bool (*)(const Value& input, const Arguments& arguments, Budget& budget);

// Null when there is none of that name.
Filter find_filter(std::string_view name);
Method find_method(std::string_view name);
Test find_test(std::string_view name);

/// object.name or object[key], as Jinja looks them up; undefined when missing.
Value attribute(const Value& object, std::string_view name);
Value item(const Value& object, const Value& key, Budget& budget);
/// object[start:stop:step]; None for a part that is left out.
struct SliceBounds {
  Value start;
  Value stop;
  Value step;
};
Value slice(const Value& object, const SliceBounds& bounds, Budget& budget);

/// a op b for + - * / // % ~ and the comparisons == != < <= > >= in.
Value binary(std::string_view op, const Value& a, const Value& b, Budget& budget);
bool compare(std::string_view op, const Value& a, const Value& b, Budget& budget);
Value negate(const Value& value);

}  // namespace halfbyte::jinja

#endif  // HALFBYTE_TEXT_JINJA_BUILTINS_H_
