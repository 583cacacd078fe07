#include "gateway/http/api/json_document.hpp"

#include <optional>
#include <set>
#include <vector>

namespace millrace::http {
namespace {

/// Builds the tree from nlohmann's parser, which keeps its own stack: no input recurses.
class Builder {
public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() { return place(Json()); }
  bool boolean(bool value) { return place(Json(value)); }
  bool number_integer(int64_t value) { return place(Json(value)); }
  bool number_unsigned(uint64_t value) { return place(Json(value)); }
  bool number_float(double value, const std::string&) { return place(Json(value)); }
  bool string(std::string& value) { return place(Json(std::move(value))); }
  bool binary(Json::binary_t&) { return false; } // not in JSON

  bool start_object(size_t) { return open(Json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    if (open_.size() == 1)
      problem_.member = name;
    if (!open_.back().keys.insert(name).second)
      return fail("is given twice, or an object in it has a member twice");
    open_.back().key = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    static constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow)
      return fail("has a number that is out of range");
    problem_.member.clear(); // where the text stops being JSON, its members mean nothing
    return fail("the body is not JSON (in UTF-8): wrong at byte " + std::to_string(position));
  }

  Json take_root() { return std::move(root_); }
  JsonProblem take_problem() { return std::move(problem_); }

private:
  struct Open {
    Json* container;
    std::string key;            // of the member to come
    std::set<std::string> keys; // ordered, since a hash of bytes that clients choose could be made to collide
  };

  bool fail(std::string message) {
    problem_.message = std::move(message);
    return false;
  }

  bool fail_by_size() {
    problem_.member.clear(); // the one that happens to be last is not to blame
    return fail("the body has too many values: at most " + std::to_string(limits_.max_values) + " are allowed");
  }

  Json* add(Json&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back().container;
    if (parent.is_array()) {
      auto& elements = parent.get_ref<Json::array_t&>();
      elements.push_back(std::move(value));
      return &elements.back();
    }
    // Past ordered_map's own insertion, which looks through all members each time: keys is faster.
    Json::object_t::Container& members = parent.get_ref<Json::object_t&>();
    members.emplace_back(std::move(open_.back().key), std::move(value));
    return &members.back().second;
  }

  bool place(Json&& value) {
    if (++values_ > limits_.max_values)
      return fail_by_size();
    add(std::move(value));
    leave_member();
    return true;
  }

  bool open(Json&& container) {
    if (++values_ > limits_.max_values)
      return fail_by_size();
    if (open_.size() == limits_.max_depth)
      return fail("is nested too deeply: at most " + std::to_string(limits_.max_depth) + " levels are allowed");
    open_.push_back({add(std::move(container)), {}, {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    leave_member();
    return true;
  }

  void leave_member() {
    if (open_.size() == 1)
      problem_.member.clear();
  }

  JsonLimits limits_;
  size_t values_ = 0;
  Json root_;
  std::vector<Open> open_;
  JsonProblem problem_;
};

} // namespace

std::variant<Json, JsonProblem> read_json(std::string_view text, const JsonLimits& limits) {
  Builder builder(limits);
  if (Json::sax_parse(text, &builder))
    return builder.take_root();
  return builder.take_problem();
}

std::string_view kind_of(const Json& value) {
  switch (value.type()) {
  case Json::value_t::null:
    return "null";
  case Json::value_t::boolean:
    return "a boolean";
  case Json::value_t::number_integer:
  case Json::value_t::number_unsigned:
    return "an integer";
  case Json::value_t::number_float:
    return "a number with a fraction or an exponent";
  case Json::value_t::string:
    return "a string";
  case Json::value_t::array:
    return "an array";
  case Json::value_t::object:
    return "an object";
  default:
    return "something else";
  }
}

std::string write_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

} // namespace millrace::http
