#include "model/text/chat/filters.hpp"

#include "model/text/chat/arguments.hpp"
#include "model/text/chat/characters.hpp"
#include "model/text/chat/format.hpp"
#include "model/text/chat/json.hpp"
#include "model/text/chat/methods.hpp"
#include "model/text/chat/operators.hpp"
#include "model/text/chat/predicates.hpp"
#include "model/text/chat/printing.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>

namespace millrace::jinja {
namespace {

// Texts

Value trim(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [characters] = bind<1>(arguments, "trim", {"chars"});
  return text_value(strip(fuel, to_text(fuel, value), characters, true, true));
}

template <TextPtr (*mapped)(Fuel&, const Text&)>
Value mapping_filter(Fuel& fuel, const Value& value, const Arguments& arguments) {
  bind<0>(arguments, "a filter", {});
  return text_value(mapped(fuel, *to_text(fuel, value)));
}

// Unlike the method of this name: words begin behind blanks, hyphens and opening brackets only.
TextPtr title(Fuel& fuel, const Text& text) {
  fuel.spend(text.bytes.size() / 8);
  TextBuilder out;
  bool inside = false;
  for_each_stretch(text, [&](std::string_view bytes, bool trusted) {
    std::string titled;
    for (size_t i = 0; i < bytes.size();) {
      const std::string_view character = bytes.substr(i, character_size(bytes.substr(i)));
      titled += inside ? to_lower(character) : to_upper(character);
      inside = !is_space(decode_character(character)) &&
               std::string_view("-({[<").find(character) == std::string_view::npos;
      i += character.size();
    }
    out.append(titled, trusted);
  });
  return out.finish();
}

Value string(Fuel& fuel, const Value& value, const Arguments& arguments) {
  bind<0>(arguments, "string", {});
  return text_value(to_text(fuel, value));
}

Value replace_filter(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [old, with, count] = bind<3>(arguments, "replace", {"old", "new", "count"});
  const int64_t limit = count && !count->is_none() ? to_index(*count, "replace()'s count") : -1;
  return text_value(replace(fuel, *to_text(fuel, value), *to_text(fuel, needed(old, "replace")),
                            *to_text(fuel, needed(with, "replace")), limit));
}

Value format(Fuel& fuel, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    throw Failure("format takes arguments by position or by name, not both");
  Value values = sequence(fuel, SequenceKind::tuple, arguments.positional);
  if (!arguments.named.empty()) {
    Dict named;
    for (const auto& [name, argument] : arguments.named)
      named.set(name, argument);
    values = dict(fuel, std::move(named));
  }
  return text_value(percent_format(fuel, *to_text(fuel, value), values));
}

Value indent(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [width, first, blank] = bind<3>(arguments, "indent", {"width", "first", "blank"});
  TextPtr indention;
  if (width && width->text()) {
    indention = width->get<TextPtr>();
  } else {
    const int64_t count = std::max<int64_t>(0, integer_argument(width, "indent", 4));
    fuel.spend_bytes(static_cast<size_t>(count));
    indention = make_text(std::string(static_cast<size_t>(count), ' '), true);
  }
  const Value with_break =
      binary(fuel, BinaryOperator::add, text_value(to_text(fuel, value)), text_value("\n"));
  const Text& text = *with_break.text();
  TextBuilder out;
  for (bool at_first = true; const Line& line : lines_of(fuel, text.bytes)) {
    if (!at_first)
      out.append("\n", true);
    if (at_first ? flag_argument(first) : line.begin < line.end || flag_argument(blank))
      out.append(*indention);
    out.append(text, line.begin, line.end);
    fuel.spend_bytes(indention->bytes.size() + line.end - line.begin);
    fuel.check_size(out.size());
    at_first = false;
  }
  return text_value(out.finish());
}

Value tojson(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [ensure_ascii, indent, separators, sort_keys] =
      bind<4>(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensure_ascii = flag_argument(ensure_ascii), .sort_keys = flag_argument(sort_keys)};
  TextPtr indention;
  if (indent && !indent->is_none()) {
    const int64_t count = indent->text() ? 0 : std::max<int64_t>(0, to_index(*indent, "tojson()'s indent"));
    fuel.spend_bytes(static_cast<size_t>(count));
    indention = indent->text() ? indent->get<TextPtr>()
                               : make_text(std::string(static_cast<size_t>(count), ' '), true);
    style.indent = indention.get();
  }
  if (separators && !separators->is_none()) {
    const Sequence* pair = separators->sequence();
    if (!pair || pair->items.size() != 2)
      throw Failure("tojson()'s separators must be two texts");
    style.item_separator = &text_argument(&pair->items[0], "tojson");
    style.key_separator = &text_argument(&pair->items[1], "tojson");
  }
  return text_value(to_json(fuel, value, style));
}

Value safe(Fuel& fuel, const Value& value, const Arguments& arguments) {
  bind<0>(arguments, "safe", {});
  const TextPtr text = to_text(fuel, value);
  fuel.spend_bytes(text->bytes.size());
  Text marked = *text;
  marked.markup = true;
  return text_value(std::make_shared<const Text>(std::move(marked)));
}

// Numbers

bool is_decimal_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// The digits of a number as Python's int() and float() take them: without blanks around and single
/// underscores between digits.
std::string number_text(std::string_view text) {
  text.remove_prefix(leading_space(text));
  text.remove_suffix(trailing_space(text));
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool joins = text[i] == '_' && i > 0 && i + 1 < text.size() &&
                       std::isxdigit(static_cast<unsigned char>(text[i - 1])) &&
                       std::isxdigit(static_cast<unsigned char>(text[i + 1]));
    if (!joins)
      digits += text[i];
  }
  return digits;
}

std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  std::string digits = number_text(text);
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+'))
    digits.erase(0, 1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    if ((base == 16 && letter == 'x') || (base == 8 && letter == 'o') || (base == 2 && letter == 'b'))
      digits.erase(0, 2);
  }
  if (base < 2 || base > 36 || digits.empty() || digits[0] == '-')
    return std::nullopt;
  if (negative)
    digits.insert(0, "-");
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (error == std::errc::result_out_of_range)
    throw Failure("a number beyond 64 bits");
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(value) : std::nullopt;
}

std::optional<double> parse_float(std::string_view text) {
  std::string digits = number_text(text);
  std::string lowered = to_lower(digits);
  const bool has_sign = lowered.starts_with('-') || lowered.starts_with('+');
  const std::string_view magnitude = std::string_view(lowered).substr(has_sign);
  const bool named = magnitude == "inf" || magnitude == "infinity" || magnitude == "nan";
  if (!named &&
      (magnitude.empty() || magnitude.find_first_not_of("0123456789.e+-") != std::string_view::npos ||
       !(is_digit(static_cast<unsigned char>(magnitude[0])) || magnitude[0] == '.')))
    return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(lowered.c_str(), &end);
  return end == lowered.c_str() + lowered.size() ? std::optional(value) : std::nullopt;
}

std::optional<double> to_float(Fuel& fuel, const Value& value) {
  if (const Text* text = value.text()) {
    fuel.spend_bytes(text->bytes.size());
    return parse_float(text->bytes);
  }
  return as_number(value);
}

Value int_filter(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [otherwise, base] = bind<2>(arguments, "int", {"default", "base"});
  const bool from_input = value.text() ? !value.text()->is_trusted() : is_from_input(value);
  if (const auto number = as_integer(value))
    return integer(*number, from_input);
  if (const Text* text = value.text()) {
    fuel.spend_bytes(text->bytes.size());
    if (const auto number = parse_integer(text->bytes, integer_argument(base, "int", 10)))
      return integer(*number, from_input);
  }
  const auto number = to_float(fuel, value);
  if (number && std::isinf(*number))
    throw Failure("cannot convert float infinity to integer");
  if (!number || std::isnan(*number))
    return otherwise ? *otherwise : integer(0);
  if (std::abs(*number) >= 0x1p63)
    throw Failure("a number beyond 64 bits");
  return integer(static_cast<int64_t>(*number), from_input);
}

Value float_filter(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [otherwise] = bind<1>(arguments, "float", {"default"});
  const bool from_input = value.text() ? !value.text()->is_trusted() : is_from_input(value);
  if (const auto number = to_float(fuel, value))
    return floating(*number, from_input);
  return otherwise ? *otherwise : floating(0);
}

Value absolute(Fuel& fuel, const Value& value, const Arguments& arguments) {
  bind<0>(arguments, "abs", {});
  if (!as_number(value))
    throw Failure("bad operand type for abs(): '" + std::string(type_name(value)) + "'");
  if (value.is<Float>())
    return floating(std::abs(value.get<Float>().value), is_from_input(value));
  return less(fuel, value, integer(0)) ? negate(value) : integer(*as_integer(value), is_from_input(value));
}

Value round(Fuel&, const Value& value, const Arguments& arguments) {
  const auto [precision, method] = bind<2>(arguments, "round", {"precision", "method"});
  const int64_t digits = integer_argument(precision, "round", 0);
  const std::string_view how = method ? std::string_view(text_argument(method, "round").bytes) : "common";
  const auto number = as_number(value);
  if (!number)
    throw Failure("type " + std::string(type_name(value)) + " cannot be rounded");
  if (how != "common" && how != "ceil" && how != "floor")
    throw Failure("method must be common, ceil or floor");
  if (digits < -300 || digits > 300)
    throw Failure("round() gets too large a precision");
  if (how == "common" && as_integer(value) && digits >= 0)
    return integer(*as_integer(value), is_from_input(value));
  const double scale = std::pow(10.0, static_cast<double>(digits));
  double rounded = 0;
  if (how == "common" && digits >= 0) {
    // Through decimal digits, since scaling would round twice.
    char text[700];
    std::snprintf(text, sizeof text, "%.*f", static_cast<int>(digits), *number);
    rounded = std::strtod(text, nullptr);
  } else {
    const double scaled = *number * scale;
    rounded = (how == "ceil"    ? std::ceil(scaled)
               : how == "floor" ? std::floor(scaled)
                                : std::nearbyint(scaled)) /
              scale;
  }
  return as_integer(value) && how == "common" ? integer(static_cast<int64_t>(rounded), is_from_input(value))
                                              : floating(rounded, is_from_input(value));
}

// Sequences

size_t length_of(Fuel& fuel, const Value& value) {
  if (const Text* text = value.text()) {
    fuel.spend_scan(text->bytes.size());
    return count_characters(text->bytes);
  }
  if (const Dict* entries = value.dict())
    return entries->entries().size();
  if (const Sequence* items = value.sequence(); items && items->kind != SequenceKind::generator)
    return items->items.size();
  if (value.is_undefined())
    return 0;
  throw Failure("object of type '" + std::string(type_name(value)) + "' has no len()");
}

Value length(Fuel& fuel, const Value& value, const Arguments& arguments) {
  bind<0>(arguments, "length", {});
  return integer(static_cast<int64_t>(length_of(fuel, value)));
}

Value list(Fuel& fuel, const Value& value, const Arguments& arguments) {
  bind<0>(arguments, "list", {});
  return sequence(fuel, SequenceKind::list, items_of(fuel, value));
}

Value items(Fuel& fuel, const Value& value, const Arguments& arguments) {
  bind<0>(arguments, "items", {});
  if (!value.dict() && !value.is_undefined())
    throw Failure("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  if (const Dict* entries = value.dict())
    for (const auto& [key, item] : entries->entries())
      pairs.push_back(sequence(fuel, SequenceKind::tuple, {key, item}));
  return sequence(fuel, SequenceKind::generator, std::move(pairs));
}

Value first(Fuel& fuel, const Value& value, const Arguments& arguments) {
  bind<0>(arguments, "first", {});
  const SequencePtr all = sequence_of(fuel, value);
  return all->items.empty() ? undefined("No first item, sequence was empty.") : all->items.front();
}

Value last(Fuel& fuel, const Value& value, const Arguments& arguments) {
  bind<0>(arguments, "last", {});
  const SequencePtr all = sequence_of(fuel, value);
  if (all->kind == SequenceKind::generator || value.is_undefined())
    throw Failure("'" + std::string(type_name(value)) + "' object is not reversible");
  return all->items.empty() ? undefined("No last item, sequence was empty.") : all->items.back();
}

Value reverse(Fuel& fuel, const Value& value, const Arguments& arguments) {
  bind<0>(arguments, "reverse", {});
  if (value.text())
    return slice(fuel, value, none(), none(), integer(-1));
  std::vector<Value> reversed = items_of(fuel, value);
  std::ranges::reverse(reversed);
  return sequence(fuel, SequenceKind::generator, std::move(reversed));
}

/// What `attribute='a.b.0'` means: an item of an item. Nothing given: the value itself.
class AttributePath {
public:
  AttributePath(Fuel& fuel, const Value* attribute) {
    if (!attribute || attribute->is_none())
      return;
    if (!attribute->text()) {
      parts_ = {*attribute};
      return;
    }
    const TextPtr& path = attribute->get<TextPtr>();
    fuel.spend(path->bytes.size());
    for (size_t begin = 0; begin <= path->bytes.size();) {
      const size_t end = std::min(path->bytes.find('.', begin), path->bytes.size());
      const std::string part = path->bytes.substr(begin, end - begin);
      parts_.push_back(is_decimal_digits(part) && part.size() < 19
                           ? integer(std::stoll(part))
                           : text_value(jinja::slice(path, begin, end)));
      begin = end + 1;
    }
  }

  Value of(Fuel& fuel, Value value, const Value* otherwise = nullptr) const {
    for (const Value& part : parts_) {
      fuel.spend();
      value = subscript(fuel, value, part);
      if (otherwise && !otherwise->is_none() && value.is_undefined())
        value = *otherwise;
    }
    return value;
  }

private:
  std::vector<Value> parts_;
};

Value without_case(Fuel& fuel, const Value& value) {
  return value.text() ? text_value(lower(fuel, *value.text())) : value;
}

Value join(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [separator, attribute] = bind<2>(arguments, "join", {"d", "attribute"});
  const TextPtr between = separator ? to_text(fuel, *separator) : make_text("", true);
  const AttributePath path(fuel, attribute);
  TextBuilder out;
  for (bool at_first = true; const Value& item : items_of(fuel, value)) {
    const TextPtr part = to_text(fuel, path.of(fuel, item));
    if (!at_first)
      out.append(*between);
    out.append(*part);
    fuel.spend_bytes(between->bytes.size() + part->bytes.size());
    fuel.check_size(out.size());
    at_first = false;
  }
  return text_value(out.finish());
}

/// Items with what they are sorted by: one key for each attribute of a list "a,b".
struct Keyed {
  Value item;
  std::vector<Value> keys;
};

std::vector<Value> sorted(Fuel& fuel, std::vector<Keyed> keyed, bool reversed) {
  const auto before = [&](const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < a.keys.size(); ++i)
      if (!equals(fuel, a.keys[i], b.keys[i]))
        return less(fuel, a.keys[i], b.keys[i]);
    return false;
  };
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](const Keyed& a, const Keyed& b) { return reversed ? before(b, a) : before(a, b); });
  std::vector<Value> result;
  for (Keyed& entry : keyed)
    result.push_back(std::move(entry.item));
  return result;
}

Value sort(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [reversed, case_sensitive, attribute] =
      bind<3>(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;
  if (attribute && attribute->text()) {
    const TextPtr& text = attribute->get<TextPtr>();
    for (size_t begin = 0; begin <= text->bytes.size();) {
      const size_t end = std::min(text->bytes.find(',', begin), text->bytes.size());
      const Value part = text_value(jinja::slice(text, begin, end));
      paths.emplace_back(fuel, &part);
      begin = end + 1;
    }
  } else {
    paths.emplace_back(fuel, attribute);
  }
  std::vector<Keyed> keyed;
  for (const Value& item : items_of(fuel, value)) {
    Keyed entry{item, {}};
    for (const AttributePath& path : paths) {
      const Value key = path.of(fuel, item);
      entry.keys.push_back(flag_argument(case_sensitive) ? key : without_case(fuel, key));
    }
    keyed.push_back(std::move(entry));
  }
  return sequence(fuel, SequenceKind::list, sorted(fuel, std::move(keyed), flag_argument(reversed)));
}

Value dictsort(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [case_sensitive, by, reversed] =
      bind<3>(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  const std::string_view what = by ? std::string_view(text_argument(by, "dictsort").bytes) : "key";
  if (!value.dict() || (what != "key" && what != "value"))
    throw Failure("dictsort needs a dict, by 'key' or 'value'");
  std::vector<Keyed> keyed;
  for (const auto& [key, item] : value.dict()->entries()) {
    const Value& chosen = what == "key" ? key : item;
    keyed.push_back({sequence(fuel, SequenceKind::tuple, {key, item}),
                     {flag_argument(case_sensitive) ? chosen : without_case(fuel, chosen)}});
  }
  return sequence(fuel, SequenceKind::list, sorted(fuel, std::move(keyed), flag_argument(reversed)));
}

Value unique(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [case_sensitive, attribute] = bind<2>(arguments, "unique", {"case_sensitive", "attribute"});
  const AttributePath path(fuel, attribute);
  std::set<std::string> seen;
  std::vector<Value> result;
  for (const Value& item : items_of(fuel, value)) {
    const Value key = path.of(fuel, item);
    if (seen.insert(hash_key(fuel, flag_argument(case_sensitive) ? key : without_case(fuel, key))).second)
      result.push_back(item);
  }
  return sequence(fuel, SequenceKind::generator, std::move(result));
}

template <bool largest> Value extreme(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [case_sensitive, attribute] =
      bind<2>(arguments, largest ? "max" : "min", {"case_sensitive", "attribute"});
  const AttributePath path(fuel, attribute);
  const bool exact = flag_argument(case_sensitive);
  const auto key_of = [&](const Value& item) {
    const Value key = path.of(fuel, item);
    return exact ? key : without_case(fuel, key);
  };
  const SequencePtr all = sequence_of(fuel, value);
  if (all->items.empty())
    return undefined("No aggregated item, sequence was empty.");
  Value best = all->items.front(), best_key = key_of(best);
  for (size_t i = 1; i < all->items.size(); ++i) {
    const Value key = key_of(all->items[i]);
    if (largest ? less(fuel, best_key, key) : less(fuel, key, best_key)) {
      best = all->items[i];
      best_key = key;
    }
  }
  return best;
}

Value sum(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [attribute, start] = bind<2>(arguments, "sum", {"attribute", "start"});
  const AttributePath path(fuel, attribute);
  Value total = start ? *start : integer(0);
  for (const Value& item : items_of(fuel, value))
    total = binary(fuel, BinaryOperator::add, total, path.of(fuel, item));
  return total;
}

Value map(Fuel& fuel, const Value& value, const Arguments& arguments) {
  std::vector<Value> mapped;
  if (!is_true(value)) // None, too
    return sequence(fuel, SequenceKind::generator, {});
  if (arguments.positional.empty()) {
    const auto [attribute, otherwise] = bind<2>(arguments, "map", {"attribute", "default"});
    const AttributePath path(fuel, &needed(attribute, "map"));
    for (const Value& item : items_of(fuel, value))
      mapped.push_back(path.of(fuel, item, otherwise));
  } else {
    const Filter filter = find_filter(text_argument(&arguments.positional[0], "map").bytes);
    if (!filter)
      throw Failure("map() names no filter");
    const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
    const Fuel::Nesting nesting(fuel); // map('map', 'map', …)
    for (const Value& item : items_of(fuel, value)) {
      fuel.spend(1 + rest.positional.size());
      mapped.push_back(filter(fuel, item, rest));
    }
  }
  return sequence(fuel, SequenceKind::generator, std::move(mapped));
}

template <bool wanted, bool by_attribute>
Value select(Fuel& fuel, const Value& value, const Arguments& arguments) {
  if (!is_true(value)) // None, too
    return sequence(fuel, SequenceKind::generator, {});
  size_t used = 0;
  const AttributePath path =
      by_attribute ? AttributePath(
                         fuel, &needed(arguments.positional.empty() ? nullptr : &arguments.positional[used++],
                                       "selectattr"))
                   : AttributePath(fuel, nullptr);
  Predicate predicate = [](Fuel&, const Value& item, const Arguments&) { return is_true(item); };
  if (used < arguments.positional.size())
    predicate = find_predicate(text_argument(&arguments.positional[used++], "select").bytes);
  if (!predicate)
    throw Failure("select() names no test");
  const Arguments rest{
      {arguments.positional.begin() + static_cast<std::ptrdiff_t>(used), arguments.positional.end()},
      arguments.named};
  std::vector<Value> selected;
  for (const Value& item : items_of(fuel, value)) {
    fuel.spend(1 + rest.positional.size());
    if (predicate(fuel, path.of(fuel, item), rest) == wanted)
      selected.push_back(item);
  }
  return sequence(fuel, SequenceKind::generator, std::move(selected));
}

Value otherwise_filter(Fuel&, const Value& value, const Arguments& arguments) {
  const auto [otherwise, also_false] = bind<2>(arguments, "default", {"default_value", "boolean"});
  if (!value.is_undefined() && !(flag_argument(also_false) && !is_true(value)))
    return value;
  return otherwise ? *otherwise : text_value("");
}

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

constexpr NamedFilter kFilters[] = {
    {"abs", absolute},
    {"capitalize", mapping_filter<capitalize>},
    {"count", length},
    {"d", otherwise_filter},
    {"default", otherwise_filter},
    {"dictsort", dictsort},
    {"e", mapping_filter<escape>},
    {"escape", mapping_filter<escape>},
    {"first", first},
    {"float", float_filter},
    {"format", format},
    {"indent", indent},
    {"int", int_filter},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list},
    {"lower", mapping_filter<lower>},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"replace", replace_filter},
    {"reverse", reverse},
    {"round", round},
    {"safe", safe},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"sort", sort},
    {"string", string},
    {"sum", sum},
    {"title", mapping_filter<title>},
    {"tojson", tojson},
    {"trim", trim},
    {"unique", unique},
    {"upper", mapping_filter<upper>},
};

} // namespace

Filter find_filter(std::string_view name) {
  const auto* found = std::ranges::find(kFilters, name, &NamedFilter::name);
  return found == std::end(kFilters) ? nullptr : found->filter;
}

} // namespace millrace::jinja
