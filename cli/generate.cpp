// generate: the whole pipeline in this process, one request, its text to stdout as it comes.

#include "actors/pipeline.hpp"
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/event_queue.hpp"
#include "cli/input.hpp"
#include "cli/load.hpp"
#include "cli/logprob_table.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "cli/signals.hpp"
#include "gateway/json.hpp"
#include "messages/validate.hpp"

#include <atomic>
#include <cstdio>
#include <random>

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
  millrace generate "Once upon a time"
  millrace generate --temp 0 -n 40 "The fox said"       the likeliest text, always the same
  millrace generate --stop . --seed 7 "Long ago"        one sentence
  millrace generate --logprobs 3 -n 10 "The king"       a table of what else might have come
  millrace generate --json "Hello" | head               one event per line, as in PROTOCOL.md
  echo -n "There was" | millrace generate -             prompt from stdin, taken byte for byte)";

struct Options {
  ModelOptions model;
  Generate request;
  TextSource prompt;
  bool json = false;
  bool stats = false;
};

struct Interrupt {};
using Input = std::variant<Event, Interrupt>;

/// What the events of one request become on stdout and stderr.
class Printer {
public:
  explicit Printer(const Options& options) : options_(options) {}

  void operator()(const Event& event) {
    if (options_.json)
      print_line(to_json(event));
    std::visit([this](const auto& held) { take(held); }, event);
  }

  std::optional<int> exit_code; // once the last event has come

private:
  bool as_text() const { return !options_.json && !options_.request.logprobs; }
  bool as_table() const { return !options_.json && options_.request.logprobs; }

  void take(const Started& started) {
    seed_ = started.seed;
    if (as_table())
      print_line(logprob_head());
  }
  void take(const Progress&) {}
  void take(const PromptLogprobs&) {}

  void take(const Token& token) {
    if (as_text())
      print(token.text);
    if (as_table())
      print_line(logprob_row(token.seq, token.id, token.bytes.data, token.logprob, token.top));
  }

  void take(const Finished& finished) {
    if (as_text())
      print(stdout_is_terminal() ? finished.text + '\n' : finished.text);
    reason_ = finished.reason;
    if (reason_ == to_string(FinishReason::error))
      error_ = finished.error;
  }

  void take(const Done& done) {
    if (options_.stats || (stderr_is_terminal() && stdout_is_terminal() && !options_.json))
      print_statistics(done);
    if (!error_.empty())
      throw std::runtime_error("generation failed: " + error_);
    exit_code = reason_ == to_string(FinishReason::cancelled) ? kExitInterrupted : 0;
  }

  void take(const Rejected& rejected) { throw_refusal(rejected); }

  static void throw_refusal(const Rejected& rejected) {
    const bool about_a_field = rejected.error == to_string(Error::invalid_field);
    millrace::throw_refusal({about_a_field ? Error::invalid_field : Error::internal, rejected.field,
                             rejected.message.empty() ? rejected.error : rejected.message});
  }

  void print_statistics(const Done& done) const {
    const auto rate = [](int32_t tokens, double ms) { return ms > 0 ? tokens / ms * 1000 : 0.0; };
    // The first token comes out of the prompt's pass; decode makes the others.
    const int32_t decoded = std::max(0, done.generated_tokens - 1);
    std::fprintf(stderr,
                 "%d prompt tokens in %.0f ms (%.0f/s), %d tokens in %.0f ms (%.1f/s), %s, seed %llu\n",
                 done.prompt_tokens, done.prefill_ms, rate(done.prompt_tokens, done.prefill_ms),
                 done.generated_tokens, done.prefill_ms + done.decode_ms, rate(decoded, done.decode_ms),
                 reason_.c_str(), static_cast<unsigned long long>(seed_));
  }

  const Options& options_;
  std::string reason_, error_;
  uint64_t seed_ = 0;
};

int generate(Options options) {
  EventQueue<Input> queue;
  std::atomic<bool> serving = false;
  SignalWatch signals([&](int signal, int count) {
    if (!serving || count > 1)
      std::_Exit(128 + signal); // nothing to end in good order, or no patience for it
    queue.push(Interrupt{});
  });

  Generate& request = options.request;
  request.request = random_stream_id();
  request.prompt = read_text(options.prompt);
  if (!request.sampling.seed)
    request.sampling.seed = std::random_device{}() | uint64_t{std::random_device{}()} << 32;
  if (const auto failure = validate(request, widest_limits()))
    throw_refusal(*failure);

  const Engine engine = load_engine(options.model);
  Pipeline pipeline(engine.tokenizer, engine.device, {}, [&queue](const Event& event) { queue.push(event); });
  serving = true;
  if (const auto failure = pipeline.submit(request))
    throw_refusal(*failure);

  Printer printer(options);
  while (!printer.exit_code) {
    const Input input = queue.pop();
    if (const auto* event = std::get_if<Event>(&input))
      printer(*event);
    else
      pipeline.cancel(request.request);
  }
  serving = false;
  return *printer.exit_code;
}

} // namespace

void add_generate(CLI::App& program, Action& chosen) {
  auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("generate", "Continue a text, streaming tokens as they come");
  command
      .add_option("prompt", options->prompt.text,
                  "Text to continue; - reads it from stdin, none begins from nothing")
      ->option_text(" ");
  add_model_options(command, options->model);
  add_generation_options(command, options->request);
  command.add_flag("--json", options->json, "One event per line, its keys the fields of PROTOCOL.md")
      ->group("Output");
  command.add_flag("--stats,-v", options->stats, "Tell counts and times on stderr, as on a terminal")
      ->group("Output");
  command.footer(kExamples);
  command.callback([options, &chosen] { chosen = [options] { return generate(*options); }; });
}

} // namespace millrace
