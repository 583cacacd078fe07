#include "gateway/http/api/logprobs.hpp"

#include "gateway/json.hpp"
#include "messages/utf8.hpp"

#include <algorithm>
#include <set>

namespace millrace::http {
namespace {

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// Two halves of a character must not fall into one key, as they would if both became U+FFFD.
std::string printable(std::string text) {
  if (is_valid_utf8(text))
    return text;
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "bytes:";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += "\\x";
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

void separate(std::string& list) {
  if (!list.empty())
    list += ',';
}

void append_chat_entry(std::string& out, TokenId id, const Bytes& bytes, float logprob, const Tokenizer* tokenizer) {
  out += "\"token\":";
  append_json(out, std::string_view{token_text(id, bytes, tokenizer)});
  out += ",\"logprob\":";
  append_json(out, logprob);
  out += ",\"bytes\":";
  append_json(out, bytes);
}

} // namespace

std::string token_text(TokenId id, const Bytes& bytes, const Tokenizer* tokenizer) {
  if (bytes.data.empty() && tokenizer)
    return std::string(tokenizer->piece(id));
  return bytes.data;
}

void append_chat_logprob(std::string& out, const Token& token, const Tokenizer* tokenizer) {
  out += '{';
  append_chat_entry(out, token.id, token.bytes, token.logprob, tokenizer);
  out += ",\"top_logprobs\":[";
  for (size_t i = 0; i < token.top.size(); ++i) {
    out += i == 0 ? "{" : ",{";
    append_chat_entry(out, token.top[i].id, token.top[i].bytes, token.top[i].logprob, tokenizer);
    out += '}';
  }
  out += "]}";
}

void CompletionLogprobs::add(TokenId id, const Bytes& bytes, std::optional<float> logprob,
                             std::span<const TokenLogprob> top, int64_t text_offset, const Tokenizer* tokenizer) {
  const std::string text = printable(token_text(id, bytes, tokenizer));
  separate(tokens_);
  millrace::append_json(tokens_, std::string_view{text});
  separate(logprobs_);
  append_json_value(logprobs_, logprob);
  separate(offsets_);
  millrace::append_json(offsets_, text_offset);

  separate(top_);
  if (!logprob) {
    top_ += "null";
    return;
  }
  std::set<std::string> seen;
  const auto entry = [&](std::string key, float value) {
    const auto [place, fresh] = seen.insert(std::move(key));
    if (!fresh)
      return;
    top_ += seen.size() == 1 ? '{' : ',';
    millrace::append_json(top_, std::string_view{*place});
    top_ += ':';
    millrace::append_json(top_, value);
  };
  for (const TokenLogprob& each : top)
    entry(printable(token_text(each.id, each.bytes, tokenizer)), each.logprob);
  entry(text, *logprob);
  top_ += '}';
}

void CompletionLogprobs::append(const CompletionLogprobs& later) {
  const auto join = [](std::string& list, const std::string& more) {
    if (!more.empty())
      separate(list);
    list += more;
  };
  join(tokens_, later.tokens_);
  join(logprobs_, later.logprobs_);
  join(top_, later.top_);
  join(offsets_, later.offsets_);
}

void CompletionLogprobs::append_json(std::string& out) const {
  out += "{\"tokens\":[" + tokens_ + "],\"token_logprobs\":[" + logprobs_ + "],\"top_logprobs\":[" + top_ +
         "],\"text_offset\":[" + offsets_ + "]}";
}

size_t CompletionLogprobs::bytes() const {
  return tokens_.size() + logprobs_.size() + top_.size() + offsets_.size();
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return !continues_character(byte); });
}

int64_t PromptOffsets::next(TokenId id, const Bytes& bytes) {
  size_t begin = std::min(position_, text_.size());
  while (begin > counted_ && begin < text_.size() && continues_character(text_[begin]))
    --begin; // inside a character
  characters_ += count_characters(text_.substr(counted_, begin - counted_));
  counted_ = begin;

  if (bytes.data.empty()) {
    const std::string_view spelled = tokenizer_ ? tokenizer_->piece(id) : std::string_view{};
    if (position_ <= text_.size() && text_.substr(position_).starts_with(spelled))
      position_ += spelled.size(); // a control token that the text spells out
  } else {
    position_ += bytes.data.size();
    if (skip_space_ && bytes.data[0] == ' ')
      --position_;
    skip_space_ = false;
  }
  return characters_;
}

} // namespace millrace::http
