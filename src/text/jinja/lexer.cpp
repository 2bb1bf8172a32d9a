// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/jinja/value.h"
#include "text/utf8.h"

namespace halfbyte::jinja {
namespace {

constexpr std::string_view kSpaces = " \t\n\v\f\r";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name_part(char c) {
  return is_name_start(c) || is_digit(c);
}

// All newlines become \n; one at the end goes.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (source.substr(i + 1, 1) != "\n") {
      out += '\n';
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (position_ < source_.size())
      read_text();
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Failure(StatusCode::kInvalidArgument, fmt::format("line {}: {}", line_, message));
  }
  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }
  std::string_view rest() const { return std::string_view(source_).substr(position_); }
  void skip(std::size_t count) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<std::ptrdiff_t>(position_),
                   source_.begin() + static_cast<std::ptrdiff_t>(position_ + count), '\n'));
    position_ += count;
  }

  // Text up to the next tag, then that tag.
  void read_text() {
    std::size_t tag = position_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        tag = source_.size();
        break;
      }
      if (source_[tag + 1] == '%' || source_[tag + 1] == '{' || source_[tag + 1] == '#') break;
    }
    std::string_view text = std::string_view(source_).substr(position_, tag - position_);
    if (tag < source_.size()) text = strip_before_tag(text, source_.substr(tag, 3));
    if (!text.empty()) add(Token::Kind::kText, std::string(text));
    skip(tag - position_);
    if (position_ < source_.size()) read_tag();
  }

  // "{%-" takes all white space before it, "{%" that of its own line, "{%+" none.
  std::string_view strip_before_tag(std::string_view text, std::string_view tag) const {
    if (tag.ends_with('-')) {
      const std::size_t last = text.find_last_not_of(kSpaces);
      return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
    }
    if (tag[1] == '{' || tag.ends_with('+')) return text;
    const std::size_t line_start = text.rfind('\n') + 1;  // 0 when there is none
    const bool at_line_start = line_start > 0 || position_ == 0 || source_[position_ - 1] == '\n';
    const bool is_blank = text.find_first_not_of(kSpaces, line_start) == std::string_view::npos;
    return at_line_start && is_blank ? text.substr(0, line_start) : text;
  }

  void read_tag() {
    const char type = source_[position_ + 1];
    const char sign = position_ + 2 < source_.size() ? source_[position_ + 2] : '\0';
    if (type == '#') return read_comment();
    add(type == '%' ? Token::Kind::kBlockBegin : Token::Kind::kPrintBegin, "");
    skip(sign == '-' || sign == '+' ? 3 : 2);
    brackets_.clear();
    while (!read_tag_end(type == '%' ? "%}" : "}}"))
      read_tag_token();
  }

  void read_comment() {
    const std::size_t end = source_.find("#}", position_ + 2);
    if (end == std::string::npos) fail("a comment has no end");
    const char sign = source_[end - 1];
    skip(end + 2 - position_);
    skip_after_tag(sign, true);
  }

  void skip_after_tag(char sign, bool trims_newline) {
    if (sign == '-') {
      const std::size_t next = source_.find_first_not_of(kSpaces, position_);
      skip((next == std::string::npos ? source_.size() : next) - position_);
    } else if (sign != '+' && trims_newline && rest().starts_with('\n')) {
      skip(1);
    }
  }

  bool read_tag_end(std::string_view end) {
    const std::size_t next = source_.find_first_not_of(kSpaces, position_);
    if (next == std::string::npos) fail(fmt::format("a tag has no {}", end));
    skip(next - position_);
    const char sign = rest()[0] == '-' || rest()[0] == '+' ? rest()[0] : '\0';
    const std::size_t sign_size = sign == '\0' ? 0 : 1;
    if (!brackets_.empty() || rest().substr(sign_size, 2) != end) return false;
    add(Token::Kind::kTagEnd, "");
    skip(sign_size + 2);
    skip_after_tag(sign, end == "%}");
    return true;
  }

  void read_tag_token() {
    const char c = rest()[0];
    if (is_name_start(c)) {
      const auto end = std::find_if_not(rest().begin(), rest().end(), is_name_part);
      return take(Token::Kind::kName, static_cast<std::size_t>(end - rest().begin()));
    }
    if (is_digit(c)) return read_number();
    if (c == '"' || c == '\'') return read_string(c);
    read_operator();
  }

  void take(Token::Kind kind, std::size_t size) {
    add(kind, std::string(rest().substr(0, size)));
    skip(size);
  }

  void read_number() {
    std::size_t size = 0;
    bool is_float = false;
    const auto digits = [&] {
      while (size < rest().size() && (is_digit(rest()[size]) || rest()[size] == '_'))
        ++size;
    };
    digits();
    if (size + 1 < rest().size() && rest()[size] == '.' && is_digit(rest()[size + 1])) {
      is_float = true;
      ++size;
      digits();
    }
    std::string text(rest().substr(0, size));
    std::erase(text, '_');
    add(is_float ? Token::Kind::kFloat : Token::Kind::kInteger, text);
    skip(size);
  }

  void read_string(char quote) {
    std::string value;
    std::size_t i = position_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = read_escape(i + 1, value);
      } else {
        value += source_[i];
      }
    }
    if (i >= source_.size()) fail("a string has no closing quote");
    add(Token::Kind::kString, std::move(value));
    skip(i + 1 - position_);
  }

  // Reads the escape whose letter is at `i`; returns its last position. Unknown ones stay.
  std::size_t read_escape(std::size_t i, std::string& value) const {
    constexpr std::string_view kLetters = "nrtabfv\\'\"";
    constexpr std::string_view kMeanings = "\n\r\t\a\b\f\v\\'\"";
    const char c = source_[i];
    if (const std::size_t known = kLetters.find(c); known != std::string_view::npos) {
      value += kMeanings[known];
      return i;
    }
    const std::size_t num_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const std::string_view hex = std::string_view(source_).substr(i + 1, num_digits);
    if (num_digits == 0) {
      if (c != '\n') value += {'\\', c};  // a backslash before a newline joins the lines
      return i;
    }
    if (hex.size() != num_digits ||
        hex.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      fail("a string has an incomplete escape");
    }
    const unsigned long code_point = std::stoul(std::string(hex), nullptr, 16);
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) {
      fail("a string escape is no character");
    }
    append_code_point(static_cast<char32_t>(code_point), value);
    return i + num_digits;
  }

  void read_operator() {
    static constexpr std::string_view kDouble[] = {"==", "!=", "<=", ">=", "//", "**"};
    for (const std::string_view op : kDouble) {
      if (rest().starts_with(op)) return take(Token::Kind::kOperator, 2);
    }
    const char c = rest()[0];
    if (std::string_view("+-*/%~<>=.,:|()[]{}").find(c) == std::string_view::npos) {
      fail(fmt::format("unexpected character '{}' in a tag", c));
    }
    if (std::string_view("([{").find(c) != std::string_view::npos) brackets_ += c;
    if (std::string_view(")]}").find(c) != std::string_view::npos) {
      if (brackets_.empty()) fail(fmt::format("unexpected '{}'", c));
      brackets_.pop_back();
    }
    take(Token::Kind::kOperator, 1);
  }

  std::string source_;
  std::size_t position_ = 0;
  int line_ = 1;
  std::string brackets_;  // open in the tag: inside them "}}" is no end
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source) {
  return Lexer(normalize_newlines(source)).run();
}

}  // namespace halfbyte::jinja
