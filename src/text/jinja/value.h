// SPDX-License-Identifier: Apache-2.0
//
// Values of a template: Python's, as far as templates see them. Immutable except namespaces.
#ifndef HALFBYTE_TEXT_JINJA_VALUE_H_
#define HALFBYTE_TEXT_JINJA_VALUE_H_

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "halfbyte/status.h"

namespace halfbyte::jinja {

/// Ends parsing or rendering; never leaves ChatTemplate, which turns it into a Status.
class Failure : public std::exception {
 public:
  Failure(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}
  StatusCode code() const { return code_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  StatusCode code_;
  std::string message_;
};

/// A failure that Python would report as `kind`: "TypeError: ...".
Failure type_error(const std::string& message);
Failure undefined_error(const std::string& message);

class Value;
struct Macro;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<std::string, Value>>;  // keys are unique, order is kept

struct None {};
/// What a missing name or key gives: may be tested and printed; anything else fails with `why`.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
/// The only value that changes. Owned by the evaluator, so that cycles do not leak.
struct Namespace {
  Dict fields;
};
/// An integer beyond 64 bits, kept as it was written.
struct BigInteger {
  std::shared_ptr<const std::string> digits;
};

/// Deepest nesting of lists and dicts.
inline constexpr int kMaxValueDepth = 100;

class Value {
 public:
  Value() : data_(None{}) {}
  explicit Value(bool value) : data_(value) {}
  explicit Value(std::int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  explicit Value(BigInteger value) : data_(std::move(value)) {}
  explicit Value(Namespace* ns) : data_(ns) {}
  explicit Value(const Macro* macro) : data_(macro) {}
  /// Fail when nested deeper than kMaxValueDepth.
  static Value list(List items);
  static Value dict(Dict items);
  static Value undefined(std::string why);

  bool is_undefined() const { return holds<Undefined>(); }
  bool is_none() const { return holds<None>(); }
  bool is_bool() const { return holds<bool>(); }
  bool is_integer() const { return holds<std::int64_t>() || holds<BigInteger>(); }
  bool is_float() const { return holds<double>(); }
  bool is_number() const { return is_integer() || is_float() || is_bool(); }
  bool is_string() const { return holds<Text>(); }
  bool is_list() const { return holds<std::shared_ptr<const Nested<List>>>(); }
  bool is_dict() const { return holds<std::shared_ptr<const Nested<Dict>>>(); }
  bool is_namespace() const { return holds<Namespace*>(); }
  bool is_macro() const { return holds<const Macro*>(); }

  // Each requires the kind of its name.
  bool as_bool() const { return std::get<bool>(data_); }
  std::int64_t as_int64() const { return std::get<std::int64_t>(data_); }
  const std::string& as_string() const { return *std::get<Text>(data_); }
  const List& as_list() const {
    return std::get<std::shared_ptr<const Nested<List>>>(data_)->items;
  }
  const Dict& as_dict() const {
    return std::get<std::shared_ptr<const Nested<Dict>>>(data_)->items;
  }
  Namespace& as_namespace() const { return *std::get<Namespace*>(data_); }
  const Macro& as_macro() const { return *std::get<const Macro*>(data_); }
  const std::string& digits() const { return *std::get<BigInteger>(data_).digits; }
  const std::string& why_undefined() const { return *std::get<Undefined>(data_).why; }

  bool is_small_integer() const { return holds<std::int64_t>() || is_bool(); }  // fits to_int64
  std::int64_t to_int64() const { return is_bool() ? (as_bool() ? 1 : 0) : as_int64(); }
  double to_double() const;  // of a number

  bool truthy() const;
  int depth() const;
  /// Python's name of the type: "str", "NoneType".
  std::string_view type_name() const;
  /// The value of a key of a dict or namespace; null when absent or of another kind.
  const Value* find(std::string_view key) const;
  /// Fails when undefined.
  const Value& defined() const;

 private:
  template <typename Items>
  struct Nested {
    Items items;
    int depth;
  };
  using Text = std::shared_ptr<const std::string>;

  template <typename T>
  bool holds() const {
    return std::holds_alternative<T>(data_);
  }

  std::variant<None,
               Undefined,
               bool,
               std::int64_t,
               double,
               BigInteger,
               Text,
               std::shared_ptr<const Nested<List>>,
               std::shared_ptr<const Nested<Dict>>,
               Namespace*,
               const Macro*>
      data_;
};

/// Limits of one rendering: a template cannot run, or grow, without end.
class Budget {
 public:
  static constexpr std::int64_t kMaxSteps = 5'000'000;
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // of one text

  void step(std::size_t steps = 1);
  /// Counts the making of a text or list of this size.
  void make(std::size_t size);

 private:
  std::int64_t steps_left_ = kMaxSteps;
};

/// Appends str(value).
void append_text(const Value& value, Budget& budget, std::string& out);
std::string to_text(const Value& value, Budget& budget);
/// Python's ==.
bool equal(const Value& a, const Value& b, Budget& budget);
/// The elements that a `for` sees: items, keys or characters. Fails for what is not iterable.
List iterate(const Value& value, Budget& budget);

std::string format_float(double value);

}  // namespace halfbyte::jinja

#endif  // HALFBYTE_TEXT_JINJA_VALUE_H_
