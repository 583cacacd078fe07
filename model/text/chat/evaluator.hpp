#pragma once

#include "model/text/chat/functions.hpp"
#include "model/text/chat/syntax.hpp"

#include <deque>
#include <map>
#include <string>
#include <string_view>

namespace millrace::jinja {

/// Names and their values; what is not found here is looked for in the parent. A loop's turn, a macro's call
/// and the like have one each.
struct Scope {
  Scope* parent = nullptr;
  std::map<std::string_view, Value> variables; // the names are the syntax tree's
};

/// A macro and the scope that it was defined in.
struct Macro {
  const MacroSyntax* syntax;
  Scope* scope;
};

/// Runs a template once.
class Evaluator {
public:
  /// The names of the variables must outlive the evaluator.
  Evaluator(Context& context, std::map<std::string_view, Value> variables);

  /// Throws TemplateError.
  Text run(const Body& body);

private:
  enum class Flow { normal, broken, continued };
  struct Visitor;
  class ScopeGuard;

  Value evaluate(const Expression& expression);
  Value evaluate_optional(const ExpressionPtr& expression); // none for null
  Arguments evaluate(const ArgumentList& list);
  Value look_up(std::string_view name);
  Value call(const Value& callee, Arguments arguments);
  Value call_macro(const Macro& macro, Arguments arguments);
  Value filtered(const FilterCall& call, const Value& value);
  Value filtered(const std::vector<FilterCall>& filters, Value value);

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_loop(const For& loop);
  std::vector<Value> chosen_items(const For& loop, const Sequence& all);
  void assign(const Target& target, const Value& value);
  void write(const Text& text);
  Value new_macro(const MacroSyntax& syntax);

  /// What the body writes, instead of the output.
  struct Captured {
    Flow flow;
    TextPtr text;
  };
  Captured capture(const Body& body);

  Context& context_;
  std::deque<Scope> scopes_;
  std::deque<Macro> macros_;
  Scope* scope_;
  TextBuilder output_;
  int line_ = 1;
  int macro_calls_ = 0; // that are running
};

} // namespace millrace::jinja
