#include "model/text/chat/evaluator.hpp"

#include "model/text/chat/lexer.hpp"
#include "model/text/chat/methods.hpp"
#include "model/text/chat/printing.hpp"

#include <algorithm>
#include <optional>

namespace millrace::jinja {
namespace {

template <class... F> struct Overloaded : F... { using F::operator()...; };
template <class... F> Overloaded(F...) -> Overloaded<F...>;

} // namespace

/// A scope of its own until the guard ends. A macro that was defined meanwhile may still need it; then it
/// stays.
class Evaluator::ScopeGuard {
public:
  ScopeGuard(Evaluator& evaluator, Scope* parent)
      : evaluator_(evaluator), outer_(evaluator.scope_), macros_(evaluator.macros_.size()) {
    evaluator_.scope_ = &evaluator_.scopes_.emplace_back(Scope{parent, {}});
  }
  ~ScopeGuard() {
    evaluator_.scope_ = outer_;
    if (evaluator_.macros_.size() == macros_)
      evaluator_.scopes_.pop_back();
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

private:
  Evaluator& evaluator_;
  Scope* outer_;
  size_t macros_;
};

Evaluator::Evaluator(Context& context, std::map<std::string_view, Value> variables) : context_(context) {
  Scope& global = scopes_.emplace_back();
  for (const Function& function : functions())
    global.variables[function.name] = Value{&function};
  Scope& given = scopes_.emplace_back(Scope{&global, std::move(variables)});
  scope_ = &scopes_.emplace_back(Scope{&given, {}});
}

Text Evaluator::run(const Body& body) {
  try {
    execute(body);
  } catch (const Failure& failure) {
    fail_at(line_, failure.what());
  }
  return output_.text();
}

// Expressions

struct Evaluator::Visitor {
  Evaluator& self;
  Fuel& fuel;

  Value operator()(const Literal& node) const { return node.value; }
  Value operator()(const Name& node) const { return self.look_up(node.name); }

  Value operator()(const SequenceDisplay& node) const {
    std::vector<Value> items;
    for (const ExpressionPtr& item : node.items)
      items.push_back(self.evaluate(*item));
    return sequence(fuel, node.kind, std::move(items));
  }
  Value operator()(const DictDisplay& node) const {
    Dict entries;
    for (const auto& [key, value] : node.entries) {
      const Value evaluated = self.evaluate(*key);
      entries.set(fuel, evaluated, self.evaluate(*value));
    }
    return dict(fuel, std::move(entries));
  }

  Value operator()(const Binary& node) const {
    const Value left = self.evaluate(*node.left);
    return binary(fuel, node.op, left, self.evaluate(*node.right));
  }
  Value operator()(const Concatenation& node) const {
    TextBuilder out;
    for (const ExpressionPtr& part : node.parts) {
      const TextPtr text = to_text(fuel, self.evaluate(*part));
      fuel.spend_bytes(text->bytes.size());
      out.append(*text);
      fuel.check_size(out.size());
    }
    return text_value(out.finish());
  }
  Value operator()(const Comparison& node) const {
    Value left = self.evaluate(*node.first);
    for (const auto& [op, operand] : node.rest) {
      Value right = self.evaluate(*operand);
      if (!compare(fuel, op, left, right))
        return boolean(false);
      left = std::move(right);
    }
    return boolean(true);
  }
  Value operator()(const Logical& node) const {
    Value left = self.evaluate(*node.left);
    return is_true(left) == node.is_and ? self.evaluate(*node.right) : left;
  }
  Value operator()(const Not& node) const { return boolean(!is_true(self.evaluate(*node.operand))); }
  Value operator()(const Sign& node) const {
    const Value operand = self.evaluate(*node.operand);
    const Value negated = negate(operand);
    return node.negative ? negated : negate(negated);
  }
  Value operator()(const Conditional& node) const {
    if (is_true(self.evaluate(*node.condition)))
      return self.evaluate(*node.chosen);
    return node.otherwise ? self.evaluate(*node.otherwise)
                          : undefined("an inline if without else evaluated to false");
  }

  Value operator()(const AttributeAccess& node) const {
    return attribute(fuel, self.evaluate(*node.object), node.name);
  }
  Value operator()(const Subscript& node) const {
    const Value object = self.evaluate(*node.object);
    return subscript(fuel, object, self.evaluate(*node.index));
  }
  Value operator()(const SliceAccess& node) const {
    const Value object = self.evaluate(*node.object), begin = self.evaluate_optional(node.begin),
                end = self.evaluate_optional(node.end);
    return slice(fuel, object, begin, end, self.evaluate_optional(node.step));
  }

  Value operator()(const Call& node) const {
    const Value callee = self.evaluate(*node.callee);
    return self.call(callee, self.evaluate(node.arguments));
  }
  Value operator()(const Filtered& node) const {
    return self.filtered(node.call, self.evaluate(*node.operand));
  }
  Value operator()(const Test& node) const {
    if (!node.predicate)
      throw Failure("no test named '" + node.name + "'");
    const Value operand = self.evaluate(*node.operand);
    return boolean(node.predicate(fuel, operand, self.evaluate(node.arguments)));
  }
};

Value Evaluator::evaluate(const Expression& expression) {
  const Fuel::Nesting nesting(context_.fuel);
  context_.fuel.spend();
  line_ = expression.line;
  return std::visit(Visitor{*this, context_.fuel}, expression.node);
}

Value Evaluator::evaluate_optional(const ExpressionPtr& expression) {
  return expression ? evaluate(*expression) : none();
}

Arguments Evaluator::evaluate(const ArgumentList& list) {
  Arguments arguments;
  for (const ExpressionPtr& argument : list.positional)
    arguments.positional.push_back(evaluate(*argument));
  if (list.more_positional)
    for (Value& argument : items_of(context_.fuel, evaluate(*list.more_positional)))
      arguments.positional.push_back(std::move(argument));
  for (const auto& [name, argument] : list.named)
    arguments.named.emplace_back(name, evaluate(*argument));
  if (list.more_named) {
    const Value more = evaluate(*list.more_named);
    if (!more.dict())
      throw Failure("argument after ** must be a mapping, not " + std::string(type_name(more)));
    context_.fuel.spend(more.dict()->entries().size());
    for (const auto& [key, value] : more.dict()->entries()) {
      if (!key.text())
        throw Failure("keywords must be strings");
      arguments.named.emplace_back(key.text()->bytes, value);
    }
  }
  return arguments;
}

Value Evaluator::look_up(std::string_view name) {
  size_t walked = 0;
  for (const Scope* scope = scope_; scope; scope = scope->parent, ++walked)
    if (const auto found = scope->variables.find(name); found != scope->variables.end())
      return found->second;
  context_.fuel.spend(walked / 8);
  return undefined("'" + std::string(name.substr(0, 100)) + "' is undefined");
}

Value Evaluator::call(const Value& callee, Arguments arguments) {
  if (callee.is<const Macro*>())
    return call_macro(*callee.get<const Macro*>(), std::move(arguments));
  if (callee.is<const Function*>())
    return callee.get<const Function*>()->call(context_, arguments);
  if (callee.is<std::shared_ptr<const BoundMethod>>()) {
    const BoundMethod& method = *callee.get<std::shared_ptr<const BoundMethod>>();
    return method.call(context_.fuel, method.self, arguments);
  }
  if (callee.is_undefined())
    fail_undefined(callee);
  throw Failure("'" + std::string(type_name(callee)) + "' object is not callable");
}

Value Evaluator::call_macro(const Macro& macro, Arguments arguments) {
  const MacroSyntax& syntax = *macro.syntax;
  const std::string name = "macro '" + syntax.name.substr(0, 100) + "'";
  if (++macro_calls_ > context_.fuel.max_depth())
    throw Failure("macros call each other too deeply");
  const ScopeGuard guard(*this, macro.scope);
  auto& variables = scope_->variables;

  const size_t by_position = std::min(arguments.positional.size(), syntax.parameters.size());
  for (size_t i = 0; i < by_position; ++i)
    variables[syntax.parameters[i].name] = std::move(arguments.positional[i]);
  std::vector<Value> more(
      std::make_move_iterator(arguments.positional.begin() + static_cast<std::ptrdiff_t>(by_position)),
      std::make_move_iterator(arguments.positional.end()));
  if (!more.empty() && !syntax.uses_varargs)
    throw Failure(name + " takes not more than " + std::to_string(syntax.parameters.size()) + " argument(s)");
  if (syntax.uses_varargs)
    variables["varargs"] = sequence(context_.fuel, SequenceKind::tuple, std::move(more));

  Dict more_named;
  for (auto& [key, value] : arguments.named) {
    const auto parameter = std::ranges::find(syntax.parameters, key, &MacroSyntax::Parameter::name);
    if (parameter != syntax.parameters.end()) {
      if (!variables.try_emplace(parameter->name, std::move(value)).second)
        throw Failure(name + " got multiple values for an argument");
    } else if (key == "caller") {
      variables["caller"] = std::move(value);
    } else if (syntax.uses_kwargs) {
      more_named.set(context_.fuel, text_value(key, false), std::move(value));
    } else {
      throw Failure(name + " takes no keyword argument of this name");
    }
  }
  if (syntax.uses_kwargs)
    variables["kwargs"] = dict(context_.fuel, std::move(more_named));

  for (const auto& [parameter, otherwise] : syntax.parameters)
    if (!variables.contains(parameter))
      variables[parameter] = otherwise
                                 ? evaluate(*otherwise)
                                 : undefined("parameter '" + parameter.substr(0, 100) + "' was not provided");
  TextPtr text = capture(syntax.body).text;
  --macro_calls_;
  return text_value(std::move(text));
}

Value Evaluator::filtered(const FilterCall& call, const Value& value) {
  if (!call.filter)
    throw Failure("no filter named '" + call.name + "'");
  return call.filter(context_.fuel, value, evaluate(call.arguments));
}

Value Evaluator::filtered(const std::vector<FilterCall>& filters, Value value) {
  for (const FilterCall& call : filters) {
    context_.fuel.spend();
    value = filtered(call, value);
  }
  return value;
}

// Statements

Evaluator::Flow Evaluator::execute(const Body& body) {
  for (const Statement& statement : body)
    if (const Flow flow = execute(statement); flow != Flow::normal)
      return flow;
  return Flow::normal;
}

Evaluator::Flow Evaluator::execute(const Statement& statement) {
  const Fuel::Nesting nesting(context_.fuel);
  context_.fuel.spend();
  line_ = statement.line;
  return std::visit(Overloaded{
                        [&](const Data& node) {
                          write(*node.text);
                          return Flow::normal;
                        },
                        [&](const Output& node) {
                          write(*to_text(context_.fuel, evaluate(*node.expression)));
                          return Flow::normal;
                        },
                        [&](const Assignment& node) {
                          assign(node.target, evaluate(*node.value));
                          return Flow::normal;
                        },
                        [&](const BlockAssignment& node) {
                          Captured captured;
                          {
                            const ScopeGuard guard(*this, scope_);
                            captured = capture(node.body);
                          }
                          if (captured.flow == Flow::normal)
                            assign(node.target, filtered(node.filters, text_value(captured.text)));
                          return captured.flow;
                        },
                        [&](const If& node) {
                          for (const auto& [condition, body] : node.branches)
                            if (is_true(evaluate(*condition)))
                              return execute(body);
                          return execute(node.otherwise);
                        },
                        [&](const For& node) { return execute_loop(node); },
                        [&](const MacroDefinition& node) {
                          scope_->variables[node.macro->name] = new_macro(*node.macro);
                          return Flow::normal;
                        },
                        [&](const CallBlock& node) {
                          const Call& called = std::get<Call>(node.call->node);
                          const Value callee = evaluate(*called.callee);
                          Arguments arguments = evaluate(called.arguments);
                          arguments.named.emplace_back("caller", new_macro(*node.caller));
                          write(*to_text(context_.fuel, call(callee, std::move(arguments))));
                          return Flow::normal;
                        },
                        [&](const FilterBlock& node) {
                          const ScopeGuard guard(*this, scope_);
                          const Captured captured = capture(node.body);
                          if (captured.flow == Flow::normal)
                            write(*to_text(context_.fuel, filtered(node.filters, text_value(captured.text))));
                          return captured.flow;
                        },
                        [&](const With& node) {
                          const ScopeGuard guard(*this, scope_);
                          Scope* const inner = std::exchange(scope_, scope_->parent);
                          std::vector<Value> values; // all of them seen from outside
                          for (const auto& [_, value] : node.assignments)
                            values.push_back(evaluate(*value));
                          scope_ = inner;
                          for (size_t i = 0; i < values.size(); ++i)
                            assign(node.assignments[i].first, values[i]);
                          return execute(node.body);
                        },
                        [&](const Break&) { return Flow::broken; },
                        [&](const Continue&) { return Flow::continued; },
                    },
                    statement.node);
}

Evaluator::Flow Evaluator::execute_loop(const For& node) {
  SequencePtr items = sequence_of(context_.fuel, evaluate(*node.items));
  if (node.condition)
    items = sequence(context_.fuel, SequenceKind::list, chosen_items(node, *items)).get<SequencePtr>();
  if (items->items.empty()) {
    const ScopeGuard guard(*this, scope_);
    return execute(node.otherwise);
  }
  const auto loop = std::make_shared<Loop>(Loop{items, 0});
  for (; loop->index < items->items.size(); ++loop->index) {
    context_.fuel.spend();
    const ScopeGuard guard(*this, scope_);
    scope_->variables["loop"] = Value{std::shared_ptr<const Loop>(loop)};
    assign(node.target, items->items[loop->index]);
    if (execute(node.body) == Flow::broken)
      break;
  }
  return Flow::normal;
}

std::vector<Value> Evaluator::chosen_items(const For& node, const Sequence& all) {
  std::vector<Value> chosen;
  for (const Value& item : all.items) {
    const ScopeGuard guard(*this, scope_);
    assign(node.target, item);
    if (is_true(evaluate(*node.condition)))
      chosen.push_back(item);
  }
  return chosen;
}

void Evaluator::assign(const Target& target, const Value& value) {
  context_.fuel.spend();
  if (!target.parts.empty()) {
    const SequencePtr values = sequence_of(context_.fuel, value);
    if (values->items.size() != target.parts.size())
      throw Failure("cannot unpack " + std::to_string(values->items.size()) + " values into " +
                    std::to_string(target.parts.size()));
    for (size_t i = 0; i < target.parts.size(); ++i)
      assign(target.parts[i], values->items[i]);
  } else if (!target.member.empty()) {
    const Value owner = look_up(target.name);
    if (!owner.is<Namespace*>())
      throw Failure("cannot assign attribute on non-namespace object");
    owner.get<Namespace*>()->members.insert_or_assign(target.member, value);
  } else {
    scope_->variables[target.name] = value;
  }
}

void Evaluator::write(const Text& text) {
  context_.fuel.spend_bytes(text.bytes.size());
  output_.append(text);
  context_.fuel.check_size(output_.size());
}

Value Evaluator::new_macro(const MacroSyntax& syntax) {
  return Value{static_cast<const Macro*>(&macros_.emplace_back(Macro{&syntax, scope_}))};
}

Evaluator::Captured Evaluator::capture(const Body& body) {
  TextBuilder outer = std::exchange(output_, TextBuilder());
  const Flow flow = execute(body);
  return {flow, std::exchange(output_, std::move(outer)).finish()};
}

} // namespace millrace::jinja
