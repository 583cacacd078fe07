#include "model/text/tokenizer.hpp"

#include "model/text/byte_pair_encoder.hpp"
#include "model/text/sentencepiece_encoder.hpp"
#include "model/text/special_tokens.hpp"
#include "model/text/vocabulary.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <variant>

namespace millrace {
namespace {

constexpr std::string_view kModel = "tokenizer.ggml.model";
constexpr std::string_view kPre = "tokenizer.ggml.pre";

// Positions are 32-bit, and a space mark has three bytes.
constexpr size_t kMaxTextBytes = size_t{1} << 29;

constexpr std::array kUserDefined = {TokenType::user_defined};
constexpr std::array kAllSpecial = {TokenType::user_defined, TokenType::control, TokenType::unknown};

using Encoder = std::variant<BytePairEncoder, SentencePieceEncoder>;

Encoder make_encoder(const GgufFile& file, const Vocabulary& vocabulary) {
  const std::string_view model = required(file.get_string(kModel), kModel);
  if (model == "gpt2")
    return BytePairEncoder(file, vocabulary);
  if (model == "llama")
    return SentencePieceEncoder(file, vocabulary);
  throw FormatError(std::string(kModel) + " is \"" + printable(model) + "\"; supported are gpt2, llama");
}

void check_size(std::string_view text) {
  if (text.size() >= kMaxTextBytes)
    throw std::length_error("text of " + std::to_string(text.size()) + " bytes is too long to be encoded");
}

} // namespace

struct Tokenizer::State {
  explicit State(const GgufFile& file);
  uint64_t compute_hash(const GgufFile& file) const;

  std::vector<TokenId> encode(const std::vector<Fragment>& fragments, bool bos) const;

  const BytePairEncoder* byte_pairs() const { return std::get_if<BytePairEncoder>(&encoder); }

  Vocabulary vocabulary;
  SpecialTokens user_defined; // matched in any text
  SpecialTokens all_special;  // with parse_special
  Encoder encoder;
  std::vector<std::string> bytes; // by id
  std::string kind;
  bool adds_bos;
  bool adds_space_prefix;
  uint64_t hash;
};

Tokenizer::State::State(const GgufFile& file)
    : vocabulary(file), user_defined(vocabulary, kUserDefined), all_special(vocabulary, kAllSpecial),
      encoder(make_encoder(file, vocabulary)) {
  bytes.resize(vocabulary.size());
  for (TokenId id = 0; id < vocabulary.size(); ++id)
    if (!vocabulary.is_control(id))
      bytes[id] = std::visit([id](const auto& e) { return e.bytes(id); }, encoder);

  kind = std::string(*file.get_string(kModel)) + "/" + std::string(file.get_string(kPre).value_or("default"));
  const bool bos_by_default = !byte_pairs() || byte_pairs()->pretokenizer().adds_bos_by_default();
  adds_bos =
      file.get_bool("tokenizer.ggml.add_bos_token").value_or(bos_by_default) && vocabulary.bos() != kNoToken;
  adds_space_prefix = !byte_pairs() && file.get_bool("tokenizer.ggml.add_space_prefix").value_or(true);
  hash = compute_hash(file);
}

uint64_t Tokenizer::State::compute_hash(const GgufFile& file) const {
  // Each part seeds the next, so the parts' borders count as well.
  uint64_t hash = 0;
  const auto add_text = [&](std::string_view text) {
    hash = XXH3_64bits_withSeed(text.data(), text.size(), hash);
  };
  const auto add_number = [&](double number) { hash = XXH3_64bits_withSeed(&number, sizeof number, hash); };

  add_text(kind);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    add_text(vocabulary.piece(id));
    add_number(static_cast<double>(vocabulary.type(id)));
    add_number(vocabulary.is_end_of_generation(id));
  }
  const auto merges = file.get_strings("tokenizer.ggml.merges").value_or(std::vector<std::string_view>());
  const auto scores = file.get_floats("tokenizer.ggml.scores").value_or(std::vector<double>());
  for (const std::string_view merge : merges)
    add_text(merge);
  for (const double score : scores)
    add_number(score);
  for (const double number : {double(vocabulary.bos()), double(vocabulary.eos()),
                              double(vocabulary.unknown()), double(adds_bos), double(adds_space_prefix)})
    add_number(number);
  return hash;
}

Tokenizer::Tokenizer(const GgufFile& file) : state_(std::make_unique<State>(file)) {}
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::State::encode(const std::vector<Fragment>& fragments, bool bos) const {
  std::vector<TokenId> ids;
  if (bos)
    ids.push_back(vocabulary.bos());
  for (bool after_special = true; const Fragment& fragment : fragments) {
    if (fragment.special != kNoToken)
      ids.push_back(fragment.special);
    else if (const BytePairEncoder* bpe = byte_pairs())
      bpe->encode(fragment.text, ids);
    else
      std::get<SentencePieceEncoder>(encoder).encode(fragment.text, adds_space_prefix && after_special, ids);
    after_special = fragment.special != kNoToken;
  }
  return ids;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  check_size(text);
  const SpecialTokens& special = options.parse_special ? state_->all_special : state_->user_defined;
  return state_->encode(special.split(text), options.add_bos && state_->adds_bos);
}

std::vector<TokenId> Tokenizer::encode(const RenderedPrompt& prompt) const {
  check_size(prompt.text);
  const auto is_bos = [this](const Fragment& fragment) { return fragment.special == bos(); };
  std::vector<Fragment> fragments = state_->all_special.split(prompt.text, prompt.trusted);
  if (state_->adds_bos)
    fragments.erase(fragments.begin(), std::find_if_not(fragments.begin(), fragments.end(), is_bos));
  return state_->encode(fragments, state_->adds_bos);
}

std::string_view Tokenizer::bytes(TokenId id) const {
  return state_->vocabulary.contains(id) ? std::string_view(state_->bytes[id]) : std::string_view();
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_space_prefix) const {
  std::string text;
  bool at_start = true;
  for (const TokenId id : ids) {
    std::string_view piece = bytes(id);
    if (at_start && !piece.empty()) {
      at_start = false;
      // encode puts no space before a user-defined token.
      if (skip_space_prefix && state_->adds_space_prefix && piece[0] == ' ' &&
          state_->vocabulary.type(id) != TokenType::user_defined)
        piece.remove_prefix(1);
    }
    text += piece;
  }
  return text;
}

std::string_view Tokenizer::piece(TokenId id) const {
  return state_->vocabulary.contains(id) ? state_->vocabulary.piece(id) : std::string_view();
}

int32_t Tokenizer::vocab_size() const {
  return state_->vocabulary.size();
}
TokenId Tokenizer::bos() const {
  return state_->vocabulary.bos();
}
TokenId Tokenizer::eos() const {
  return state_->vocabulary.eos();
}
bool Tokenizer::adds_bos() const {
  return state_->adds_bos;
}
bool Tokenizer::adds_space_prefix() const {
  return state_->adds_space_prefix;
}

bool Tokenizer::is_control(TokenId id) const {
  return state_->vocabulary.contains(id) && state_->vocabulary.is_control(id);
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  return state_->vocabulary.contains(id) && state_->vocabulary.is_end_of_generation(id);
}

std::string_view Tokenizer::kind() const {
  return state_->kind;
}
uint64_t Tokenizer::hash() const {
  return state_->hash;
}

} // namespace millrace
