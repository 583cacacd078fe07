#pragma once

// The syntax tree of a template. Nothing in it changes once it is parsed.

#include "model/text/chat/filters.hpp"
#include "model/text/chat/operators.hpp"
#include "model/text/chat/predicates.hpp"
#include "model/text/chat/value.hpp"

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace millrace::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;
struct Statement;
using Body = std::vector<Statement>;

struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional, more_named; // *sequence, **mapping; null if absent
};

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct SequenceDisplay { // [a, b] or (a, b)
  SequenceKind kind;
  std::vector<ExpressionPtr> items;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Binary {
  BinaryOperator op;
  ExpressionPtr left, right;
};
struct Concatenation { // a ~ b ~ c
  std::vector<ExpressionPtr> parts;
};
struct Comparison { // a < b < c
  ExpressionPtr first;
  std::vector<std::pair<CompareOperator, ExpressionPtr>> rest;
};
struct Logical {
  bool is_and;
  ExpressionPtr left, right;
};
struct Not {
  ExpressionPtr operand;
};
struct Sign {
  bool negative;
  ExpressionPtr operand;
};
struct Conditional {                          // chosen if condition else otherwise
  ExpressionPtr condition, chosen, otherwise; // otherwise may be null
};
struct AttributeAccess {
  ExpressionPtr object;
  std::string name;
};
struct Subscript {
  ExpressionPtr object, index;
};
struct SliceAccess {
  ExpressionPtr object, begin, end, step; // null where left out, but for the object
};
struct Call {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct FilterCall {
  std::string name;
  Filter filter; // null: not known, an error once it is called
  ArgumentList arguments;
};
struct Filtered {
  ExpressionPtr operand;
  FilterCall call;
};
struct Test {
  ExpressionPtr operand;
  std::string name;
  Predicate predicate; // null: not known, an error once it is asked
  ArgumentList arguments;
};

struct Expression {
  std::variant<Literal, Name, SequenceDisplay, DictDisplay, Binary, Concatenation, Comparison, Logical, Not,
               Sign, Conditional, AttributeAccess, Subscript, SliceAccess, Call, Filtered, Test>
      node;
  int line = 1;
  int depth = 1; // levels of expressions, this one included
};

/// What a value is assigned to: a name, a member of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string member;        // of a namespace; else empty
  std::vector<Target> parts; // of a tuple; else empty
};

struct MacroSyntax {
  struct Parameter {
    std::string name;
    ExpressionPtr otherwise; // null: undefined
  };
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_varargs = false, uses_kwargs = false; // else further arguments are refused
};

struct Data {
  TextPtr text;
};
struct Output {
  ExpressionPtr expression;
};
struct Assignment {
  Target target;
  ExpressionPtr value;
};
struct BlockAssignment {
  Target target;
  std::vector<FilterCall> filters;
  Body body;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr items, condition; // condition may be null
  Body body, otherwise;
};
struct MacroDefinition {
  std::unique_ptr<const MacroSyntax> macro;
};
struct CallBlock {
  ExpressionPtr call; // holds a Call
  std::unique_ptr<const MacroSyntax> caller;
};
struct FilterBlock {
  std::vector<FilterCall> filters;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  std::variant<Data, Output, Assignment, BlockAssignment, If, For, MacroDefinition, CallBlock, FilterBlock,
               With, Break, Continue>
      node;
  int line = 1;
};

} // namespace millrace::jinja
