#include "model/text/chat/functions.hpp"

#include "model/text/chat/arguments.hpp"
#include "model/text/chat/operators.hpp"
#include "model/text/chat/printing.hpp"

#include <ctime>

namespace millrace::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000; // as Jinja's sandbox

Value raise_exception(Context& context, const Arguments& arguments) {
  const auto [message] = bind<1>(arguments, "raise_exception", {"message"});
  throw TemplateError(error_text(redacted(*to_text(context.fuel, needed(message, "raise_exception")))));
}

Value strftime_now(Context& context, const Arguments& arguments) {
  const auto [format] = bind<1>(arguments, "strftime_now", {"format"});
  const Text& text = text_argument(format, "strftime_now");
  const time_t now = context.now != 0 ? static_cast<time_t>(context.now) : std::time(nullptr);
  tm local{};
  localtime_r(&now, &local);
  if (text.bytes.empty())
    return text_value("");
  char buffer[1024];
  const size_t size = std::strftime(buffer, sizeof buffer, text.bytes.c_str(), &local);
  if (size == 0)
    throw Failure("strftime_now() gets a format that makes no text or too long a one");
  return text_value({buffer, size}, text.is_trusted());
}

Value range(Context& context, const Arguments& arguments) {
  const auto [first, second, third] = bind<3>(arguments, "range", {"start", "stop", "step"});
  const int64_t begin = second ? to_index(*first, "range()'s argument") : 0;
  const int64_t end = to_index(second ? *second : needed(first, "range"), "range()'s argument");
  const int64_t step = integer_argument(third, "range", 1);
  if (step == 0)
    throw Failure("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange)
      throw Failure("Range too big. The sandbox blocks ranges larger than 100000.");
    context.fuel.spend();
    items.push_back(integer(i));
    if (__builtin_add_overflow(i, step, &i))
      break;
  }
  return sequence(context.fuel, SequenceKind::range, std::move(items));
}

/// dict(pairs or mapping, name=value …)
Dict collect(Context& context, const Arguments& arguments, std::string_view function) {
  if (arguments.positional.size() > 1)
    throw Failure(std::string(function) + "() gets too many arguments");
  const Value* source = arguments.positional.empty() ? nullptr : arguments.positional.data();
  Dict result;
  if (source && source->dict()) {
    for (const auto& [key, value] : source->dict()->entries())
      result.set(context.fuel, key, value);
  } else if (source) {
    for (const Value& pair : items_of(context.fuel, *source)) {
      const std::vector<Value> parts = items_of(context.fuel, pair);
      if (parts.size() != 2)
        throw Failure(std::string(function) + "() needs pairs");
      result.set(context.fuel, parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named)
    result.set(context.fuel, text_value(name), value);
  return result;
}

Value make_dict(Context& context, const Arguments& arguments) {
  return dict(context.fuel, collect(context, arguments, "dict"));
}

Value make_namespace(Context& context, const Arguments& arguments) {
  Namespace& made = context.namespaces.emplace_back();
  const Dict collected = collect(context, arguments, "namespace");
  for (const auto& [key, value] : collected.entries())
    if (const Text* name = key.text())
      made.members.insert_or_assign(name->bytes, value);
  return {&made};
}

constexpr Function kFunctions[] = {
    {"dict", make_dict}, {"namespace", make_namespace},  {"raise_exception", raise_exception},
    {"range", range},    {"strftime_now", strftime_now},
};

} // namespace

std::span<const Function> functions() {
  return kFunctions;
}

} // namespace millrace::jinja
