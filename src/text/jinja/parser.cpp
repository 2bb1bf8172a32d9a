// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "text/jinja/expression_parser.h"

namespace halfbyte::jinja {
namespace {

using Kind = Node::Kind;

class Parser {
 public:
  explicit Parser(std::string_view source) : in_(tokenize_template(source)) {}

  Body run() {
    Body body = parse_body({});
    if (!in_.at(Token::Kind::kEnd)) in_.fail(fmt::format("unexpected {}", in_.peek(1).text));
    return body;
  }

 private:
  // Nodes up to the end or to a block that begins with one of `ends`, whose "{%" is not taken.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    const ExpressionParser::Level level(in_);
    Body body;
    while (!in_.at(Token::Kind::kEnd)) {
      if (in_.at(Token::Kind::kBlockBegin) && is_end(ends)) return body;
      body.push_back(parse_node());
    }
    return body;
  }

  bool is_end(std::initializer_list<std::string_view> ends) const {
    return std::find(ends.begin(), ends.end(), in_.peek(1).text) != ends.end();
  }

  Node make(Kind kind) const {
    Node node;
    node.kind = kind;
    node.line = in_.peek().line;
    return node;
  }

  void end_tag() {
    if (!in_.at(Token::Kind::kTagEnd)) in_.fail(fmt::format("unexpected '{}'", in_.peek().text));
    in_.take();
  }

  // "{% word %}", whose body was just read.
  void end_block(std::string_view word) {
    in_.take();
    if (!in_.accept_name(word)) in_.fail(fmt::format("{{% {} %}} is missing", word));
    end_tag();
  }

  Node parse_node() {
    if (in_.at(Token::Kind::kText)) {
      Node node = make(Kind::kText);
      node.text = in_.take().text;
      return node;
    }
    if (in_.at(Token::Kind::kPrintBegin)) {
      Node node = make(Kind::kPrint);
      in_.take();
      node.value = in_.tuple();
      end_tag();
      return node;
    }
    in_.take();
    return parse_statement(in_.expect_name("a statement"));
  }

  Node parse_statement(const std::string& word) {
    if (word == "if") return parse_if();
    if (word == "for") return parse_for();
    if (word == "set") return parse_set();
    if (word == "macro") return parse_macro();
    if (word == "generation") return parse_generation();
    if (word == "break" || word == "continue") return parse_jump(word);
    static constexpr std::string_view kKnown[] = {"raw",     "include", "import",    "from",
                                                  "extends", "block",   "call",      "filter",
                                                  "with",    "do",      "autoescape"};
    if (std::find(std::begin(kKnown), std::end(kKnown), word) != std::end(kKnown)) {
      in_.unsupported(fmt::format("{{% {} %}}", word));
    }
    in_.fail(fmt::format("unexpected {{% {} %}}", word));
  }

  Node parse_if() {
    Node node = make(Kind::kIf);
    for (bool more = true; more;) {
      Branch branch;
      branch.condition = in_.tuple();
      end_tag();
      branch.body = parse_body({"elif", "else", "endif"});
      node.branches.push_back(std::move(branch));
      more = in_.peek(1).text == "elif";
      if (more) {
        in_.take();
        in_.take();
      }
    }
    if (in_.peek(1).text == "else") {
      end_block("else");
      node.branches.push_back({nullptr, parse_body({"endif"})});
    }
    end_block("endif");
    return node;
  }

  Node parse_for() {
    Node node = make(Kind::kFor);
    node.targets = parse_targets();
    if (!in_.accept_name("in")) in_.fail("wanted 'in' in a for");
    node.value = in_.without_conditional();
    if (in_.accept_name("if")) node.condition = in_.expression();
    if (in_.at_name("recursive")) in_.unsupported("a recursive for");
    end_tag();
    ++loops_;
    node.body = parse_body({"else", "endfor"});
    --loops_;
    if (in_.peek(1).text == "else") {
      end_block("else");
      node.branches.push_back({nullptr, parse_body({"endfor"})});
    }
    end_block("endfor");
    return node;
  }

  std::vector<std::string> parse_targets() {
    const bool has_bracket = in_.accept_operator("(");
    std::vector<std::string> targets = {in_.expect_name("a variable")};
    while (in_.accept_operator(","))
      targets.push_back(in_.expect_name("a variable"));
    if (has_bracket) in_.expect_operator(")");
    return targets;
  }

  Node parse_set() {
    Node node = make(Kind::kSet);
    node.targets = parse_targets();
    if (in_.accept_operator(".")) {
      node.kind = Kind::kSetField;
      node.text = in_.expect_name("a field");
    }
    if (in_.accept_operator("=")) {
      node.value = in_.tuple();
      end_tag();
      return node;
    }
    if (node.kind == Kind::kSetField || node.targets.size() != 1) in_.fail("wanted '=' in a set");
    if (in_.at_operator("|")) in_.unsupported("a filter on a set block");
    end_tag();
    node.kind = Kind::kSetBlock;
    node.body = parse_body({"endset"});
    end_block("endset");
    return node;
  }

  Node parse_macro() {
    Node node = make(Kind::kMacro);
    node.macro = std::make_unique<Macro>();
    node.macro->name = in_.expect_name("a macro's name");
    in_.expect_operator("(");
    while (!in_.accept_operator(")")) {
      std::string name = in_.expect_name("a parameter");
      ExprPtr standard = in_.accept_operator("=") ? in_.expression() : nullptr;
      node.macro->parameters.emplace_back(std::move(name), std::move(standard));
      if (!in_.at_operator(")")) in_.expect_operator(",");
    }
    end_tag();
    const int loops = std::exchange(loops_, 0);
    node.macro->body = parse_body({"endmacro"});
    loops_ = loops;
    end_block("endmacro");
    return node;
  }

  // Marks what the assistant wrote, for training; rendering sees through it.
  Node parse_generation() {
    Node node = make(Kind::kTransparent);
    end_tag();
    node.body = parse_body({"endgeneration"});
    end_block("endgeneration");
    return node;
  }

  Node parse_jump(const std::string& word) {
    Node node = make(word == "break" ? Kind::kBreak : Kind::kContinue);
    if (loops_ == 0) in_.fail(word + " outside a for");
    end_tag();
    return node;
  }

  ExpressionParser in_;
  int loops_ = 0;
};

}  // namespace

Body parse_template(std::string_view source) {
  return Parser(source).run();
}

}  // namespace halfbyte::jinja
