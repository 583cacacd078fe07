#pragma once

// A reader of Prometheus' text format 0.0.4 that is stricter than the format: one HELP and one TYPE before
// the samples of a family, no series twice, no label twice, buckets that only grow and end in +Inf equal to
// the count.

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::test {

class Exposition {
public:
  explicit Exposition(std::string_view text) {
    if (text.empty() || text.back() != '\n')
      faults_.push_back("the last line does not end");
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    check_histograms();
  }

  const std::vector<std::string>& faults() const { return faults_; }
  /// name, or name{label="value",…} with the labels in order of the alphabet and without model_name; NaN if
  /// absent.
  double value(const std::string& series) const {
    const auto found = series_.find(series);
    return found == series_.end() ? std::nan("") : found->second;
  }
  /// Of each family.
  const std::map<std::string, std::string>& types() const { return types_; }

private:
  using Labels = std::map<std::string, std::string>;

  void fault(std::string_view what, std::string_view line) {
    faults_.push_back(std::string(what) + ": " + std::string(line));
  }

  static bool is_name(std::string_view name, bool colons) {
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])))
      return false;
    for (const char c : name)
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && !(colons && c == ':'))
        return false;
    return true;
  }

  void line(std::string_view text) {
    if (text.starts_with("# HELP ") || text.starts_with("# TYPE "))
      return header(text);
    if (text.empty() || text[0] == '#')
      return;
    sample(text);
  }

  void header(std::string_view text) {
    const bool help = text[2] == 'H';
    const std::string_view rest = text.substr(7);
    const size_t space = rest.find(' ');
    const std::string name(rest.substr(0, space));
    if (!is_name(name, true) || space == rest.npos || space + 1 == rest.size())
      return fault("no name or no text", text);
    auto& seen = help ? helps_ : types_;
    if (!seen.emplace(name, rest.substr(space + 1)).second)
      fault("told twice", text);
    if (!help && !std::set<std::string>{"counter", "gauge", "histogram"}.contains(types_[name]))
      fault("unknown type", text);
    family_ = name;
  }

  void sample(std::string_view text) {
    size_t at = text.find_first_of("{ ");
    if (at == text.npos || !is_name(text.substr(0, at), true))
      return fault("no name", text);
    const std::string name(text.substr(0, at));
    Labels labels;
    if (text[at] == '{' && !read_labels(text, at, labels))
      return fault("labels", text);
    if (at >= text.size() || text[at] != ' ')
      return fault("no space before the value", text);
    const std::string number(text.substr(at + 1));
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0')
      return fault("not a number", text);
    check_family(name, value, text);
    labels.erase("model_name");
    if (!series_.emplace(key(name, labels), value).second)
      fault("a series twice", text);
    if (types_[family_] == "histogram" && name == family_ + "_bucket") {
      const std::string le = labels["le"];
      labels.erase("le");
      buckets_[key(family_, labels)].emplace_back(le, value);
    }
  }

  void check_family(const std::string& name, double value, std::string_view text) {
    const std::string& type = types_[family_];
    const bool ours = type == "histogram" ? name == family_ + "_bucket" || name == family_ + "_sum" ||
                                                name == family_ + "_count"
                                          : name == family_;
    if (!ours || !helps_.contains(family_))
      fault("not of the family above", text);
    if (type == "counter" && !(name.ends_with("_total") && value >= 0))
      fault("no counter's name or value", text);
  }

  static bool read_labels(std::string_view text, size_t& at, Labels& labels) {
    ++at;
    while (at < text.size() && text[at] != '}') {
      const size_t equals = text.find('=', at);
      if (equals == text.npos || equals + 1 >= text.size() || text[equals + 1] != '"')
        return false;
      const std::string name(text.substr(at, equals - at));
      std::string value;
      for (at = equals + 2; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] == '\\' &&
            (++at == text.size() || std::string_view("\\\"n").find(text[at]) == std::string_view::npos))
          return false;
        value += text[at];
      }
      if (++at >= text.size() || !is_name(name, false) || !labels.emplace(name, value).second)
        return false;
      if (text[at] == ',')
        ++at;
    }
    return at++ < text.size();
  }

  static std::string key(const std::string& name, const Labels& labels) {
    std::string text;
    for (const auto& [label, value] : labels)
      text += (text.empty() ? "" : ",") + label + "=\"" + value + '"';
    return text.empty() ? name : name + '{' + text + '}';
  }

  void check_histograms() {
    for (const auto& [series, buckets] : buckets_) {
      double bound = -HUGE_VAL, count = 0;
      for (const auto& [le, value] : buckets) {
        const double next = std::strtod(le.c_str(), nullptr); // reads +Inf, too
        if (next <= bound || value < count)
          faults_.push_back("buckets do not grow: " + series);
        bound = next;
        count = value;
      }
      const size_t brace = std::min(series.find('{'), series.size());
      if (bound != HUGE_VAL || count != value(series.substr(0, brace) + "_count" + series.substr(brace)))
        faults_.push_back("the last bucket is not +Inf with all: " + series);
    }
  }

  std::vector<std::string> faults_;
  std::map<std::string, std::string> helps_, types_;
  std::map<std::string, double> series_;
  std::map<std::string, std::vector<std::pair<std::string, double>>> buckets_;
  std::string family_;
};

} // namespace millrace::test
