// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <utility>

namespace halfbyte::jinja {
namespace {

constexpr int kMaxDepth = 600;  // of evaluation: expressions, blocks and macros together

constexpr std::size_t kLoopSteps = 20;  // an iteration makes a scope and the loop variable

enum class Flow { kNormal, kBreak, kContinue };

using Scope = std::map<std::string, Value, std::less<>>;

Value strftime_now(const Arguments& arguments) {
  const Value* format = arguments.find(0, "format");
  if (format == nullptr || !format->is_string()) throw type_error("strftime_now() needs a format");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 1024> text{};
  return Value(std::string(
      text.data(), std::strftime(text.data(), text.size(), format->as_string().c_str(), &local)));
}

Value make_range(const Arguments& arguments, Budget& budget) {
  std::int64_t bounds[3] = {0, 0, 1};
  const List& given = arguments.positional;
  if (given.empty() || given.size() > 3) throw type_error("range() takes 1 to 3 arguments");
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!given[i].defined().is_small_integer()) throw type_error("range() needs integers");
    bounds[i] = given[i].to_int64();
  }
  if (given.size() == 1) std::swap(bounds[0], bounds[1]);
  const std::int64_t step = bounds[2];
  if (step == 0) throw type_error("range() with step 0");
  List items;
  for (std::int64_t i = bounds[0]; step > 0 ? i < bounds[1] : i > bounds[1];) {
    budget.step();
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items));
}

class Evaluator {
 public:
  explicit Evaluator(const Dict& variables) : scopes_(1) {
    for (const auto& [name, value] : variables)
      scopes_[0][name] = value;
  }

  std::string run(const Body& body) {
    std::string out;
    execute(body, out);
    return out;
  }

 private:
  class Depth {
   public:
    explicit Depth(Evaluator& evaluator) : evaluator_(evaluator) {
      if (++evaluator_.depth_ > kMaxDepth) {
        throw Failure(StatusCode::kInvalidArgument,
                      fmt::format("the template recurses deeper than {} levels", kMaxDepth));
      }
    }
    ~Depth() { --evaluator_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Evaluator& evaluator_;
  };

  // ---- statements

  Flow execute(const Body& body, std::string& out) {
    const Depth depth(*this);
    for (const Node& node : body) {
      budget_.step();
      if (const Flow flow = execute(node, out); flow != Flow::kNormal) return flow;
    }
    return Flow::kNormal;
  }

  Flow execute(const Node& node, std::string& out) {
    switch (node.kind) {
      case Node::Kind::kText:
        append_text(Value(node.text), budget_, out);
        return Flow::kNormal;
      case Node::Kind::kPrint:
        append_text(evaluate(*node.value), budget_, out);
        return Flow::kNormal;
      case Node::Kind::kIf:
        return execute_if(node, out);
      case Node::Kind::kFor:
        return execute_for(node, out);
      case Node::Kind::kSet:
        assign(node.targets, evaluate(*node.value));
        return Flow::kNormal;
      case Node::Kind::kSetField:
        set_field(node);
        return Flow::kNormal;
      case Node::Kind::kSetBlock:
        return set_block(node);
      case Node::Kind::kMacro:
        scopes_.back()[node.macro->name] = Value(node.macro.get());
        return Flow::kNormal;
      case Node::Kind::kTransparent:
        return execute(node.body, out);
      case Node::Kind::kBreak:
        return Flow::kBreak;
      case Node::Kind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNormal;
  }

  Flow execute_if(const Node& node, std::string& out) {
    for (const Branch& branch : node.branches) {
      if (branch.condition == nullptr || evaluate(*branch.condition).truthy()) {
        return execute(branch.body, out);
      }
    }
    return Flow::kNormal;
  }

  Flow execute_for(const Node& node, std::string& out) {
    const List items = select(node, iterate(evaluate(*node.value), budget_));
    if (items.empty() && !node.branches.empty()) return execute(node.branches[0].body, out);
    for (std::size_t i = 0; i < items.size(); ++i) {
      budget_.step(kLoopSteps);
      scopes_.emplace_back();
      scopes_.back()["loop"] = loop_variable(items, i);
      assign(node.targets, items[i]);
      const Flow flow = execute(node.body, out);
      scopes_.pop_back();
      if (flow == Flow::kBreak) break;
    }
    return Flow::kNormal;
  }

  // The items that pass `for ... if condition`.
  List select(const Node& node, List items) {
    if (node.condition == nullptr) return items;
    List kept;
    for (Value& item : items) {
      scopes_.emplace_back();
      assign(node.targets, item);
      const bool keep = evaluate(*node.condition).truthy();
      scopes_.pop_back();
      if (keep) kept.push_back(std::move(item));
    }
    return kept;
  }

  static Value loop_variable(const List& items, std::size_t i) {
    const auto index = static_cast<std::int64_t>(i);
    const auto length = static_cast<std::int64_t>(items.size());
    Dict loop = {{"index", Value(index + 1)},
                 {"index0", Value(index)},
                 {"first", Value(i == 0)},
                 {"last", Value(i + 1 == items.size())},
                 {"length", Value(length)},
                 {"revindex", Value(length - index)},
                 {"revindex0", Value(length - index - 1)}};
    // A neighbour as deep as a value may be cannot go one level deeper.
    const auto add = [&](const char* name, const Value& item) {
      if (item.depth() < kMaxValueDepth) loop.emplace_back(name, item);
    };
    if (i > 0) add("previtem", items[i - 1]);
    if (i + 1 < items.size()) add("nextitem", items[i + 1]);
    return Value::dict(std::move(loop));
  }

  void assign(const std::vector<std::string>& targets, const Value& value) {
    if (targets.size() == 1) {
      scopes_.back()[targets[0]] = value;
      return;
    }
    List parts = iterate(value.defined(), budget_);
    if (parts.size() != targets.size()) {
      throw type_error(fmt::format("{} values for {} variables", parts.size(), targets.size()));
    }
    for (std::size_t i = 0; i < parts.size(); ++i)
      scopes_.back()[targets[i]] = std::move(parts[i]);
  }

  void set_field(const Node& node) {
    Value value = evaluate(*node.value);
    const Value object = look_up(node.targets[0]);
    if (!object.defined().is_namespace()) {
      throw type_error(fmt::format("{} is not a namespace: its field {} cannot be set",
                                   node.targets[0], node.text));
    }
    set_key(object.as_namespace().fields, node.text, std::move(value));
  }

  static void set_key(Dict& dict, const std::string& key, Value value) {
    const auto it =
        std::find_if(dict.begin(), dict.end(), [&](const auto& item) { return item.first == key; });
    if (it == dict.end()) {
      dict.emplace_back(key, std::move(value));
    } else {
      it->second = std::move(value);
    }
  }

  Flow set_block(const Node& node) {
    std::string text;
    scopes_.emplace_back();
    const Flow flow = execute(node.body, text);
    scopes_.pop_back();
    scopes_.back()[node.targets[0]] = Value(std::move(text));
    return flow;
  }

  // ---- expressions

  Value look_up(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto it = scope->find(name); it != scope->end()) return it->second;
    }
    return Value::undefined(fmt::format("'{}' is undefined", name));
  }

  Value evaluate(const Expr& expr) {
    const Depth depth(*this);
    budget_.step();
    switch (expr.kind) {
      case Expr::Kind::kConstant:
        return expr.constant;
      case Expr::Kind::kName:
        return look_up(expr.name);
      case Expr::Kind::kList:
        return evaluate_list(expr);
      case Expr::Kind::kDict:
        return evaluate_dict(expr);
      case Expr::Kind::kAttribute:
        return attribute(child(expr, 0), expr.name);
      case Expr::Kind::kItem:
        return evaluate_item(expr);
      case Expr::Kind::kSlice:
        return evaluate_slice(expr);
      case Expr::Kind::kCall:
        return call(expr);
      case Expr::Kind::kMethod:
      case Expr::Kind::kFilter:
        return call_builtin(expr);
      case Expr::Kind::kTest:
        return evaluate_test(expr);
      default:
        return evaluate_operator(expr);
    }
  }

  Value evaluate_operator(const Expr& expr) {
    switch (expr.kind) {
      case Expr::Kind::kNot:
        return Value(!child(expr, 0).truthy());
      case Expr::Kind::kNegate:
        return negate(child(expr, 0));
      case Expr::Kind::kAnd: {
        Value left = child(expr, 0);
        return left.truthy() ? child(expr, 1) : left;
      }
      case Expr::Kind::kOr: {
        Value left = child(expr, 0);
        return left.truthy() ? left : child(expr, 1);
      }
      case Expr::Kind::kConditional:
        return child(expr, child(expr, 1).truthy() ? 0 : 2);
      case Expr::Kind::kCompare:
        return evaluate_comparison(expr);
      default: {
        const Value left = child(expr, 0);
        return binary(expr.name, left, child(expr, 1), budget_);
      }
    }
  }

  Value child(const Expr& expr, std::size_t i) { return evaluate(*expr.children[i]); }

  Value evaluate_list(const Expr& expr) {
    List items;
    for (const ExprPtr& part : expr.children)
      items.push_back(evaluate(*part));
    return Value::list(std::move(items));
  }

  Value evaluate_dict(const Expr& expr) {
    Dict dict;
    for (std::size_t i = 0; i < expr.children.size(); i += 2) {
      const Value key = child(expr, i);
      if (!key.is_string()) throw type_error("keys of a dict are strings here");
      set_key(dict, key.as_string(), child(expr, i + 1));
    }
    return Value::dict(std::move(dict));
  }

  Value evaluate_item(const Expr& expr) {
    const Value object = child(expr, 0);
    return item(object, child(expr, 1), budget_);
  }

  Value evaluate_slice(const Expr& expr) {
    const Value object = child(expr, 0);
    SliceBounds bounds;
    bounds.start = child(expr, 1);
    bounds.stop = child(expr, 2);
    bounds.step = child(expr, 3);
    return slice(object, bounds, budget_);
  }

  Value evaluate_comparison(const Expr& expr) {
    const Value left = child(expr, 0);
    const Value right = child(expr, 1);
    if (expr.name == "not in") return Value(!compare("in", left, right, budget_));
    return Value(compare(expr.name, left, right, budget_));
  }

  Value evaluate_test(const Expr& expr) {
    const Value operand = child(expr, 0);
    return Value(expr.test(operand, evaluate_arguments(expr), budget_));
  }

  Value call_builtin(const Expr& expr) {
    const Value operand = child(expr, 0);
    if (expr.kind == Expr::Kind::kMethod) operand.defined();
    return expr.function(operand, evaluate_arguments(expr), budget_);
  }

  Arguments evaluate_arguments(const Expr& expr) {
    Arguments arguments;
    for (std::size_t i = 1; i < expr.children.size(); ++i) {
      arguments.positional.push_back(child(expr, i));
    }
    for (const auto& [name, value] : expr.named)
      arguments.named.emplace_back(name, evaluate(*value));
    return arguments;
  }

  // ---- calls

  Value call(const Expr& expr) {
    const Value function = child(expr, 0);
    const Arguments arguments = evaluate_arguments(expr);
    if (function.is_macro()) return call_macro(function.as_macro(), arguments);
    if (function.is_undefined() && expr.children[0]->kind == Expr::Kind::kName) {
      return call_function(expr.children[0]->name, arguments, function);
    }
    throw type_error(fmt::format("'{}' object is not callable", function.defined().type_name()));
  }

  Value call_function(const std::string& name, const Arguments& arguments, const Value& undefined) {
    if (name == "namespace") {
      Namespace& created = namespaces_.emplace_back();
      created.fields = merge(arguments);
      return Value(&created);
    }
    if (name == "dict") return Value::dict(merge(arguments));
    if (name == "range") return make_range(arguments, budget_);
    if (name == "strftime_now") return strftime_now(arguments);
    if (name == "raise_exception") {
      const Value* message = arguments.find(0, "message");
      throw Failure(StatusCode::kInvalidArgument,
                    message == nullptr ? "raise_exception" : to_text(*message, budget_));
    }
    throw undefined_error(undefined.why_undefined());
  }

  // dict(other, a=1): the keys of a dict, then the named ones.
  static Dict merge(const Arguments& arguments) {
    Dict dict;
    if (!arguments.positional.empty()) {
      if (!arguments.positional[0].is_dict()) throw type_error("wanted a dict");
      dict = arguments.positional[0].as_dict();
    }
    for (const auto& [name, value] : arguments.named)
      set_key(dict, name, value);
    return dict;
  }

  // A macro sees its arguments and the template's own variables, not its caller's.
  Value call_macro(const Macro& macro, const Arguments& arguments) {
    const Depth depth(*this);
    if (arguments.positional.size() > macro.parameters.size()) {
      throw type_error(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name,
                                   macro.parameters.size()));
    }
    std::deque<Scope> outer(std::make_move_iterator(scopes_.begin() + 1),
                            std::make_move_iterator(scopes_.end()));
    scopes_.resize(1);
    scopes_.emplace_back();
    for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
      const auto& [name, standard] = macro.parameters[i];
      const Value* given = arguments.find(i, name);
      Value value = given != nullptr ? *given
                    : standard != nullptr
                        ? evaluate(*standard)
                        : Value::undefined(fmt::format("'{}' is undefined", name));
      scopes_.back()[name] = std::move(value);
    }
    std::string text;
    execute(macro.body, text);
    scopes_.resize(1);
    std::move(outer.begin(), outer.end(), std::back_inserter(scopes_));
    return Value(std::move(text));
  }

  std::deque<Scope> scopes_;  // the innermost last
  std::deque<Namespace> namespaces_;
  Budget budget_;
  int depth_ = 0;
};

}  // namespace

std::string render_template(const Body& body, const Dict& variables) {
  return Evaluator(variables).run(body);
}

}  // namespace halfbyte::jinja
