#include "model/text/chat/methods.hpp"

#include "model/text/chat/arguments.hpp"
#include "model/text/chat/characters.hpp"
#include "model/text/chat/format.hpp"
#include "model/text/chat/operators.hpp"
#include "model/text/chat/printing.hpp"

#include <set>

namespace millrace::jinja {
namespace {

using Method = Value (*)(Fuel&, const Value&, const Arguments&);
constexpr size_t kNowhere = std::string_view::npos;

/// Applies a function of bytes to each stretch of one origin.
template <class F> TextPtr map_stretches(Fuel& fuel, const Text& text, F mapped) {
  fuel.spend_scan(text.bytes.size());
  TextBuilder out;
  for_each_stretch(text, [&](std::string_view bytes, bool trusted) { out.append(mapped(bytes), trusted); });
  return out.finish();
}

std::set<std::string_view> characters_of(std::string_view text) {
  std::set<std::string_view> characters;
  for (size_t i = 0; i < text.size();) {
    const size_t size = character_size(text.substr(i));
    characters.insert(text.substr(i, size));
    i += size;
  }
  return characters;
}

} // namespace

TextPtr strip(Fuel& fuel, const TextPtr& text, const Value* characters, bool left, bool right) {
  const std::string_view bytes = text->bytes;
  fuel.spend_scan(bytes.size());
  size_t begin = 0, end = bytes.size();
  if (!characters || characters->is_none()) {
    begin = left ? leading_space(bytes) : 0;
    end -= right ? trailing_space(bytes.substr(begin)) : 0;
    return slice(text, begin, end);
  }
  const Text& chosen = text_argument(characters, "strip");
  fuel.spend(chosen.bytes.size());
  const std::set<std::string_view> set = characters_of(chosen.bytes);
  while (left && begin < end && set.contains(bytes.substr(begin, character_size(bytes.substr(begin)))))
    begin += character_size(bytes.substr(begin));
  while (right && begin < end) {
    const size_t size = last_character_size(bytes.substr(begin, end - begin));
    if (!set.contains(bytes.substr(end - size, size)))
      break;
    end -= size;
  }
  return slice(text, begin, end);
}

TextPtr replace(Fuel& fuel, const Text& text, const Text& old, const Text& with, int64_t count) {
  const std::string_view bytes = text.bytes;
  TextBuilder out;
  size_t done = 0, at = 0;
  for (; count != 0; --count) {
    const size_t found = find_text(fuel, bytes, old.bytes, at);
    if (found == kNowhere)
      break;
    fuel.spend();
    fuel.spend_bytes(with.bytes.size());
    out.append(text, done, found);
    out.append(with);
    fuel.check_size(out.size());
    done = found + old.bytes.size();
    // An empty text is found before each character and at the end.
    at = old.bytes.empty() ? (found < bytes.size() ? found + character_size(bytes.substr(found)) : kNowhere)
                           : done;
    if (at == kNowhere)
      break;
  }
  fuel.spend_bytes(bytes.size() - done);
  out.append(text, done, bytes.size());
  return out.finish();
}

TextPtr upper(Fuel& fuel, const Text& text) {
  return map_stretches(fuel, text, to_upper);
}

TextPtr lower(Fuel& fuel, const Text& text) {
  return map_stretches(fuel, text, to_lower);
}

TextPtr capitalize(Fuel& fuel, const Text& text) {
  return map_stretches(fuel, text, [first = true](std::string_view bytes) mutable {
    const size_t size = first ? character_size(bytes) : 0;
    first = false;
    return to_upper(bytes.substr(0, size)) + to_lower(bytes.substr(size));
  });
}

TextPtr escape(Fuel& fuel, const Text& text) {
  if (text.markup)
    return std::make_shared<const Text>(text);
  TextBuilder out;
  for_each_stretch(text, [&](std::string_view bytes, bool trusted) {
    std::string escaped;
    for (const char c : bytes) {
      switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '\'': escaped += "&#39;"; break;
      case '"': escaped += "&#34;"; break;
      default: escaped += c;
      }
    }
    fuel.spend_bytes(escaped.size());
    out.append(escaped, trusted);
  });
  fuel.check_size(out.size());
  return out.finish(true);
}

std::vector<Line> lines_of(Fuel& fuel, std::string_view text) {
  fuel.spend_scan(text.size());
  std::vector<Line> lines;
  const auto is_break = [](char32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    size_t size = character_size(text.substr(i));
    if (!is_break(decode_character(text.substr(i, size)))) {
      i += size;
      continue;
    }
    if (text.substr(i, 2) == "\r\n")
      size = 2;
    fuel.spend();
    lines.push_back({begin, i, i + size});
    begin = i += size;
  }
  if (begin < text.size())
    lines.push_back({begin, text.size(), text.size()});
  return lines;
}

namespace {

const TextPtr& self_text(const Value& self) {
  return self.get<TextPtr>();
}

template <bool left, bool right>
Value strip_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  const auto [characters] = bind<1>(arguments, "strip", {"chars"});
  return text_value(strip(fuel, self_text(self), characters, left, right));
}

template <TextPtr (*mapped)(Fuel&, const Text&)>
Value mapping_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  bind<0>(arguments, "a method", {});
  return text_value(mapped(fuel, *self.text()));
}

TextPtr title(Fuel& fuel, const Text& text) {
  return map_stretches(fuel, text, [inside = false](std::string_view bytes) mutable {
    std::string result;
    for (size_t i = 0; i < bytes.size();) {
      const std::string_view character = bytes.substr(i, character_size(bytes.substr(i)));
      result += inside ? to_lower(character) : to_upper(character);
      inside = is_letter(decode_character(character));
      i += character.size();
    }
    return result;
  });
}

Value replace_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  const auto [old, with, count] = bind<3>(arguments, "replace", {"old", "new", "count"});
  return text_value(replace(fuel, *self.text(), text_argument(old, "replace"), text_argument(with, "replace"),
                            integer_argument(count, "replace", -1)));
}

/// Collects the parts of a text that is split; the count of cuts may be limited.
class Splitter {
public:
  Splitter(Fuel& fuel, const TextPtr& text) : fuel_(fuel), text_(text) {}

  void add(size_t begin, size_t end) {
    fuel_.spend();
    fuel_.spend_bytes(end - begin);
    parts_.push_back(text_value(slice(text_, begin, end)));
  }
  size_t cuts() const { return parts_.size(); }
  Value finish(bool reversed) {
    if (reversed)
      std::ranges::reverse(parts_);
    return sequence(fuel_, SequenceKind::list, std::move(parts_));
  }

private:
  Fuel& fuel_;
  const TextPtr& text_;
  std::vector<Value> parts_;
};

Value split_at_space(Fuel& fuel, const TextPtr& text, size_t max_cuts) {
  const std::string_view bytes = text->bytes;
  fuel.spend_scan(bytes.size());
  Splitter parts(fuel, text);
  for (size_t i = leading_space(bytes); i < bytes.size(); i += leading_space(bytes.substr(i))) {
    size_t end = i;
    if (parts.cuts() == max_cuts)
      end = bytes.size();
    else
      while (end < bytes.size() && !is_space(decode_character(bytes.substr(end))))
        end += character_size(bytes.substr(end));
    parts.add(i, end);
    i = end;
  }
  return parts.finish(false);
}

Value rsplit_at_space(Fuel& fuel, const TextPtr& text, size_t max_cuts) {
  const std::string_view bytes = text->bytes;
  fuel.spend_scan(bytes.size());
  Splitter parts(fuel, text);
  for (size_t end = bytes.size(); (end -= trailing_space(bytes.substr(0, end))) > 0;) {
    size_t begin = end;
    if (parts.cuts() == max_cuts) {
      begin = 0;
    } else {
      while (begin > 0) {
        const size_t size = last_character_size(bytes.substr(0, begin));
        if (is_space(decode_character(bytes.substr(begin - size))))
          break;
        begin -= size;
      }
    }
    parts.add(begin, end);
    if (parts.cuts() > max_cuts)
      break;
    end = begin;
  }
  return parts.finish(true);
}

Value split_at(Fuel& fuel, const TextPtr& text, std::string_view separator, size_t max_cuts) {
  Splitter parts(fuel, text);
  size_t begin = 0;
  while (parts.cuts() < max_cuts) {
    const size_t found = find_text(fuel, text->bytes, separator, begin);
    if (found == kNowhere)
      break;
    parts.add(begin, found);
    begin = found + separator.size();
  }
  parts.add(begin, text->bytes.size());
  return parts.finish(false);
}

// Searching backwards compares at each position, so the separator's length counts.
size_t find_last(Fuel& fuel, std::string_view text, std::string_view part) {
  const size_t found = text.rfind(part);
  const size_t walked = text.size() - (found == kNowhere ? 0 : found);
  fuel.spend_bytes(walked);
  fuel.spend(walked / 64 * (part.size() / 64));
  return found;
}

Value rsplit_at(Fuel& fuel, const TextPtr& text, std::string_view separator, size_t max_cuts) {
  const std::string_view bytes = text->bytes;
  Splitter parts(fuel, text);
  size_t end = bytes.size();
  while (parts.cuts() < max_cuts) {
    const size_t found = find_last(fuel, bytes.substr(0, end), separator);
    if (found == kNowhere)
      break;
    parts.add(found + separator.size(), end);
    end = found;
  }
  parts.add(0, end);
  return parts.finish(true);
}

template <bool from_right> Value split_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  const auto [separator, max_split] = bind<2>(arguments, "split", {"sep", "maxsplit"});
  const int64_t limit = integer_argument(max_split, "split", -1);
  const size_t max_cuts = limit < 0 ? SIZE_MAX : static_cast<size_t>(limit);
  if (!separator || separator->is_none())
    return from_right ? rsplit_at_space(fuel, self_text(self), max_cuts)
                      : split_at_space(fuel, self_text(self), max_cuts);
  const Text& at = text_argument(separator, "split");
  if (at.bytes.empty())
    throw Failure("empty separator");
  return from_right ? rsplit_at(fuel, self_text(self), at.bytes, max_cuts)
                    : split_at(fuel, self_text(self), at.bytes, max_cuts);
}

Value splitlines_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  const auto [keep_ends] = bind<1>(arguments, "splitlines", {"keepends"});
  std::vector<Value> lines;
  for (const Line& line : lines_of(fuel, self.text()->bytes))
    lines.push_back(
        text_value(slice(self_text(self), line.begin, flag_argument(keep_ends) ? line.next : line.end)));
  return sequence(fuel, SequenceKind::list, std::move(lines));
}

template <bool at_end> Value has_affix_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  const std::string_view name = at_end ? "endswith" : "startswith";
  const auto [affix] = bind<1>(arguments, name, {"prefix"});
  const auto matches = [&](const Value& candidate) {
    const std::string_view part = text_argument(&candidate, name).bytes;
    fuel.spend();
    fuel.spend_bytes(std::min(part.size(), self.text()->bytes.size()));
    return at_end ? self.text()->bytes.ends_with(part) : self.text()->bytes.starts_with(part);
  };
  const Sequence* several = needed(affix, name).sequence();
  if (several && several->kind == SequenceKind::tuple)
    return boolean(std::ranges::any_of(several->items, matches));
  return boolean(matches(*affix));
}

template <bool at_end> Value remove_affix_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  const auto [affix] = bind<1>(arguments, "removeprefix", {"prefix"});
  const std::string_view part = text_argument(affix, "removeprefix").bytes;
  const std::string& bytes = self.text()->bytes;
  fuel.spend_bytes(bytes.size());
  if (at_end)
    return text_value(slice(self_text(self), 0, bytes.size() - (bytes.ends_with(part) ? part.size() : 0)));
  return text_value(slice(self_text(self), bytes.starts_with(part) ? part.size() : 0, bytes.size()));
}

Value join_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  const auto [parts] = bind<1>(arguments, "join", {"iterable"});
  TextBuilder out;
  for (bool first = true; const Value& part : items_of(fuel, needed(parts, "join"))) {
    if (!first)
      out.append(*self.text());
    out.append(text_argument(&part, "join"));
    fuel.spend_bytes(self.text()->bytes.size() + part.text()->bytes.size());
    fuel.check_size(out.size());
    first = false;
  }
  return text_value(out.finish());
}

template <bool last, bool must> Value find_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  const auto [part] = bind<1>(arguments, "find", {"sub"});
  const std::string_view bytes = self.text()->bytes, searched = text_argument(part, "find").bytes;
  const size_t found = last ? find_last(fuel, bytes, searched) : find_text(fuel, bytes, searched);
  if (found == kNowhere && must)
    throw Failure("substring not found");
  if (found == kNowhere)
    return integer(-1);
  fuel.spend_scan(found);
  return integer(static_cast<int64_t>(count_characters(bytes.substr(0, found))));
}

Value count_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  const auto [part] = bind<1>(arguments, "count", {"sub"});
  const std::string_view bytes = self.text()->bytes, searched = text_argument(part, "count").bytes;
  fuel.spend_scan(bytes.size());
  if (searched.empty())
    return integer(static_cast<int64_t>(count_characters(bytes)) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = find_text(fuel, bytes, searched, at)) != kNowhere; at += searched.size()) {
    fuel.spend();
    ++count;
  }
  return integer(count);
}

template <bool (*predicate)(char32_t)>
Value all_characters_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  bind<0>(arguments, "a method", {});
  const std::string_view bytes = self.text()->bytes;
  fuel.spend_scan(bytes.size());
  for (size_t i = 0; i < bytes.size(); i += character_size(bytes.substr(i)))
    if (!predicate(decode_character(bytes.substr(i))))
      return boolean(false);
  return boolean(!bytes.empty());
}

bool is_alphanumeric(char32_t c) {
  return is_letter(c) || is_digit(c);
}

// Of the characters that have a case, all have this one, and there is one.
template <bool (*wanted)(char32_t), bool (*unwanted)(char32_t)>
Value has_case_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  bind<0>(arguments, "a method", {});
  const std::string_view bytes = self.text()->bytes;
  fuel.spend_scan(bytes.size());
  bool has_any = false;
  for (size_t i = 0; i < bytes.size(); i += character_size(bytes.substr(i))) {
    const char32_t c = decode_character(bytes.substr(i));
    if (unwanted(c))
      return boolean(false);
    has_any = has_any || wanted(c);
  }
  return boolean(has_any);
}

Value format_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  return text_value(brace_format(fuel, *self.text(), arguments));
}

Value index_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  const auto [item] = bind<1>(arguments, "index", {"value"});
  const std::vector<Value>& items = self.sequence()->items;
  for (size_t i = 0; i < items.size(); ++i)
    if (equals(fuel, items[i], needed(item, "index")))
      return integer(static_cast<int64_t>(i));
  throw Failure("the value is not in the list");
}

Value count_items_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  const auto [item] = bind<1>(arguments, "count", {"value"});
  const Value& wanted = needed(item, "count");
  return integer(std::ranges::count_if(
      self.sequence()->items, [&](const Value& candidate) { return equals(fuel, candidate, wanted); }));
}

template <SequenceKind kind> Value view_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  bind<0>(arguments, "a method", {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->entries()) {
    if (kind == SequenceKind::items)
      items.push_back(sequence(fuel, SequenceKind::tuple, {key, value}));
    else
      items.push_back(kind == SequenceKind::keys ? key : value);
  }
  return sequence(fuel, kind, std::move(items));
}

Value get_method(Fuel& fuel, const Value& self, const Arguments& arguments) {
  const auto [key, otherwise] = bind<2>(arguments, "get", {"key", "default"});
  if (const Value* found = self.dict()->find(fuel, needed(key, "get")))
    return *found;
  return otherwise ? *otherwise : none();
}

Value copy_method(Fuel&, const Value& self, const Arguments& arguments) {
  bind<0>(arguments, "copy", {});
  return self;
}

Value cycle_method(Fuel&, const Value& self, const Arguments& arguments) {
  const Loop& loop = *self.get<std::shared_ptr<const Loop>>();
  if (arguments.positional.empty())
    throw Failure("no items for cycling given");
  return arguments.positional[loop.index % arguments.positional.size()];
}

struct NamedMethod {
  std::string_view name;
  Method method; // null: it would change its object
};

constexpr NamedMethod kTextMethods[] = {
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines_method},
    {"startswith", has_affix_method<false>},
    {"endswith", has_affix_method<true>},
    {"removeprefix", remove_affix_method<false>},
    {"removesuffix", remove_affix_method<true>},
    {"replace", replace_method},
    {"upper", mapping_method<upper>},
    {"lower", mapping_method<lower>},
    {"title", mapping_method<title>},
    {"capitalize", mapping_method<capitalize>},
    {"join", join_method},
    {"find", find_method<false, false>},
    {"rfind", find_method<true, false>},
    {"index", find_method<false, true>},
    {"rindex", find_method<true, true>},
    {"count", count_method},
    {"isspace", all_characters_method<is_space>},
    {"isdigit", all_characters_method<is_digit>},
    {"isalpha", all_characters_method<is_letter>},
    {"isalnum", all_characters_method<is_alphanumeric>},
    {"isupper", has_case_method<is_upper, is_lower>},
    {"islower", has_case_method<is_lower, is_upper>},
    {"format", format_method},
};
constexpr NamedMethod kListMethods[] = {
    {"index", index_method}, {"count", count_items_method},
    {"copy", copy_method},   {"append", nullptr},
    {"extend", nullptr},     {"insert", nullptr},
    {"pop", nullptr},        {"remove", nullptr},
    {"reverse", nullptr},    {"sort", nullptr},
    {"clear", nullptr},
};
constexpr NamedMethod kTupleMethods[] = {{"index", index_method}, {"count", count_items_method}};
constexpr NamedMethod kDictMethods[] = {
    {"items", view_method<SequenceKind::items>},
    {"keys", view_method<SequenceKind::keys>},
    {"values", view_method<SequenceKind::values>},
    {"get", get_method},
    {"copy", copy_method},
    {"clear", nullptr},
    {"pop", nullptr},
    {"popitem", nullptr},
    {"setdefault", nullptr},
    {"update", nullptr},
};
constexpr NamedMethod kLoopMethods[] = {{"cycle", cycle_method}};

template <size_t N>
std::optional<Value> find_method_of(const NamedMethod (&methods)[N], const Value& object,
                                    std::string_view name) {
  const auto* found = std::ranges::find(methods, name, &NamedMethod::name);
  if (found == std::end(methods))
    return std::nullopt;
  if (!found->method)
    return undefined("access to attribute '" + std::string(name) + "' of '" + std::string(type_name(object)) +
                     "' object is unsafe");
  return Value{std::make_shared<const BoundMethod>(BoundMethod{object, found->method})};
}

std::optional<Value> loop_member(const Value& object, std::string_view name) {
  const Loop& loop = *object.get<std::shared_ptr<const Loop>>();
  const std::vector<Value>& items = loop.items->items;
  const auto index = static_cast<int64_t>(loop.index), size = static_cast<int64_t>(items.size());
  if (name == "index")
    return integer(index + 1);
  if (name == "index0")
    return integer(index);
  if (name == "revindex")
    return integer(size - index);
  if (name == "revindex0")
    return integer(size - index - 1);
  if (name == "first")
    return boolean(index == 0);
  if (name == "last")
    return boolean(index + 1 == size);
  if (name == "length")
    return integer(size);
  if (name == "depth" || name == "depth0")
    return integer(name == "depth");
  if (name == "previtem")
    return index > 0 ? items[loop.index - 1] : undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < size ? items[loop.index + 1] : undefined("there is no next item");
  return find_method_of(kLoopMethods, object, name);
}

} // namespace

std::optional<Value> member(Fuel& fuel, const Value& object, std::string_view name) {
  fuel.spend();
  if (object.text())
    return find_method_of(kTextMethods, object, name);
  if (const Sequence* items = object.sequence()) {
    if (items->kind == SequenceKind::list)
      return find_method_of(kListMethods, object, name);
    return items->has_index() ? find_method_of(kTupleMethods, object, name) : std::nullopt;
  }
  if (object.dict())
    return find_method_of(kDictMethods, object, name);
  if (object.is<std::shared_ptr<const Loop>>())
    return loop_member(object, name);
  if (object.is<Namespace*>()) {
    const auto& members = object.get<Namespace*>()->members;
    const auto found = members.find(name);
    return found == members.end() ? std::nullopt : std::optional(found->second);
  }
  return std::nullopt;
}

} // namespace millrace::jinja
