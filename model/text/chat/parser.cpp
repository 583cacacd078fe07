#include "model/text/chat/parser.hpp"

#include "model/text/chat/lexer.hpp"

#include <algorithm>
#include <charconv>

namespace millrace::jinja {
namespace {

/// The deepest of the parts that a node is made of.
class Depth {
public:
  template <class... Parts> explicit Depth(const Parts&... parts) { (add(parts), ...); }
  int value() const { return value_; }

private:
  void add(const ExpressionPtr& part) { value_ = std::max(value_, part ? part->depth : 0); }
  template <class A, class B> void add(const std::pair<A, B>& pair) {
    add(pair.first);
    add(pair.second);
  }
  template <class T> void add(const std::vector<T>& parts) {
    for (const T& part : parts)
      add(part);
  }
  void add(const ArgumentList& list) {
    add(list.positional);
    add(list.named);
    add(list.more_positional);
    add(list.more_named);
  }
  void add(const std::string&) {}
  void add(CompareOperator) {}

  int value_ = 0;
};

Depth parts_of(const Literal&) {
  return Depth();
}
Depth parts_of(const Name&) {
  return Depth();
}
Depth parts_of(const SequenceDisplay& node) {
  return Depth(node.items);
}
Depth parts_of(const DictDisplay& node) {
  return Depth(node.entries);
}
Depth parts_of(const Binary& node) {
  return Depth(node.left, node.right);
}
Depth parts_of(const Concatenation& node) {
  return Depth(node.parts);
}
Depth parts_of(const Comparison& node) {
  return Depth(node.first, node.rest);
}
Depth parts_of(const Logical& node) {
  return Depth(node.left, node.right);
}
Depth parts_of(const Not& node) {
  return Depth(node.operand);
}
Depth parts_of(const Sign& node) {
  return Depth(node.operand);
}
Depth parts_of(const Conditional& node) {
  return Depth(node.condition, node.chosen, node.otherwise);
}
Depth parts_of(const AttributeAccess& node) {
  return Depth(node.object);
}
Depth parts_of(const Subscript& node) {
  return Depth(node.object, node.index);
}
Depth parts_of(const SliceAccess& node) {
  return Depth(node.object, node.begin, node.end, node.step);
}
Depth parts_of(const Call& node) {
  return Depth(node.callee, node.arguments);
}
Depth parts_of(const Filtered& node) {
  return Depth(node.operand, node.call.arguments);
}
Depth parts_of(const Test& node) {
  return Depth(node.operand, node.arguments);
}

/// By recursive descent; each function reads what it is named after.
class Parser {
public:
  Parser(std::string_view source, int max_depth) : tokens_(tokenize(source)), max_depth_(max_depth) {}

  Body run() { return body({}); }

private:
  /// Held by each function that recurses.
  class Nesting {
  public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (parser_.nesting_ >= parser_.max_depth_)
        parser_.fail("the syntax nests too deeply");
      ++parser_.nesting_;
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

  private:
    Parser& parser_;
  };

  [[noreturn]] void fail(const std::string& problem) const { fail_at(current().line, problem); }
  [[noreturn]] void fail_unexpected() const {
    switch (current().kind) {
    case TokenKind::variable_end:
    case TokenKind::block_end: fail("unexpected end of tag");
    case TokenKind::end: fail("unexpected end of template");
    default: fail("unexpected '" + current().text.substr(0, 100) + "'");
    }
  }

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }

  bool skip_symbol(std::string_view symbol) {
    const bool found = current().is_symbol(symbol);
    at_ += found;
    return found;
  }
  bool skip_name(std::string_view name) {
    const bool found = current().is_name(name);
    at_ += found;
    return found;
  }
  void expect_symbol(std::string_view symbol) {
    if (!skip_symbol(symbol))
      fail_unexpected();
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name))
      fail_unexpected();
  }
  void expect(TokenKind kind) {
    if (current().kind != kind)
      fail_unexpected();
    next();
  }
  std::string name() {
    if (current().kind != TokenKind::name)
      fail_unexpected();
    return next().text;
  }

  /// Trees that grow without recursion, such as a.b.c, are bounded here.
  template <class Node> ExpressionPtr make(int line, Node node) const {
    const int depth = 1 + parts_of(node).value();
    if (depth > max_depth_)
      fail_at(line, "the syntax nests too deeply");
    auto made = std::make_unique<Expression>();
    made->node = std::move(node);
    made->line = line;
    made->depth = depth;
    return made;
  }

  // Expressions, from the weakest operator to the strongest

  ExpressionPtr expression() {
    const Nesting nesting(*this);
    ExpressionPtr left = disjunction();
    while (current().is_name("if")) {
      const int line = next().line;
      ExpressionPtr condition = disjunction();
      ExpressionPtr otherwise = skip_name("else") ? expression() : nullptr;
      left = make(line, Conditional{std::move(condition), std::move(left), std::move(otherwise)});
    }
    return left;
  }

  ExpressionPtr disjunction() {
    ExpressionPtr left = conjunction();
    while (current().is_name("or")) {
      const int line = next().line;
      left = make(line, Logical{false, std::move(left), conjunction()});
    }
    return left;
  }

  ExpressionPtr conjunction() {
    ExpressionPtr left = negation();
    while (current().is_name("and")) {
      const int line = next().line;
      left = make(line, Logical{true, std::move(left), negation()});
    }
    return left;
  }

  ExpressionPtr negation() {
    if (!current().is_name("not"))
      return comparison();
    const Nesting nesting(*this);
    const int line = next().line;
    return make(line, Not{negation()});
  }

  std::optional<CompareOperator> compare_operator() {
    constexpr std::pair<std::string_view, CompareOperator> kSymbols[] = {
        {"==", CompareOperator::equal},  {"!=", CompareOperator::not_equal},
        {"<", CompareOperator::less},    {"<=", CompareOperator::less_equal},
        {">", CompareOperator::greater}, {">=", CompareOperator::greater_equal},
    };
    for (const auto& [symbol, op] : kSymbols)
      if (skip_symbol(symbol))
        return op;
    if (skip_name("in"))
      return CompareOperator::in;
    if (!current().is_name("not") || !following().is_name("in"))
      return std::nullopt;
    at_ += 2;
    return CompareOperator::not_in;
  }

  ExpressionPtr comparison() {
    const int line = current().line;
    Comparison node{sum(), {}};
    while (const auto op = compare_operator())
      node.rest.emplace_back(*op, sum());
    return node.rest.empty() ? std::move(node.first) : make(line, std::move(node));
  }

  ExpressionPtr sum() {
    ExpressionPtr left = concatenation();
    while (current().is_symbol("+") || current().is_symbol("-")) {
      const int line = current().line;
      const auto op = next().text == "+" ? BinaryOperator::add : BinaryOperator::subtract;
      left = make(line, Binary{op, std::move(left), concatenation()});
    }
    return left;
  }

  ExpressionPtr concatenation() {
    const int line = current().line;
    ExpressionPtr first = product();
    if (!current().is_symbol("~"))
      return first;
    Concatenation node;
    node.parts.push_back(std::move(first));
    while (skip_symbol("~"))
      node.parts.push_back(product());
    return make(line, std::move(node));
  }

  std::optional<BinaryOperator> product_operator() {
    if (skip_symbol("*"))
      return BinaryOperator::multiply;
    if (skip_symbol("/"))
      return BinaryOperator::divide;
    if (skip_symbol("//"))
      return BinaryOperator::floor_divide;
    return skip_symbol("%") ? std::optional(BinaryOperator::modulo) : std::nullopt;
  }

  ExpressionPtr product() {
    ExpressionPtr left = power();
    const int line = current().line;
    while (const auto op = product_operator())
      left = make(line, Binary{*op, std::move(left), power()});
    return left;
  }

  // From left to right, as Jinja has it.
  ExpressionPtr power() {
    ExpressionPtr left = signed_operand(true);
    const int line = current().line;
    while (skip_symbol("**"))
      left = make(line, Binary{BinaryOperator::power, std::move(left), signed_operand(true)});
    return left;
  }

  ExpressionPtr signed_operand(bool with_filters) {
    ExpressionPtr operand;
    if (current().is_symbol("-") || current().is_symbol("+")) {
      const Nesting nesting(*this);
      const int line = current().line;
      const bool negative = next().text == "-";
      operand = make(line, Sign{negative, signed_operand(false)});
    } else {
      operand = primary();
    }
    operand = postfix(std::move(operand));
    return with_filters ? filters_and_tests(std::move(operand)) : std::move(operand);
  }

  ExpressionPtr primary() {
    const int line = current().line;
    switch (current().kind) {
    case TokenKind::name: return name_or_constant();
    case TokenKind::string: {
      std::string text = next().text;
      while (current().kind == TokenKind::string)
        text += next().text;
      return make(line, Literal{text_value(text)});
    }
    case TokenKind::integer:
    case TokenKind::number: return make(line, Literal{number()});
    default: break;
    }
    if (skip_symbol("(")) {
      ExpressionPtr inner = tuple(true, true);
      expect_symbol(")");
      return inner;
    }
    if (skip_symbol("["))
      return make(line, SequenceDisplay{SequenceKind::list, list_items()});
    if (skip_symbol("{"))
      return make(line, DictDisplay{dict_entries()});
    fail_unexpected();
  }

  ExpressionPtr name_or_constant() {
    const int line = current().line;
    const std::string word = name();
    if (word == "true" || word == "True" || word == "false" || word == "False")
      return make(line, Literal{boolean(word == "true" || word == "True")});
    if (word == "none" || word == "None")
      return make(line, Literal{none()});
    uses_varargs_ |= word == "varargs";
    uses_kwargs_ |= word == "kwargs";
    return make(line, Name{word});
  }

  Value number() {
    const Token& token = next();
    if (token.kind == TokenKind::number)
      return floating(std::strtod(token.text.c_str(), nullptr));
    int base = 10;
    std::string_view digits = token.text;
    if (digits.size() > 2 && digits[0] == '0' && digits[1] > '9') {
      base = (digits[1] | 0x20) == 'x' ? 16 : (digits[1] | 0x20) == 'o' ? 8 : 2;
      digits.remove_prefix(2);
    }
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc() || end != digits.data() + digits.size())
      fail_at(token.line, "a number is malformed or beyond 64 bits");
    return integer(value);
  }

  /// One expression, or several with commas: a tuple. Where a statement follows, `a if b` is not part of it.
  ExpressionPtr tuple(bool with_conditional, bool in_parentheses = false) {
    const Nesting nesting(*this);
    const int line = current().line;
    std::vector<ExpressionPtr> items;
    bool is_tuple = false;
    while (!at_tuple_end()) {
      items.push_back(with_conditional ? expression() : disjunction());
      if (!skip_symbol(","))
        break;
      is_tuple = true;
    }
    if (!is_tuple && items.size() == 1)
      return std::move(items[0]);
    if (items.empty() && !in_parentheses)
      fail_unexpected();
    return make(line, SequenceDisplay{SequenceKind::tuple, std::move(items)});
  }

  bool at_tuple_end() const {
    return current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end ||
           current().is_symbol(")");
  }

  std::vector<ExpressionPtr> list_items() {
    std::vector<ExpressionPtr> items;
    while (!skip_symbol("]")) {
      items.push_back(expression());
      if (!current().is_symbol("]"))
        expect_symbol(",");
    }
    return items;
  }

  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> dict_entries() {
    std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
    while (!skip_symbol("}")) {
      ExpressionPtr key = expression();
      expect_symbol(":");
      entries.emplace_back(std::move(key), expression());
      if (!current().is_symbol("}"))
        expect_symbol(",");
    }
    return entries;
  }

  ExpressionPtr postfix(ExpressionPtr operand) {
    for (;;) {
      const int line = current().line;
      if (skip_symbol("."))
        operand = attribute(std::move(operand), line);
      else if (skip_symbol("["))
        operand = subscript(std::move(operand), line);
      else if (current().is_symbol("("))
        operand = make(line, Call{std::move(operand), arguments()});
      else
        return operand;
    }
  }

  ExpressionPtr attribute(ExpressionPtr object, int line) {
    if (current().kind == TokenKind::integer)
      return make(line, Subscript{std::move(object), make(line, Literal{number()})});
    return make(line, AttributeAccess{std::move(object), name()});
  }

  ExpressionPtr subscript(ExpressionPtr object, int line) {
    const auto at_part_end = [this] { return current().is_symbol("]") || current().is_symbol(":"); };
    ExpressionPtr begin = at_part_end() ? nullptr : expression();
    if (begin && current().is_symbol(",")) {
      std::vector<ExpressionPtr> items;
      items.push_back(std::move(begin));
      while (skip_symbol(","))
        items.push_back(expression());
      begin = make(line, SequenceDisplay{SequenceKind::tuple, std::move(items)});
    }
    if (begin && skip_symbol("]"))
      return make(line, Subscript{std::move(object), std::move(begin)});
    expect_symbol(":");
    ExpressionPtr end = at_part_end() ? nullptr : expression();
    ExpressionPtr step = skip_symbol(":") && !at_part_end() ? expression() : nullptr;
    expect_symbol("]");
    return make(line, SliceAccess{std::move(object), std::move(begin), std::move(end), std::move(step)});
  }

  ArgumentList arguments() {
    expect_symbol("(");
    ArgumentList list;
    while (!skip_symbol(")")) {
      if (skip_symbol("**")) {
        list.more_named = expression();
      } else if (list.more_named) {
        fail_unexpected();
      } else if (skip_symbol("*")) {
        list.more_positional = expression();
      } else if (current().kind == TokenKind::name && following().is_symbol("=")) {
        std::string parameter = name();
        expect_symbol("=");
        list.named.emplace_back(std::move(parameter), expression());
      } else if (list.named.empty() && !list.more_positional) {
        list.positional.push_back(expression());
      } else {
        fail_unexpected();
      }
      if (!current().is_symbol(")"))
        expect_symbol(",");
    }
    return list;
  }

  ExpressionPtr filters_and_tests(ExpressionPtr operand) {
    for (;;) {
      const int line = current().line;
      if (skip_symbol("|"))
        operand = make(line, Filtered{std::move(operand), filter()});
      else if (skip_name("is"))
        operand = test(std::move(operand), line);
      else if (current().is_symbol("("))
        operand = make(line, Call{std::move(operand), arguments()});
      else
        return operand;
    }
  }

  FilterCall filter() {
    const int line = current().line;
    const std::string filter_name = name();
    const Filter filter = find_filter(filter_name);
    if (!filter && branches_ == 0)
      fail_at(line, "no filter named '" + filter_name.substr(0, 100) + "'");
    return {filter_name.substr(0, 100), filter, current().is_symbol("(") ? arguments() : ArgumentList()};
  }

  ExpressionPtr test(ExpressionPtr operand, int line) {
    const bool negated = skip_name("not");
    const std::string test_name = name();
    const Predicate predicate = find_predicate(test_name);
    if (!predicate && branches_ == 0)
      fail_at(line, "no test named '" + test_name.substr(0, 100) + "'");
    ExpressionPtr made =
        make(line, Test{std::move(operand), test_name.substr(0, 100), predicate, test_arguments()});
    return negated ? make(line, Not{std::move(made)}) : std::move(made);
  }

  /// In parentheses, or one operand without them: x is divisibleby 3.
  ArgumentList test_arguments() {
    if (current().is_symbol("("))
      return arguments();
    ArgumentList list;
    const bool is_keyword = current().is_name("else") || current().is_name("or") || current().is_name("and");
    if (current().is_name("is"))
      fail("tests cannot be chained with is");
    const bool begins_operand =
        (current().kind == TokenKind::name && !is_keyword && !current().is_name("if")) ||
        current().kind == TokenKind::string || current().kind == TokenKind::integer ||
        current().kind == TokenKind::number || current().is_symbol("[") || current().is_symbol("{");
    if (begins_operand)
      list.positional.push_back(postfix(primary()));
    return list;
  }

  // Statements

  /// Up to the tag that begins with one of these words, which is then the current token; the whole rest if
  /// there are none.
  Body body(const std::vector<std::string_view>& ends) {
    const Nesting nesting(*this);
    Body statements;
    for (;;) {
      const int line = current().line;
      switch (current().kind) {
      case TokenKind::data: statements.push_back({Data{make_text(next().text, true)}, line}); break;
      case TokenKind::variable_begin:
        next();
        statements.push_back({Output{tuple(true)}, line});
        expect(TokenKind::variable_end);
        break;
      case TokenKind::block_begin:
        next();
        if (current().kind == TokenKind::name && std::ranges::find(ends, current().text) != ends.end())
          return statements;
        read_statement(statements);
        expect(TokenKind::block_end);
        break;
      default:
        if (!ends.empty())
          fail("unexpected end of template: looking for '" + std::string(ends.back()) + "'");
        return statements;
      }
    }
  }

  /// Behind the words of a tag: its end, the statements, and the word of the tag that ends them.
  Body body_until(const std::vector<std::string_view>& ends) {
    skip_symbol(":");
    expect(TokenKind::block_end);
    return body(ends);
  }
  Body body_with_end(std::string_view end) {
    Body statements = body_until({end});
    next();
    return statements;
  }

  void read_statement(Body& statements) {
    const int line = current().line;
    const std::string word = name();
    const auto add = [&](auto node) { statements.push_back({std::move(node), line}); };
    if (word == "set")
      read_set(statements, line);
    else if (word == "if")
      add(if_statement());
    else if (word == "for")
      add(for_statement());
    else if (word == "macro")
      add(MacroDefinition{macro(name())});
    else if (word == "call")
      add(call_block());
    else if (word == "filter")
      add(filter_block());
    else if (word == "with")
      add(with_statement());
    else if (word == "generation") // marks the model's own turns for training; a scope and nothing else
      add(With{{}, body_with_end("endgeneration")});
    else if (word == "break" || word == "continue")
      word == "break" ? add_jump<Break>(statements, line) : add_jump<Continue>(statements, line);
    else
      fail_at(line, "unknown tag '" + word.substr(0, 100) + "'");
  }

  template <class Jump> void add_jump(Body& statements, int line) {
    if (loops_ == 0)
      fail_at(line, "break or continue outside of a loop");
    statements.push_back({Jump(), line});
  }

  void read_set(Body& statements, int line) {
    Target to = target(true);
    if (skip_symbol("=")) {
      statements.push_back({Assignment{std::move(to), tuple(true)}, line});
      return;
    }
    std::vector<FilterCall> filters;
    while (skip_symbol("|"))
      filters.push_back(filter());
    statements.push_back({BlockAssignment{std::move(to), std::move(filters), body_with_end("endset")}, line});
  }

  Target target(bool with_member) {
    const Nesting nesting(*this);
    std::vector<Target> parts;
    bool is_tuple = false;
    do {
      if (current().is_name("in") || current().is_symbol("=") || current().is_symbol(")"))
        break; // behind a last comma
      if (skip_symbol("(")) {
        parts.push_back(target(with_member));
        expect_symbol(")");
      } else {
        parts.push_back(single_target(with_member));
      }
      is_tuple = is_tuple || current().is_symbol(",");
    } while (skip_symbol(","));
    if (parts.empty())
      fail_unexpected();
    return is_tuple ? Target{{}, {}, std::move(parts)} : std::move(parts[0]);
  }

  Target single_target(bool with_member) {
    static constexpr std::string_view kConstants[] = {"true", "True", "false", "False", "none", "None"};
    if (std::ranges::find(kConstants, current().text) != std::end(kConstants))
      fail("cannot assign to a constant");
    Target to{name(), {}, {}};
    if (with_member && skip_symbol("."))
      to.member = name();
    return to;
  }

  If if_statement() {
    If node;
    ++branches_;
    for (std::string word = "if"; word != "endif"; word = next().text) {
      if (word == "else") {
        node.otherwise = body_until({"endif"});
        continue;
      }
      ExpressionPtr condition = tuple(false);
      node.branches.emplace_back(std::move(condition), body_until({"elif", "else", "endif"}));
    }
    --branches_;
    return node;
  }

  For for_statement() {
    For node;
    node.target = target(false);
    expect_name("in");
    node.items = tuple(false);
    if (skip_name("if"))
      node.condition = expression();
    if (current().is_name("recursive"))
      fail("recursive loops are not supported");
    ++loops_;
    node.body = body_until({"else", "endfor"});
    --loops_;
    if (next().text == "else")
      node.otherwise = body_with_end("endfor");
    return node;
  }

  std::vector<MacroSyntax::Parameter> parameters() {
    std::vector<MacroSyntax::Parameter> list;
    expect_symbol("(");
    while (!skip_symbol(")")) {
      MacroSyntax::Parameter parameter{name(), nullptr};
      if (skip_symbol("="))
        parameter.otherwise = expression();
      else if (!list.empty() && list.back().otherwise)
        fail("a parameter without a default behind one with");
      list.push_back(std::move(parameter));
      if (!current().is_symbol(")"))
        expect_symbol(",");
    }
    return list;
  }

  std::unique_ptr<const MacroSyntax> macro(std::string macro_name) {
    auto made = std::make_unique<MacroSyntax>();
    made->name = std::move(macro_name);
    made->parameters = parameters();
    read_macro_body(*made, "endmacro");
    return made;
  }

  void read_macro_body(MacroSyntax& macro, std::string_view end) {
    const int outer_loops = std::exchange(loops_, 0);
    const bool outer_varargs = std::exchange(uses_varargs_, false),
               outer_kwargs = std::exchange(uses_kwargs_, false);
    macro.body = body_with_end(end);
    macro.uses_varargs = std::exchange(uses_varargs_, outer_varargs);
    macro.uses_kwargs = std::exchange(uses_kwargs_, outer_kwargs);
    loops_ = outer_loops;
  }

  CallBlock call_block() {
    auto caller = std::make_unique<MacroSyntax>();
    caller->name = "caller";
    if (current().is_symbol("("))
      caller->parameters = parameters();
    ExpressionPtr call = expression();
    if (!std::holds_alternative<Call>(call->node))
      fail("expected a call");
    read_macro_body(*caller, "endcall");
    return {std::move(call), std::move(caller)};
  }

  FilterBlock filter_block() {
    FilterBlock node;
    do
      node.filters.push_back(filter());
    while (skip_symbol("|"));
    node.body = body_with_end("endfilter");
    return node;
  }

  With with_statement() {
    With node;
    while (current().kind != TokenKind::block_end) {
      if (!node.assignments.empty())
        expect_symbol(",");
      Target to = single_target(false);
      expect_symbol("=");
      node.assignments.emplace_back(std::move(to), expression());
    }
    node.body = body_with_end("endwith");
    return node;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int max_depth_;
  int nesting_ = 0;
  int branches_ =
      0;          // of if statements around the current token: what is not known there may never be reached
  int loops_ = 0; // around the current token, within its macro
  bool uses_varargs_ = false, uses_kwargs_ = false;
};

} // namespace

Body parse(std::string_view source, int max_depth) {
  return Parser(source, max_depth).run();
}

} // namespace millrace::jinja
