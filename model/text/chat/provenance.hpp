#pragma once

#include "model/text/chat/chat_template.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::jinja {

using Range = RenderedPrompt::Range;

/// A text whose bytes know whether they come from the template (trusted) or from the input.
struct Text {
  std::string bytes;
  std::vector<Range> trusted; // ascending, none empty, not adjacent
  bool markup = false;        // from the filters safe and escape: what + joins to it is escaped

  /// Whether all of [begin, end) is trusted; true if it is empty.
  bool is_trusted(size_t begin, size_t end) const;
  bool is_trusted() const { return is_trusted(0, bytes.size()); }
};
using TextPtr = std::shared_ptr<const Text>;

/// Joins texts and keeps track of where each byte comes from.
class TextBuilder {
public:
  void append(std::string_view bytes, bool trusted);
  void append(const Text& text) { append(text, 0, text.bytes.size()); }
  void append(const Text& text, size_t begin, size_t end);
  size_t size() const { return text_.bytes.size(); }
  const Text& text() const { return text_; }
  TextPtr finish(bool markup = false) {
    text_.markup = markup;
    return std::make_shared<const Text>(std::move(text_));
  }

private:
  Text text_;
};

TextPtr make_text(std::string_view bytes, bool trusted);
TextPtr slice(const TextPtr& text, size_t begin, size_t end);

/// Calls f(bytes, trusted) for each stretch of one kind, in order.
template <class F> void for_each_stretch(const Text& text, F f) {
  const std::string_view bytes = text.bytes;
  size_t done = 0;
  for (const auto& [begin, end] : text.trusted) {
    if (begin > done)
      f(bytes.substr(done, begin - done), false);
    f(bytes.substr(begin, end - begin), true);
    done = end;
  }
  if (done < bytes.size())
    f(bytes.substr(done), false);
}

/// What an error may say of a text: "…" stands for what comes from the input.
std::string redacted(const Text& text);
/// Valid UTF-8 of at most 512 bytes: invalid bytes become U+FFFD, a longer text ends in "…".
std::string error_text(std::string_view text);

} // namespace millrace::jinja
