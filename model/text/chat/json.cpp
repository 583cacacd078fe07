#include "model/text/chat/json.hpp"

#include "model/text/chat/characters.hpp"
#include "model/text/chat/printing.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace millrace::jinja {
namespace {

constexpr size_t kMaxJsonDepth = 64;

/// Builds a Value from the parser's events; the parser itself does not recurse either.
class JsonReader {
public:
  explicit JsonReader(Fuel& fuel) : fuel_(fuel) {}

  bool null() { return add(none()); }
  bool boolean(bool value) { return add(jinja::boolean(value)); }
  bool number_integer(int64_t value) { return add(integer(value, true)); }
  bool number_unsigned(uint64_t value) {
    return value > INT64_MAX ? refuse("a number beyond 64 bits")
                             : number_integer(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string& digits) {
    if (digits.find_first_of(".eE") == std::string::npos)
      return refuse("a number beyond 64 bits");
    return add(floating(value, true));
  }
  bool string(std::string& value) {
    fuel_.spend_bytes(value.size());
    return add(text_value(value, false));
  }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(size_t) { return open(true); }
  bool start_array(size_t) { return open(false); }
  bool key(std::string& key) {
    open_.back().key = text_value(key, false);
    return true;
  }
  bool end_object() {
    Dict entries = std::move(open_.back().dict);
    open_.pop_back();
    return add(dict(fuel_, std::move(entries)));
  }
  bool end_array() {
    std::vector<Value> items = std::move(open_.back().items);
    open_.pop_back();
    return add(sequence(fuel_, SequenceKind::list, std::move(items)));
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) { return false; }

  const std::optional<Value>& result() const { return result_; }
  std::string_view problem() const { return problem_; }

private:
  struct Open {
    bool is_object;
    Value key;
    Dict dict;
    std::vector<Value> items;
  };
  bool refuse(std::string_view problem) {
    problem_ = problem;
    return false;
  }
  bool open(bool is_object) {
    if (open_.size() >= kMaxJsonDepth)
      return refuse("more than 64 levels");
    open_.push_back({is_object, {}, {}, {}});
    return true;
  }
  bool add(Value value) {
    fuel_.spend();
    if (open_.empty())
      result_ = std::move(value);
    else if (open_.back().is_object)
      open_.back().dict.set(fuel_, open_.back().key, std::move(value));
    else
      open_.back().items.push_back(std::move(value));
    return true;
  }

  Fuel& fuel_;
  std::vector<Open> open_;
  std::optional<Value> result_;
  std::string_view problem_;
};

class JsonWriter {
public:
  JsonWriter(Fuel& fuel, const JsonStyle& style) : fuel_(fuel), style_(style) {}

  void write(const Value& value) {
    fuel_.spend();
    if (const Text* text = value.text())
      return write_string(*text);
    if (const Sequence* items = value.sequence();
        items && (items->kind == SequenceKind::list || items->kind == SequenceKind::tuple))
      return write_list(*items);
    if (const Dict* entries = value.dict())
      return write_dict(*entries);
    if (!write_scalar(value))
      throw Failure("Object of type " + std::string(type_name(value)) + " is not JSON serializable");
  }
  TextPtr finish() {
    fuel_.spend_bytes(out_.size());
    return out_.finish();
  }

private:
  bool write_scalar(const Value& value) {
    if (value.is_none())
      out_.append("null", true);
    else if (value.is<bool>())
      out_.append(value.get<bool>() ? "true" : "false", true);
    else if (value.is<Integer>())
      out_.append(*to_text(fuel_, value));
    else if (value.is<Float>())
      write_float(value.get<Float>());
    else
      return false;
    return true;
  }

  void write_float(const Float& number) {
    std::string digits = float_repr(number.value);
    if (std::isnan(number.value))
      digits = "NaN";
    else if (std::isinf(number.value))
      digits = number.value < 0 ? "-Infinity" : "Infinity";
    out_.append(digits, !number.from_input);
  }

  void write_string(const Text& text) {
    out_.append("\"", true);
    for_each_stretch(text, [&](std::string_view bytes, bool trusted) {
      std::string escaped;
      for (size_t i = 0; i < bytes.size();) {
        const size_t size = character_size(bytes.substr(i));
        escape(bytes.substr(i, size), escaped);
        i += size;
      }
      fuel_.spend_scan(escaped.size());
      out_.append(escaped, trusted);
    });
    out_.append("\"", true);
  }

  void escape(std::string_view character, std::string& out) const {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    const auto first = static_cast<unsigned char>(character[0]);
    if (const size_t i = kEscaped.find(character[0]); i != std::string_view::npos) {
      out += '\\';
      out += kLetters[i];
    } else if (first < 0x20 || (style_.ensure_ascii && first >= 0x7F)) {
      escape_units(decode_character(character), out);
    } else {
      out += character;
    }
  }

  static void escape_units(char32_t c, std::string& out) {
    char digits[16];
    if (c >= 0x10000) {
      std::snprintf(digits, sizeof digits, "\\u%04x", static_cast<unsigned>(0xD800 + ((c - 0x10000) >> 10)));
      out += digits;
      c = 0xDC00 + ((c - 0x10000) & 0x3FF);
    }
    std::snprintf(digits, sizeof digits, "\\u%04x", static_cast<unsigned>(c));
    out += digits;
  }

  void write_list(const Sequence& items) {
    out_.append("[", true);
    ++level_;
    for (bool first = true; const Value& item : items.items) {
      separate(first);
      write(item);
      first = false;
    }
    close(items.items.empty(), "]");
  }

  void write_dict(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries())
      entries.push_back(&entry);
    if (style_.sort_keys)
      sort_by_key(entries);
    out_.append("{", true);
    ++level_;
    for (bool first = true; const auto* entry : entries) {
      separate(first);
      write_key(entry->first);
      if (style_.key_separator)
        out_.append(*style_.key_separator);
      else
        out_.append(": ", true);
      write(entry->second);
      first = false;
    }
    close(entries.empty(), "}");
  }

  static void sort_by_key(std::vector<const std::pair<Value, Value>*>& entries) {
    for (const auto* entry : entries)
      if (!entry->first.text())
        throw Failure("only keys that are texts can be sorted");
    std::ranges::stable_sort(entries, {},
                             [](const auto* e) -> const std::string& { return e->first.text()->bytes; });
  }

  void write_key(const Value& key) {
    if (const Text* text = key.text())
      return write_string(*text);
    out_.append("\"", true);
    if (!write_scalar(key))
      throw Failure("keys must be str, int, float, bool or None, not " + std::string(type_name(key)));
    out_.append("\"", true);
  }

  void separate(bool first) {
    if (!first && style_.item_separator)
      out_.append(*style_.item_separator);
    else if (!first)
      out_.append(style_.indent ? "," : ", ", true);
    start_line();
  }

  void close(bool empty, std::string_view bracket) {
    --level_;
    if (!empty)
      start_line();
    out_.append(bracket, true);
  }

  void start_line() {
    if (!style_.indent)
      return;
    out_.append("\n", true);
    fuel_.spend_bytes(static_cast<size_t>(level_) * style_.indent->bytes.size());
    for (int i = 0; i < level_; ++i)
      out_.append(*style_.indent);
  }

  Fuel& fuel_;
  const JsonStyle& style_;
  TextBuilder out_;
  int level_ = 0;
};

} // namespace

Value parse_json(Fuel& fuel, std::string_view text, std::string_view what) {
  fuel.spend_bytes(text.size());
  JsonReader reader(fuel);
  if (!nlohmann::json::sax_parse(text, &reader)) {
    const std::string_view problem = reader.problem();
    throw Failure(std::string(what) + (problem.empty() ? " is not valid JSON" : " has ") +
                  std::string(problem));
  }
  return *reader.result();
}

TextPtr to_json(Fuel& fuel, const Value& value, const JsonStyle& style) {
  JsonWriter writer(fuel, style);
  writer.write(value);
  return writer.finish();
}

} // namespace millrace::jinja
