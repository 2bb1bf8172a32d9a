// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_JSON_NESTING_H_
#define HALFBYTE_TEXT_JSON_NESTING_H_

#include <cstdint>

namespace halfbyte {

/// Where a JSON object, array or string ends that comes byte by byte. It follows brackets and
/// strings and checks nothing else.
class JsonNesting {
 public:
  void push(char c) {
    if (in_string_) {
      step_in_string(c);
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      --depth_;
    }
  }
  std::int64_t depth() const { return depth_; }  // of open brackets
  /// Inside a string, its opening quote included.
  bool in_string() const { return in_string_; }
  /// True when what has begun has ended; also when nothing has begun.
  bool is_closed() const { return depth_ <= 0 && !in_string_; }

 private:
  void step_in_string(char c) {
    in_string_ = escaped_ || c != '"';
    escaped_ = !escaped_ && c == '\\';
  }

  std::int64_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;  // the byte before is a backslash that counts
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_JSON_NESTING_H_
