// score: what the model thinks of a text, as log-probabilities, token by token.

#include "cli/score.hpp"

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/input.hpp"
#include "cli/load.hpp"
#include "cli/logprob_table.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "cli/progress.hpp"
#include "gateway/json.hpp"
#include "model/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace {

namespace {

constexpr int64_t kRowsPerPass = 128;
constexpr int64_t kLogitsPerPass = 16 << 20; // 64 MiB of floats

std::vector<std::pair<TokenId, double>> most_likely(std::span<const float> logits, double log_sum, int n) {
  if (n == 0)
    return {};
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min<size_t>(size_t(n), ids.size());
  std::partial_sort(ids.begin(), end, ids.end(), [&](TokenId a, TokenId b) {
    return logits[size_t(a)] != logits[size_t(b)] ? logits[size_t(a)] > logits[size_t(b)] : a < b;
  });
  std::vector<std::pair<TokenId, double>> top;
  for (auto id = ids.begin(); id != end; ++id)
    top.emplace_back(*id, logits[size_t(*id)] - log_sum);
  return top;
}

} // namespace

void score(Device& device, std::span<const TokenId> ids, int64_t first, int top_n,
           const std::function<void(ScoredToken)>& each) {
  const auto n = int64_t(ids.size());
  const int64_t vocab = device.config().vocab_size;
  const auto table = device.blocks().allocate(n);
  if (!table)
    throw std::runtime_error("no room in the KV cache for " + std::to_string(n) + " positions");

  const int64_t rows_per_pass = std::clamp(kLogitsPerPass / vocab, int64_t{1}, kRowsPerPass);
  std::vector<Row> rows;
  std::vector<float> logits;
  // The last token is never fed: nothing follows it.
  for (int64_t begin = 0; begin < n - 1; begin += rows_per_pass) {
    const int64_t end = std::min(begin + rows_per_pass, n - 1);
    rows.clear();
    for (int64_t p = begin; p < end; ++p)
      rows.push_back({ids[size_t(p)], int32_t(p), table->blocks(), p + 1 >= first});
    const int64_t first_wanted = std::max(begin, first - 1);
    logits.resize(size_t(std::max(end - first_wanted, int64_t{0}) * vocab));
    device.forward(rows, logits);

    for (int64_t p = first_wanted; p < end; ++p) {
      const auto row = std::span(logits).subspan(size_t((p - first_wanted) * vocab), size_t(vocab));
      const double log_sum = log_sum_exp(row);
      if (!std::isfinite(log_sum))
        throw std::runtime_error("the model's logits are not finite");
      const TokenId id = ids[size_t(p + 1)];
      each({p + 1, id, row[size_t(id)] - log_sum, most_likely(row, log_sum, top_n)});
    }
  }
}

namespace {

constexpr const char* kExamples = R"(Examples:
  millrace score "Once upon a time there was a fox"
  millrace score --top-logprobs 3 "To be or not to be"  what else might have come
  millrace score --file book.txt --chunk 512 --second-half
                                                        perplexity as llama.cpp's tool measures it
The log-probability of a text is the sum of its tokens' log-probabilities, each given all the tokens before
it; perplexity is exp(-mean).)";

struct Options {
  ModelOptions model;
  TextSource source;
  std::optional<std::string> ids;
  bool no_bos = false;
  bool parse_special = false;
  int32_t top = 0;
  int32_t chunk = 0; // 0: the text is one piece
  bool second_half = false;
  bool json = false;
};

/// The results, as --json prints them.
struct TokenResult {
  int64_t position = 0;
  TokenId id = 0;
  Bytes bytes;
  std::string text; // U+FFFD where the token is not UTF-8
  double logprob = 0;
  std::vector<TokenLogprob> top;
  MILLRACE_FIELDS(position, id, bytes, text, logprob, top)
};

struct Sum {
  int64_t scored = 0;
  double sum = 0; // natural logarithms

  double mean() const { return scored > 0 ? sum / double(scored) : 0; }
  double perplexity() const { return std::exp(-mean()); }
  void add(double logprob) {
    sum += logprob;
    ++scored;
  }
};

struct ChunkResult {
  int64_t begin = 0; // position of its first token
  int64_t scored = 0;
  double sum = 0, mean = 0, perplexity = 0;
  MILLRACE_FIELDS(begin, scored, sum, mean, perplexity)
};

struct Result {
  int64_t n_tokens = 0;
  int64_t scored = 0;
  double sum = 0, mean = 0, perplexity = 0;
  std::vector<ChunkResult> chunks;
  std::vector<TokenResult> tokens;
  MILLRACE_FIELDS(n_tokens, scored, sum, mean, perplexity, chunks, tokens)
};

std::vector<TokenId> read_ids(const Options& options, const Engine& engine) {
  if (!options.ids)
    return engine.tokenizer->encode(read_text(options.source),
                                    {.add_bos = !options.no_bos, .parse_special = options.parse_special});
  if (options.source.text || options.source.file)
    throw UsageError("--ids: a text is given as well");
  return parse_ids(*options.ids, engine.device->config().vocab_size, "--ids");
}

/// One run of the model: a chunk, or the whole text.
struct Piece {
  std::vector<TokenId> ids;
  int64_t begin; // in the text
  int64_t first; // scored token of the piece
};

/// As llama.cpp's perplexity tool cuts a text: whole chunks only, and where the model begins texts with a
/// BOS, it takes the place of each chunk's first token.
std::vector<Piece> cut(const Options& options, const std::vector<TokenId>& ids, const Engine& engine) {
  const auto context = int64_t(engine.device->context_length());
  const auto n = int64_t(ids.size());
  if (options.chunk == 0) {
    if (n < 2)
      throw UsageError("the text: fewer than two tokens, so there is nothing to score");
    if (n > context)
      throw UsageError(
          format("the text: %lld tokens are more than the context's %lld; --chunk cuts it into pieces",
                 static_cast<long long>(n), static_cast<long long>(context)));
    return {{ids, 0, 1}};
  }
  if (options.chunk > context)
    throw UsageError(format("--chunk: %d tokens are more than the context's %lld", options.chunk,
                            static_cast<long long>(context)));
  if (n < options.chunk)
    throw UsageError(format("--chunk: the text has %lld tokens, less than one chunk of %d",
                            static_cast<long long>(n), options.chunk));
  std::vector<Piece> pieces;
  for (int64_t begin = 0; begin + options.chunk <= n; begin += options.chunk) {
    Piece piece{{ids.begin() + begin, ids.begin() + begin + options.chunk}, begin, 1};
    if (engine.tokenizer->adds_bos() && !options.no_bos)
      piece.ids.front() = engine.tokenizer->bos();
    // The logits at position chunk / 2 are the first that count, and they are about the token after it.
    if (options.second_half)
      piece.first = options.chunk / 2 + 1;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

TokenResult describe(const ScoredToken& scored, int64_t begin, const Tokenizer& tokenizer) {
  const auto bytes_of = [&](TokenId id) {
    if (id >= tokenizer.vocab_size())
      return std::string(); // logits may be wider than the vocabulary
    return std::string(tokenizer.is_control(id) ? tokenizer.piece(id) : tokenizer.bytes(id));
  };
  const auto bytes = bytes_of(scored.id);
  TokenResult result{begin + scored.position, scored.id, {bytes}, bytes, scored.logprob, {}};
  for (const auto& [id, logprob] : scored.top)
    result.top.push_back({id, {bytes_of(id)}, float(logprob)});
  return result;
}

int score_text(const Options& options) {
  if (options.second_half && options.chunk == 0)
    throw UsageError("--second-half: needs --chunk");
  const Engine engine = load_engine(options.model);
  const auto ids = read_ids(options, engine);
  const auto pieces = cut(options, ids, engine);

  Result result;
  result.n_tokens = int64_t(ids.size());
  Sum total;
  const bool as_rows = !options.json && options.chunk == 0;
  if (as_rows)
    print_line(logprob_head());
  if (!options.json && options.chunk > 0)
    print_line("   chunk   scored  mean log-prob  perplexity  so far");
  ProgressBar bar("scoring");
  for (const Piece& piece : pieces) {
    Sum sum;
    score(*engine.device, piece.ids, piece.first, options.top, [&](const ScoredToken& scored) {
      sum.add(scored.logprob);
      total.add(scored.logprob);
      if (!as_rows && !options.json)
        return;
      auto token = describe(scored, piece.begin, *engine.tokenizer);
      if (as_rows)
        print_line(logprob_row(token.position, token.id, token.bytes.data, token.logprob, token.top));
      else
        result.tokens.push_back(std::move(token));
    });
    result.chunks.push_back({piece.begin, sum.scored, sum.sum, sum.mean(), sum.perplexity()});
    if (!options.json && options.chunk > 0)
      print_line(format("%8zu  %7lld  %13.4f  %10.4f  %.4f", result.chunks.size(),
                        static_cast<long long>(sum.scored), sum.mean(), sum.perplexity(),
                        total.perplexity()));
    if (!stdout_is_terminal()) // there the rows show how far it is
      bar.update(double(result.chunks.size()) / double(pieces.size()));
  }
  if (options.json) {
    result.scored = total.scored;
    result.sum = total.sum;
    result.mean = total.mean();
    result.perplexity = total.perplexity();
    print_line(to_json(result));
  } else {
    print_line(format("ln P = %.4f, the sum over %lld tokens; mean %.4f; perplexity %.4f", total.sum,
                      static_cast<long long>(total.scored), total.mean(), total.perplexity()));
  }
  return 0;
}

} // namespace

void add_score(CLI::App& program, Action& chosen) {
  auto options = std::make_shared<Options>();
  auto& command =
      *program.add_subcommand("score", "Log-probability of a text, token by token, and its perplexity");
  command.add_option("text", options->source.text, "Text to score; - reads it from stdin, byte for byte")
      ->option_text(" ");
  command.add_option("--file", options->source.file, "Read a file instead, byte for byte")
      ->option_text("FILE");
  command.add_option("--ids", options->ids, "Token ids instead of a text, taken as they are: \"1,2,3\"")
      ->option_text("IDS");
  add_model_options(command, options->model);
  command.add_flag("--no-bos", options->no_bos, "Don't begin with the model's begin-of-text token");
  command.add_flag("--parse-special", options->parse_special,
                   "Take the text of control tokens, e.g. <s>, as these tokens");
  add_int(command, "--top-logprobs", options->top, 0, 1000, "Show the K likeliest tokens in each place [0]")
      ->option_text("K");
  add_int(command, "--chunk", options->chunk, 4, 1 << 24,
          "Score chunks of N tokens on their own; an incomplete last one is dropped");
  command.add_flag("--second-half", options->second_half,
                   "Of each chunk only the second half counts, so that each token has context");
  command.add_flag("--json", options->json, "One object with sum, mean, perplexity, chunks and tokens");
  command.footer(kExamples);
  command.callback([options, &chosen] { chosen = [options] { return score_text(*options); }; });
}

} // namespace millrace
