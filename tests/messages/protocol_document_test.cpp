// messages/PROTOCOL.md is read as data: its tables must tell each field's name, type and default as the
// structs have them.

#include "messages/codec.hpp"

#include <gtest/gtest.h>

#include <charconv>
#include <fstream>
#include <map>

namespace millrace {
namespace {

struct Row {
  std::string name, type, standard;
  bool operator==(const Row&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Row& row) {
  return out << row.name << " | " << row.type << " | " << row.standard;
}

std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> cells;
  for (size_t begin = 1; begin < line.size();) {
    const size_t end = line.find('|', begin);
    std::string cell = line.substr(begin, end - begin);
    cell.erase(0, cell.find_first_not_of(' '));
    cell.erase(cell.find_last_not_of(' ') + 1);
    std::erase(cell, '`');
    cells.push_back(std::move(cell));
    begin = end == std::string::npos ? line.size() : end + 1;
  }
  return cells;
}

/// The tables of fields by the heading above them, and the first column of all other tables.
struct Document {
  Document() {
    std::ifstream file(MILLRACE_PROTOCOL);
    std::string line, heading;
    bool fields = false;
    while (std::getline(file, line)) {
      if (line.starts_with("#")) {
        heading = line.substr(line.find_first_not_of("# "));
        std::erase(heading, '`');
      } else if (line.starts_with("| ---")) {
        continue;
      } else if (line.starts_with("|")) {
        const auto row = cells(line);
        if (row[0] == "field" && row[1] == "type")
          fields = true;
        else if (fields)
          tables[heading].push_back({row[0], row[1], row[2]});
        else
          first_columns[heading].push_back(row[0]);
      } else {
        fields = false;
      }
    }
  }
  std::map<std::string, std::vector<Row>> tables;
  std::map<std::string, std::vector<std::string>> first_columns;
};

// Type and default as the document spells them.
template <class T> struct Spelling;
template <> struct Spelling<bool> {
  static std::string type() { return "bool"; }
  static std::string standard(bool value) { return value ? "true" : "false"; }
};
template <class T>
requires std::integral<T> || std::floating_point<T>
struct Spelling<T> {
  static std::string type() {
    return (std::floating_point<T>    ? "float"
            : std::signed_integral<T> ? "int"
                                      : "uint") +
           std::to_string(8 * sizeof(T));
  }
  static std::string standard(T value) {
    char text[64];
    return {text, std::to_chars(text, text + sizeof text, value).ptr};
  }
};
template <> struct Spelling<std::string> {
  static std::string type() { return "string"; }
  static std::string standard(const std::string&) { return "\"\""; }
};
template <> struct Spelling<Bytes> {
  static std::string type() { return "bytes"; }
  static std::string standard(const Bytes&) { return "empty"; }
};
template <> struct Spelling<StreamId> {
  static std::string type() { return "id"; }
  static std::string standard(const StreamId&) { return "required"; }
};
template <> struct Spelling<Generate> {
  static std::string type() { return "Generate"; }
  static std::string standard(const Generate&) { return "required"; }
};
template <> struct Spelling<SequenceId> {
  static std::string type() { return "SequenceId"; }
  static std::string standard(const SequenceId&) { return "required"; }
};
template <> struct Spelling<SamplingParams> {
  static std::string type() { return "SamplingParams"; }
  static std::string standard(const SamplingParams&) { return "its defaults"; }
};
template <> struct Spelling<SchedulerStats> {
  static std::string type() { return "SchedulerStats"; }
  static std::string standard(const SchedulerStats&) { return "its defaults"; }
};
template <> struct Spelling<TokenLogprob> {
  static std::string type() { return "TokenLogprob"; }
};
template <> struct Spelling<ChatMessage> {
  static std::string type() { return "ChatMessage"; }
};
template <> struct Spelling<PromptToken> {
  static std::string type() { return "PromptToken"; }
};
template <> struct Spelling<ChoiceSnapshot> {
  static std::string type() { return "ChoiceSnapshot"; }
};
template <> struct Spelling<RequestStats> {
  static std::string type() { return "RequestStats"; }
};
template <class T> struct Spelling<std::optional<T>> {
  static std::string type() { return Spelling<T>::type() + "?"; }
  static std::string standard(const std::optional<T>&) { return "nil"; }
};
template <class T> struct Spelling<std::vector<T>> {
  static std::string type() { return Spelling<T>::type() + "[]"; }
  static std::string standard(const std::vector<T>&) { return "[]"; }
};
template <class T> struct Spelling<std::map<TokenId, T>> {
  static std::string type() { return "map<int32, " + Spelling<T>::type() + ">"; }
  static std::string standard(const std::map<TokenId, T>&) { return "{}"; }
};

template <Fields T> std::vector<Row> rows_of() {
  std::vector<Row> rows;
  T{}.visit_fields([&]<class F>(std::string_view name, F& value) {
    rows.push_back({std::string(name), Spelling<F>::type(), Spelling<F>::standard(value)});
  });
  return rows;
}

TEST(ProtocolDocument, TellsEveryFieldOfEveryMessage) {
  const Document document;
  std::map<std::string, std::vector<Row>> expected = {{"SamplingParams", rows_of<SamplingParams>()},
                                                      {"SequenceId", rows_of<SequenceId>()},
                                                      {"TokenLogprob", rows_of<TokenLogprob>()},
                                                      {"ChatMessage", rows_of<ChatMessage>()},
                                                      {"PromptToken", rows_of<PromptToken>()},
                                                      {"ChoiceSnapshot", rows_of<ChoiceSnapshot>()},
                                                      {"RequestStats", rows_of<RequestStats>()},
                                                      {"SchedulerStats", rows_of<SchedulerStats>()}};
  std::apply([&]<class... M>(const M&...) { ((expected[std::string(M::kType)] = rows_of<M>()), ...); },
             Messages{});

  for (const auto& [heading, rows] : expected) {
    SCOPED_TRACE(heading);
    ASSERT_TRUE(document.tables.contains(heading));
    EXPECT_EQ(document.tables.at(heading), rows);
  }
  EXPECT_EQ(document.tables.size(), expected.size());
}

TEST(ProtocolDocument, TellsEveryErrorCode) {
  std::vector<std::string> expected = {"code"};
  for (int code = 1; code <= static_cast<int>(Error::internal); ++code)
    expected.emplace_back(to_string(static_cast<Error>(code)));

  EXPECT_EQ(Document().first_columns.at("Errors"), expected);
}

} // namespace
} // namespace millrace
