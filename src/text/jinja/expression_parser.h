// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_JINJA_EXPRESSION_PARSER_H_
#define HALFBYTE_TEXT_JINJA_EXPRESSION_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace halfbyte::jinja {

/// Reads tokens, and expressions of them by recursive descent; one function per precedence.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(std::size_t ahead = 0) const;
  Token take();
  bool at(Token::Kind kind) const { return peek().kind == kind; }
  bool at_operator(std::string_view op) const;
  bool at_name(std::string_view name) const;
  bool accept_operator(std::string_view op);
  bool accept_name(std::string_view name);
  void expect_operator(std::string_view op);
  std::string expect_name(std::string_view what);
  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void unsupported(const std::string& construct) const;

  ExprPtr expression();  // with `a if b else c`
  ExprPtr tuple();       // expressions with commas between them, or one
  ExprPtr without_conditional() { return logical_or(); }

  /// Guards recursion of the parser; also used by the statements.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  ExprPtr make(Expr::Kind kind, std::string name = {}) const;
  void add(Expr& parent, ExprPtr child) const;
  ExprPtr join(Expr::Kind kind, std::string name, ExprPtr left, ExprPtr right) const;
  ExprPtr logical_or();
  ExprPtr logical_and();
  ExprPtr logical_not();
  ExprPtr comparison();
  std::string comparison_operator();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr unary(bool with_filters);
  ExprPtr primary();
  ExprPtr constant(const Token& token) const;
  ExprPtr name_or_constant(const Token& token) const;
  ExprPtr bracketed();
  ExprPtr list(std::string_view close);
  ExprPtr dict();
  ExprPtr postfix(ExprPtr operand);
  ExprPtr dot(ExprPtr operand);
  ExprPtr subscript(ExprPtr operand);
  ExprPtr filters(ExprPtr operand);
  ExprPtr filter(ExprPtr operand);
  ExprPtr test(ExprPtr operand);
  bool at_test_argument() const;
  void arguments(Expr& call);

  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  int level_ = 0;
};

}  // namespace halfbyte::jinja

#endif  // HALFBYTE_TEXT_JINJA_EXPRESSION_PARSER_H_
