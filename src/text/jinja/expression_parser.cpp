// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace halfbyte::jinja {
namespace {

constexpr int kMaxLevel = 100;      // brackets and blocks inside each other
constexpr int kMaxExprDepth = 200;  // of an expression's tree: also chains such as a + b + c

}  // namespace

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.level_ > kMaxLevel) {
    parser_.fail(fmt::format("nested deeper than {} levels", kMaxLevel));
  }
}

const Token& ExpressionParser::peek(std::size_t ahead) const {
  return tokens_[std::min(position_ + ahead, tokens_.size() - 1)];
}

Token ExpressionParser::take() {
  Token token = peek();
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool ExpressionParser::at_operator(std::string_view op) const {
  return at(Token::Kind::kOperator) && peek().text == op;
}

bool ExpressionParser::at_name(std::string_view name) const {
  return at(Token::Kind::kName) && peek().text == name;
}

bool ExpressionParser::accept_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  take();
  return true;
}

bool ExpressionParser::accept_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void ExpressionParser::expect_operator(std::string_view op) {
  if (!accept_operator(op)) fail(fmt::format("wanted '{}', got '{}'", op, peek().text));
}

std::string ExpressionParser::expect_name(std::string_view what) {
  if (!at(Token::Kind::kName)) fail(fmt::format("wanted {}, got '{}'", what, peek().text));
  return take().text;
}

void ExpressionParser::fail(const std::string& message) const {
  throw Failure(StatusCode::kInvalidArgument, fmt::format("line {}: {}", peek().line, message));
}

void ExpressionParser::unsupported(const std::string& construct) const {
  throw Failure(StatusCode::kUnsupported,
                fmt::format("line {}: {} is not supported", peek().line, construct));
}

ExprPtr ExpressionParser::make(Expr::Kind kind, std::string name) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = peek().line;
  expr->name = std::move(name);
  return expr;
}

void ExpressionParser::add(Expr& parent, ExprPtr child) const {
  parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > kMaxExprDepth) {
    fail(fmt::format("an expression of more than {} levels", kMaxExprDepth));
  }
  parent.children.push_back(std::move(child));
}

ExprPtr ExpressionParser::join(Expr::Kind kind,
                               std::string name,
                               ExprPtr left,
                               ExprPtr right) const {
  ExprPtr expr = make(kind, std::move(name));
  add(*expr, std::move(left));
  add(*expr, std::move(right));
  return expr;
}

ExprPtr ExpressionParser::expression() {
  const Level level(*this);
  ExprPtr value = logical_or();
  while (accept_name("if")) {
    ExprPtr condition = logical_or();
    ExprPtr conditional =
        join(Expr::Kind::kConditional, "", std::move(value), std::move(condition));
    if (accept_name("else")) {
      add(*conditional, expression());
    } else {
      ExprPtr missing = make(Expr::Kind::kConstant);
      missing->constant = Value::undefined("the inline if-expression has no else");
      add(*conditional, std::move(missing));
    }
    value = std::move(conditional);
  }
  return value;
}

ExprPtr ExpressionParser::tuple() {
  ExprPtr first = expression();
  if (!at_operator(",")) return first;
  ExprPtr list = make(Expr::Kind::kList);
  add(*list, std::move(first));
  while (accept_operator(",") && !at(Token::Kind::kTagEnd))
    add(*list, expression());
  return list;
}

ExprPtr ExpressionParser::logical_or() {
  ExprPtr left = logical_and();
  while (accept_name("or"))
    left = join(Expr::Kind::kOr, "", std::move(left), logical_and());
  return left;
}

ExprPtr ExpressionParser::logical_and() {
  ExprPtr left = logical_not();
  while (accept_name("and"))
    left = join(Expr::Kind::kAnd, "", std::move(left), logical_not());
  return left;
}

ExprPtr ExpressionParser::logical_not() {
  if (!accept_name("not")) return comparison();
  const Level level(*this);
  ExprPtr expr = make(Expr::Kind::kNot);
  add(*expr, logical_not());
  return expr;
}

// Takes the operator at hand: "in", "not in" or a sign; empty when there is none.
std::string ExpressionParser::comparison_operator() {
  static constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">="};
  for (const std::string_view sign : kSigns) {
    if (accept_operator(sign)) return std::string(sign);
  }
  if (accept_name("in")) return "in";
  if (at_name("not") && peek(1).kind == Token::Kind::kName && peek(1).text == "in") {
    take();
    take();
    return "not in";
  }
  return {};
}

ExprPtr ExpressionParser::comparison() {
  ExprPtr left = sum();
  const std::string op = comparison_operator();
  if (op.empty()) return left;
  ExprPtr result = join(Expr::Kind::kCompare, op, std::move(left), sum());
  if (!comparison_operator().empty()) unsupported("a chain of comparisons (a < b < c)");
  return result;
}

ExprPtr ExpressionParser::sum() {
  ExprPtr left = concatenation();
  while (at_operator("+") || at_operator("-")) {
    std::string op = take().text;
    left = join(Expr::Kind::kBinary, std::move(op), std::move(left), concatenation());
  }
  return left;
}

ExprPtr ExpressionParser::concatenation() {
  ExprPtr left = product();
  while (accept_operator("~"))
    left = join(Expr::Kind::kBinary, "~", std::move(left), product());
  return left;
}

ExprPtr ExpressionParser::product() {
  ExprPtr left = unary(true);
  while (at_operator("*") || at_operator("/") || at_operator("//") || at_operator("%")) {
    std::string op = take().text;
    left = join(Expr::Kind::kBinary, std::move(op), std::move(left), unary(true));
  }
  if (at_operator("**")) unsupported("**");
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
  const Level level(*this);
  ExprPtr operand;
  if (accept_operator("-")) {
    operand = make(Expr::Kind::kNegate);
    add(*operand, unary(false));
  } else if (accept_operator("+")) {
    operand = unary(false);
  } else {
    operand = postfix(primary());
  }
  return with_filters ? filters(std::move(operand)) : std::move(operand);
}

ExprPtr ExpressionParser::constant(const Token& token) const {
  ExprPtr expr = make(Expr::Kind::kConstant);
  if (token.kind == Token::Kind::kString) {
    expr->constant = Value(token.text);
  } else if (token.kind == Token::Kind::kFloat) {
    expr->constant = Value(std::strtod(token.text.c_str(), nullptr));
  } else {
    std::int64_t value = 0;
    const char* end = token.text.data() + token.text.size();
    if (std::from_chars(token.text.data(), end, value).ec != std::errc()) {
      fail(fmt::format("{} does not fit 64 bits", token.text));
    }
    expr->constant = Value(value);
  }
  return expr;
}

ExprPtr ExpressionParser::name_or_constant(const Token& token) const {
  ExprPtr expr = make(Expr::Kind::kConstant);
  if (token.text == "true" || token.text == "True") {
    expr->constant = Value(true);
  } else if (token.text == "false" || token.text == "False") {
    expr->constant = Value(false);
  } else if (token.text != "none" && token.text != "None") {
    expr->kind = Expr::Kind::kName;
    expr->name = token.text;
  }
  return expr;
}

ExprPtr ExpressionParser::primary() {
  if (at(Token::Kind::kOperator)) return bracketed();
  const Token token = take();
  switch (token.kind) {
    case Token::Kind::kName:
      return name_or_constant(token);
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return constant(token);
    case Token::Kind::kString: {
      Token joined = token;  // "a" "b" is "ab"
      while (at(Token::Kind::kString))
        joined.text += take().text;
      return constant(joined);
    }
    default:
      fail("an expression is missing");
  }
}

ExprPtr ExpressionParser::bracketed() {
  if (accept_operator("[")) return list("]");
  if (accept_operator("{")) return dict();
  if (!accept_operator("(")) fail(fmt::format("unexpected '{}'", peek().text));
  if (accept_operator(")")) return make(Expr::Kind::kList);
  ExprPtr first = expression();
  if (accept_operator(")")) return first;
  expect_operator(",");
  ExprPtr rest = list(")");
  rest->depth = std::max(rest->depth, first->depth + 1);
  rest->children.insert(rest->children.begin(), std::move(first));
  return rest;
}

ExprPtr ExpressionParser::list(std::string_view close) {
  ExprPtr expr = make(Expr::Kind::kList);
  while (!accept_operator(close)) {
    add(*expr, expression());
    if (!at_operator(close)) expect_operator(",");
  }
  return expr;
}

ExprPtr ExpressionParser::dict() {
  ExprPtr expr = make(Expr::Kind::kDict);
  while (!accept_operator("}")) {
    add(*expr, expression());
    expect_operator(":");
    add(*expr, expression());
    if (!at_operator("}")) expect_operator(",");
  }
  return expr;
}

ExprPtr ExpressionParser::postfix(ExprPtr operand) {
  for (;;) {
    if (accept_operator(".")) {
      operand = dot(std::move(operand));
    } else if (accept_operator("[")) {
      operand = subscript(std::move(operand));
    } else if (at_operator("(")) {
      ExprPtr call = make(Expr::Kind::kCall);
      add(*call, std::move(operand));
      arguments(*call);
      operand = std::move(call);
    } else {
      return operand;
    }
  }
}

ExprPtr ExpressionParser::dot(ExprPtr operand) {
  if (at(Token::Kind::kInteger)) {  // x.0 is x[0]
    return join(Expr::Kind::kItem, "", std::move(operand), constant(take()));
  }
  ExprPtr expr = make(Expr::Kind::kAttribute, expect_name("an attribute"));
  add(*expr, std::move(operand));
  if (!at_operator("(")) return expr;
  expr->kind = Expr::Kind::kMethod;
  expr->function = find_method(expr->name);
  if (expr->function == nullptr) unsupported(fmt::format("the method {}()", expr->name));
  arguments(*expr);
  return expr;
}

ExprPtr ExpressionParser::subscript(ExprPtr operand) {
  ExprPtr parts[3];
  std::size_t num_colons = 0;
  while (!accept_operator("]")) {
    if (accept_operator(":")) {
      if (++num_colons > 2) fail("a slice has three parts at most");
    } else if (parts[num_colons] == nullptr) {
      parts[num_colons] = expression();
    } else {
      fail(fmt::format("wanted ']', got '{}'", peek().text));
    }
  }
  if (num_colons == 0) {
    if (parts[0] == nullptr) fail("an index is missing");
    return join(Expr::Kind::kItem, "", std::move(operand), std::move(parts[0]));
  }
  ExprPtr expr = make(Expr::Kind::kSlice);
  add(*expr, std::move(operand));
  for (ExprPtr& part : parts) {
    add(*expr, part == nullptr ? make(Expr::Kind::kConstant) : std::move(part));
  }
  return expr;
}

ExprPtr ExpressionParser::filters(ExprPtr operand) {
  for (;;) {
    if (accept_operator("|")) {
      operand = filter(std::move(operand));
    } else if (accept_name("is")) {
      operand = test(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExprPtr ExpressionParser::filter(ExprPtr operand) {
  ExprPtr expr = make(Expr::Kind::kFilter, expect_name("a filter"));
  expr->function = find_filter(expr->name);
  if (expr->function == nullptr) unsupported(fmt::format("the filter {}", expr->name));
  add(*expr, std::move(operand));
  if (at_operator("(")) arguments(*expr);
  return expr;
}

bool ExpressionParser::at_test_argument() const {
  static constexpr std::string_view kWords[] = {"and", "or", "else", "if", "is", "in", "not"};
  if (at(Token::Kind::kName)) {
    return std::find(std::begin(kWords), std::end(kWords), peek().text) == std::end(kWords);
  }
  return at(Token::Kind::kString) || at(Token::Kind::kInteger) || at(Token::Kind::kFloat) ||
         at_operator("[") || at_operator("{");
}

ExprPtr ExpressionParser::test(ExprPtr operand) {
  const bool is_negated = accept_name("not");
  ExprPtr expr = make(Expr::Kind::kTest, expect_name("a test"));
  expr->test = find_test(expr->name);
  if (expr->test == nullptr) unsupported(fmt::format("the test {}", expr->name));
  add(*expr, std::move(operand));
  if (at_operator("(")) {
    arguments(*expr);
  } else if (at_test_argument()) {
    add(*expr, postfix(primary()));
  }
  if (!is_negated) return expr;
  ExprPtr inverted = make(Expr::Kind::kNot);
  add(*inverted, std::move(expr));
  return inverted;
}

void ExpressionParser::arguments(Expr& call) {
  expect_operator("(");
  while (!accept_operator(")")) {
    if (at_operator("*") || at_operator("**")) unsupported("* in a call");
    if (at(Token::Kind::kName) && peek(1).kind == Token::Kind::kOperator && peek(1).text == "=") {
      std::string name = take().text;
      take();
      ExprPtr value = expression();
      call.depth = std::max(call.depth, value->depth + 1);
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      add(call, expression());
    }
    if (!at_operator(")")) expect_operator(",");
  }
}

}  // namespace halfbyte::jinja
