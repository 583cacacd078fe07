#include "model/text/pretokenizer.hpp"

#include "model/gguf.hpp"
#include "model/text/utf8.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <new>
#include <stdexcept>
#include <string>

namespace millrace {
namespace {

struct Family {
  std::vector<std::string_view> names; // values of tokenizer.ggml.pre
  std::vector<std::string> stages;
  bool keeps_whole_words = false;
  bool adds_bos_by_default = false;
};

// Parts of the patterns, for use inside brackets or alone. PCRE2's \s also has U+180E, which is no white
// space any more.
const std::string kSpace = R"(\t-\r\x{85}\p{Z})";
const std::string kAnySpace = "[" + kSpace + "]";
// A run of spaces leaves its last one to the word that follows it.
const std::string kSpaceRun = kAnySpace + "+(?![^" + kSpace + "])|" + kAnySpace + "+";

// clang-format off
// GPT-2: an English contraction; a run of letters, of digits or of other marks, with one space before it;
// spaces.
const std::string kGpt2 =
    R"('(?:[stmd]|re|ve|ll))"
    R"(|\x20?(?:\p{L}+|\p{N}+|[^)" + kSpace + R"(\p{L}\p{N}]+))"
    "|" + kSpaceRun;

// Llama 3 and Qwen 2: contractions in any case; letters may take any one mark before them; at most `digits`
// digits; marks take the line ends after them; spaces up to a line end are one word.
std::string tiktoken_style(int digits) {
  return R"((?i:'(?:[stmd]|re|ve|ll)))"
         R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
         R"(|\p{N}{1,)" + std::to_string(digits) + "}"
         R"(|\x20?[^)" + kSpace + R"(\p{L}\p{N}]+[\r\n]*)"
         "|" + kAnySpace + R"(*[\r\n]+)"
         "|" + kSpaceRun;
}
// clang-format on

// DeepSeek's ranges: CJK (from U+0800 on, so much else too) and Hangul.
const std::string kEastAsian = R"([\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]+)";

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {.names = {"gpt-2", "phi-2"}, .stages = {kGpt2}},
      {.names = {"llama-bpe", "llama3", "llama-v3"},
       .stages = {tiktoken_style(3)},
       .keeps_whole_words = true,
       .adds_bos_by_default = true},
      {.names = {"qwen2", "deepseek-r1-qwen"}, .stages = {tiktoken_style(1)}},
      {.names = {"starcoder", "smollm"}, .stages = {R"(\p{N})", kGpt2}},
      {.names = {"deepseek-llm"},
       // Letters: the cased ones that the family's list has, which stops short of younger scripts, Georgian
       // Mkhedruli and mathematical alphabets. Marks: ASCII from ! to ~ without digits, its full-width forms,
       // quotation marks and the first CJK signs.
       .stages = {R"([\r\n])",
                  kAnySpace + R"(?(?:(?![\x{560}-\x{588}\x{10C7}-\x{10FF}\x{1C80}-\x{1C88}\x{2D00}-\x{2D2D})"
                              R"(\x{A790}-\x{A7FF}\x{AB30}-\x{AB6F}\x{10570}-\x{105BF}\x{16E40}-\x{16E7F})"
                              R"(\x{1D400}-\x{1DFFF}])\p{L&})+)",
                  kAnySpace +
                      R"(?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
                  // Spaces at the end. Else the search goes on behind the run, not at each of its spaces.
                  kAnySpace + R"(++(?:\z|(*SKIP)(*FAIL)))",
                  kEastAsian,
                  R"(\p{N}+)"}},
      {.names = {"deepseek-coder"},
       .stages = {R"([\r\n])", kAnySpace + R"(?\p{L}+)", kAnySpace + R"(?\p{P}+)", kEastAsian, R"(\p{N})"}},
  };
  return all;
}

const Family& find_family(std::string_view name) {
  std::string known;
  for (const Family& family : families())
    for (const std::string_view candidate : family.names) {
      if (candidate == name)
        return family;
      known += (known.empty() ? "" : ", ") + std::string(candidate);
    }
  throw FormatError("tokenizer.ggml.pre is \"" + printable(name) + "\"; supported are " + known);
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

} // namespace

class Pretokenizer::Regex {
public:
  explicit Regex(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    if (!code_)
      throw std::logic_error("a pre-tokenizer's pattern does not compile at offset " +
                             std::to_string(offset));
    // Where the machine allows no code at run time this fails, and matching is interpreted: slower, but
    // the same.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  }

  /// Appends the matches, and what is between them, to words. text must be well-formed UTF-8.
  void split(std::string_view text, pcre2_match_data* match, std::vector<std::string_view>& words) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    for (size_t begin = 0; begin < text.size();) {
      // No match, an empty one and a limit of the library's that was reached all mean: the rest is one word.
      size_t match_begin = text.size(), match_end = text.size();
      if (pcre2_match(code_.get(), subject, text.size(), begin, PCRE2_NO_UTF_CHECK, match, nullptr) > 0) {
        const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match);
        if (bounds[1] > bounds[0]) {
          match_begin = bounds[0];
          match_end = bounds[1];
        }
      }
      if (match_begin > begin)
        words.push_back(text.substr(begin, match_begin - begin));
      if (match_end > match_begin)
        words.push_back(text.substr(match_begin, match_end - match_begin));
      begin = match_end;
    }
  }

private:
  std::unique_ptr<pcre2_code, FreeCode> code_;
};

Pretokenizer::Pretokenizer(std::string_view name) {
  const Family& family = find_family(name);
  for (const std::string& pattern : family.stages)
    stages_.emplace_back(pattern);
  keeps_whole_words_ = family.keeps_whole_words;
  adds_bos_by_default_ = family.adds_bos_by_default;
}

Pretokenizer::~Pretokenizer() = default;
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;

std::vector<std::string_view> Pretokenizer::split(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
  if (!match)
    throw std::bad_alloc();
  std::vector<std::string_view> words, pieces, next_pieces;
  while (!text.empty()) {
    size_t well_formed = 0;
    while (const size_t size = utf8_character_size(text.substr(well_formed)))
      well_formed += size;
    pieces.assign(well_formed > 0, text.substr(0, well_formed));
    for (const Regex& stage : stages_) {
      next_pieces.clear();
      for (const std::string_view piece : pieces)
        stage.split(piece, match.get(), next_pieces);
      pieces.swap(next_pieces);
    }
    words.insert(words.end(), pieces.begin(), pieces.end());
    text.remove_prefix(well_formed);
    if (!text.empty()) {
      words.push_back(text.substr(0, 1));
      text.remove_prefix(1);
    }
  }
  return words;
}

} // namespace millrace
