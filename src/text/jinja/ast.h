// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_JINJA_AST_H_
#define HALFBYTE_TEXT_JINJA_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/builtins.h"

namespace halfbyte::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind {
    kConstant,
    kName,         // name
    kList,         // children
    kDict,         // children: key, value, key, value, ...
    kAttribute,    // children[0].name
    kItem,         // children[0][children[1]]
    kSlice,        // children[0][children[1]:children[2]:children[3]]
    kCall,         // children[0](arguments)
    kMethod,       // children[0].name(arguments)
    kFilter,       // children[0] | name(arguments)
    kTest,         // children[0] is name(arguments)
    kNot,          // not children[0]
    kNegate,       // -children[0]
    kBinary,       // children[0] name children[1]
    kCompare,      // children[0] name children[1]
    kAnd,          // children
    kOr,           // children
    kConditional,  // children[0] if children[1] else children[2]
  };
  Kind kind = Kind::kConstant;
  int line = 1;
  int depth = 1;  // of the tree below; bounded by the parser
  std::string name;
  Value constant;
  std::vector<ExprPtr> children;  // arguments follow the operand
  std::vector<std::pair<std::string, ExprPtr>> named;
  Filter function = nullptr;  // kFilter, kMethod
  Test test = nullptr;        // kTest
};

struct Node;
using Body = std::vector<Node>;

struct Branch {
  ExprPtr condition;  // null: else
  Body body;
};

struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // default, or null
  Body body;
};

struct Node {
  enum class Kind {
    kText,         // text
    kPrint,        // value
    kIf,           // branches
    kFor,          // targets in value if condition: body, else branches[0]
    kSet,          // targets = value
    kSetField,     // targets[0].text = value
    kSetBlock,     // targets[0] = what body writes
    kMacro,        // macro
    kTransparent,  // body
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 1;
  std::string text;
  ExprPtr value;
  ExprPtr condition;
  std::vector<std::string> targets;
  Body body;
  std::vector<Branch> branches;
  std::unique_ptr<Macro> macro;
};

}  // namespace halfbyte::jinja

#endif  // HALFBYTE_TEXT_JINJA_AST_H_
