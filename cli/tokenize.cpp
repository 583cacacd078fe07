// tokenize: text to ids and back, without running the model.

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/input.hpp"
#include "cli/load.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "gateway/json.hpp"

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
  millrace tokenize "Once upon a time"
  millrace tokenize --file story.txt --json
  millrace tokenize --ids-only "a fox" | millrace tokenize --detokenize -)";

struct Options {
  ModelOptions model;
  TextSource source;
  bool no_bos = false;
  bool parse_special = false;
  bool detokenize = false;
  bool ids_only = false;
  bool json = false;
  std::vector<std::string> ids; // what follows the first, where each id is an argument of its own
};

struct Tokens {
  std::vector<TokenId> ids;
  std::vector<std::string> tokens; // their text; as the vocabulary spells it for control tokens
  MILLRACE_FIELDS(ids, tokens)
};

struct Text {
  std::string text; // U+FFFD where it is not UTF-8
  Bytes bytes;
  MILLRACE_FIELDS(text, bytes)
};

std::string token_text(const Tokenizer& tokenizer, TokenId id) {
  return std::string(tokenizer.is_control(id) ? tokenizer.piece(id) : tokenizer.bytes(id));
}

int encode(const Options& options, const Tokenizer& tokenizer) {
  const auto ids = tokenizer.encode(read_text(options.source),
                                    {.add_bos = !options.no_bos, .parse_special = options.parse_special});
  if (options.json) {
    Tokens result{ids, {}};
    for (const TokenId id : ids)
      result.tokens.push_back(token_text(tokenizer, id));
    print_line(to_json(result));
    return 0;
  }
  std::string out;
  for (const TokenId id : ids)
    out += options.ids_only ? std::to_string(id) + '\n'
                            : format("%8d  %s\n", id, quote(token_text(tokenizer, id)).c_str());
  print(out);
  return 0;
}

int decode(const Options& options, const Tokenizer& tokenizer) {
  std::string ids = read_text(options.source);
  for (const auto& more : options.ids)
    ids += ' ' + more;
  const auto text = tokenizer.decode(parse_ids(ids, tokenizer.vocab_size(), "--detokenize"));
  if (options.json)
    print_line(to_json(Text{text, {text}}));
  else
    print(stdout_is_terminal() ? text + '\n' : text);
  return 0;
}

int tokenize(const Options& options) {
  if (!options.detokenize && !options.ids.empty())
    throw UsageError("one text is expected; put it in quotes");
  const auto file = load_file(options.model); // no Model: vocabularies without weights do as well
  const auto tokenizer = load_tokenizer(*file, options.model);
  return options.detokenize ? decode(options, *tokenizer) : encode(options, *tokenizer);
}

} // namespace

void add_tokenize(CLI::App& program, Action& chosen) {
  auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("tokenize", "Turn a text into the model's tokens, or back");
  command
      .add_option("text", options->source.text,
                  "Text, or ids with --detokenize; - reads stdin, byte for byte")
      ->option_text(" ");
  command.add_option("ids", options->ids, "More ids, with --detokenize")->option_text(" ");
  command.add_option("--file", options->source.file, "Read a file instead, byte for byte")
      ->option_text("FILE");
  add_model_path(command, options->model);
  command.add_flag("--no-bos", options->no_bos, "Don't begin with the model's begin-of-text token");
  command.add_flag("--parse-special", options->parse_special,
                   "Take the text of control tokens, e.g. <s>, as these tokens");
  command.add_flag("--detokenize", options->detokenize,
                   "Ids in (separated by commas or white space), text out");
  command.add_flag("--ids-only", options->ids_only, "An id per line, nothing else");
  command.add_flag("--json", options->json,
                   R"({"ids":[…],"tokens":[…]}; {"text":…,"bytes":[…]} with --detokenize)");
  command.footer(kExamples);
  command.callback([options, &chosen] { chosen = [options] { return tokenize(*options); }; });
}

} // namespace millrace
