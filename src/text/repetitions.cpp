// SPDX-License-Identifier: Apache-2.0
#include "text/repetitions.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace halfbyte {
namespace {

constexpr std::size_t kTooMany = 1000000;  // beyond every limit; products stay below 2^64

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// Where the line of the comment at `at` ends.
std::size_t end_of_comment(std::string_view text, std::size_t at) {
  return std::min(text.find_first_of("\r\n", at), text.size());
}

// Behind the literal or the class of characters that begins at `at`.
std::size_t end_of_text(std::string_view text, std::size_t at, char close) {
  for (++at; at < text.size() && text[at] != close;)
    at += text[at] == '\\' ? 2U : 1U;
  return at + 1;
}

// The upper bound in the braces that begin at `at`, or the lower one where there is no other; 1
// where there is no number.
std::size_t repetitions_at(std::string_view text, std::size_t at) {
  std::size_t number = 0;
  std::size_t last = 1;
  for (std::size_t i = at + 1; i < text.size() && text[i] != '}'; ++i) {
    if (text[i] == '#') {
      i = end_of_comment(text, i);
    } else if (text[i] == ',') {
      number = 0;
    } else if (text[i] >= '0' && text[i] <= '9') {
      number = std::min(number * 10 + static_cast<std::size_t>(text[i] - '0'), kTooMany);
      last = std::max<std::size_t>(number, 1);
    } else if (!is_blank(text[i])) {
      return last;
    }
  }
  return last;
}

// The most in one place, with groups in one another.
class GroupCount {
 public:
  void open() { open_.push_back(1); }
  void close() {
    if (open_.size() == 1) return;
    const std::size_t inside = open_.back();
    open_.pop_back();
    add(inside);
  }
  // Something that holds so many.
  void add(std::size_t count) {
    last_ = std::min(count, kTooMany);
    open_.back() = std::max(open_.back(), last_);
  }
  // What was added or closed last.
  void repeat(std::size_t times) { add(last_ * times); }
  std::size_t most() const { return *std::ranges::max_element(open_); }

 private:
  std::vector<std::size_t> open_ = {1};  // of each group around: the most that is inside so far
  std::size_t last_ = 1;
};

// ---- EBNF

struct Item {
  enum class Kind { kText, kRule, kOpen, kClose, kTimes };
  Kind kind = Kind::kText;
  std::string_view name = {};  // of a rule
  std::size_t times = 1;
};
using Rules = std::map<std::string_view, std::vector<Item>>;

bool begins_name(char c) {
  return c == '_' || c == '-' || c == '.' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool continues_name(char c) {
  return begins_name(c) || (c >= '0' && c <= '9');
}

// Takes any text for a grammar: whether it is one is for the compiler to say.
class RuleReader {
 public:
  explicit RuleReader(std::string_view text) : text_(text) {}

  Rules read() {
    while (at_ < text_.size()) {
      read_one();
    }
    return std::move(rules_);
  }

 private:
  using Kind = Item::Kind;

  void read_one() {
    const char c = text_[at_];
    if (c == '#') {
      at_ = end_of_comment(text_, at_);
    } else if (c == '"' || c == '[') {
      add({.kind = Kind::kText});
      at_ = end_of_text(text_, at_, c == '"' ? '"' : ']');
    } else if (c == '{') {
      add({.kind = Kind::kTimes, .times = repetitions_at(text_, at_)});
      at_ = std::min(text_.find('}', at_), text_.size());
    } else if (begins_name(c)) {
      read_name();
    } else if (text_.substr(at_).starts_with("::=")) {
      begin_rule();
    } else {
      if (c == '(') add({.kind = Kind::kOpen});
      if (c == ')') add({.kind = Kind::kClose});
      ++at_;
    }
  }

  void add(Item item) { rule_->push_back(item); }

  void read_name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && continues_name(text_[at_])) {
      ++at_;
    }
    name_ = text_.substr(begin, at_ - begin);
    add({.kind = Kind::kRule, .name = name_});
  }

  // The name before it is not the end of the rule before it.
  void begin_rule() {
    if (!rule_->empty() && rule_->back().kind == Kind::kRule) rule_->pop_back();
    rule_ = &rules_[name_];
    at_ += 3;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string_view name_;  // the last one
  Rules rules_;
  std::vector<Item>* rule_ = &rules_[""];  // first: what stands before all rules
};

class RuleCount {
 public:
  explicit RuleCount(const Rules& rules) : rules_(rules) {}

  std::size_t most() {
    std::size_t most = 1;
    for (const auto& [name, items] : rules_) {
      most = std::max(most, count_of(name));
    }
    return most;
  }

 private:
  std::size_t count_of(std::string_view name) {
    const auto [found, is_new] = counts_.emplace(name, 1);  // until it is known
    if (!is_new) return found->second;
    const auto rule = rules_.find(name);
    if (rule != rules_.end()) found->second = count(rule->second);
    return found->second;
  }

  std::size_t count(const std::vector<Item>& items) {
    GroupCount groups;
    for (const Item& item : items) {
      switch (item.kind) {
        case Item::Kind::kText:
          groups.add(1);
          break;
        case Item::Kind::kRule:
          groups.add(count_of(item.name));
          break;
        case Item::Kind::kOpen:
          groups.open();
          break;
        case Item::Kind::kClose:
          groups.close();
          break;
        case Item::Kind::kTimes:
          groups.repeat(item.times);
          break;
      }
    }
    return groups.most();
  }

  const Rules& rules_;
  std::map<std::string_view, std::size_t> counts_;
};

}  // namespace

// A character, an escape and a class are each something that can be repeated.
std::size_t count_repetitions(std::string_view regex) {
  GroupCount groups;
  for (std::size_t i = 0; i < regex.size();) {
    const char c = regex[i];
    if (c == '(') {
      groups.open();
      ++i;
      continue;
    }
    if (c == ')') {
      groups.close();
    } else {
      groups.add(1);
    }
    i = c == '[' ? end_of_text(regex, i, ']') : i + (c == '\\' ? 2U : 1U);
    if (i < regex.size() && regex[i] == '{') groups.repeat(repetitions_at(regex, i));
  }
  return groups.most();
}

std::size_t count_rule_repetitions(std::string_view grammar) {
  const Rules rules = RuleReader(grammar).read();
  return RuleCount(rules).most();
}

}  // namespace halfbyte
