// chat: a conversation in the terminal, with the whole pipeline in this process. A script may hold it, too: then
// stdin has the questions, stdout the answers and nothing else, and the first error ends it.

#include "actors/pipeline.hpp"
#include "cli/chat_command.hpp"
#include "cli/commands.hpp"
#include "cli/conversation.hpp"
#include "cli/errors.hpp"
#include "cli/event_queue.hpp"
#include "cli/input.hpp"
#include "cli/line_editor.hpp"
#include "cli/load.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "cli/progress.hpp"
#include "cli/signals.hpp"
#include "cli/terminal_text.hpp"

#include <atomic>
#include <cstdio>
#include <random>
#include <unistd.h>

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
  millrace chat                                   with the built-in story model, which only knows tales
  millrace chat -m model.gguf --system "Be brief."
  printf 'Hello\nAnd then?\n' | millrace chat --seed 1   a script: the answers go to stdout

/help in the conversation tells its commands. What is typed at a terminal is remembered in
$XDG_STATE_HOME/millrace/chat_history, unless --no-history.)";

constexpr int kPatience = 3; // interrupts of one answer, until the program ends

struct Options {
  ModelOptions model;
  Generate request;
  std::string system;
  std::optional<std::string> prompt_file;
  bool no_history = false;
};

/// Ctrl-C while the answer with this number came.
struct Interrupt {
  uint64_t answer = 0;
};

struct Answer {
  std::string text;
  std::string reason; // FinishReason; empty if it was refused
  Failure failure;    // of a refusal, or code none
  Done done;
  int32_t cached_tokens = 0; // of the prompt, known from earlier turns
  uint64_t seed = 0;
};

/// Who is told of signals: Ctrl-C ends an answer, and at the prompt it is a key.
class Interrupts {
public:
  Interrupts(bool interactive, LineEditor& editor, EventQueue<std::variant<Event, Interrupt>>& queue)
      : interactive_(interactive), editor_(editor), queue_(queue) {}

  void operator()(int signal) {
    const uint64_t answer = answer_;
    if (signal == SIGINT && interactive_ && serving_ && answer == 0)
      return; // an answer had just ended
    if (signal != SIGINT || !interactive_ || answer == 0 || ++count_ >= kPatience) {
      editor_.restore_terminal();
      std::_Exit(128 + signal);
    }
    queue_.push(Interrupt{answer});
  }

  void serve() { serving_ = true; }
  void begin(uint64_t answer) {
    count_ = 0;
    answer_ = answer;
  }
  void end() { answer_ = 0; }

private:
  const bool interactive_;
  LineEditor& editor_;
  EventQueue<std::variant<Event, Interrupt>>& queue_;
  std::atomic<bool> serving_ = false;
  std::atomic<uint64_t> answer_ = 0; // the number of the one that comes; 0: none
  std::atomic<int> count_ = 0;
};

/// The text of an answer on its way to stdout. What a template leaves before it, white space, is no part of it.
class AnswerPrinter {
public:
  explicit AnswerPrinter(bool to_terminal) : to_terminal_(to_terminal) {}

  void operator()(std::string_view text) {
    if (text_.empty())
      text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    text_ += text;
    if (!text.empty())
      print(to_terminal_ ? for_terminal(text) : std::string(text));
  }
  /// The whole text; the line is ended.
  std::string finish() {
    if (!text_.empty() && !text_.ends_with('\n'))
      print("\n");
    return std::move(text_);
  }

private:
  bool to_terminal_;
  std::string text_;
};

class Chat {
public:
  Chat(const Options& options, bool interactive, LineEditor& editor)
      : options_(options), interactive_(interactive), editor_(editor), interrupts_(interactive, editor, queue_),
        signals_([this](int signal, int) { interrupts_(signal); }) {
    conversation_.set_system(options.system);
    seed_ = options.request.sampling.seed.value_or(std::random_device{}() | uint64_t{std::random_device{}()} << 32);
    temperature_ = options.request.sampling.temperature;
    check(options.request);
    engine_ = load_engine(options.model);
    PipelineOptions pipeline;
    pipeline.chat = engine_.chat;
    pipeline_ = std::make_unique<Pipeline>(engine_.tokenizer, engine_.device, pipeline,
                                           [this](const Event& event) { queue_.push(event); });
    interrupts_.serve();
  }

  int run() {
    if (interactive_)
      say(model_name(*engine_.model, options_.model) + ", a context of " +
          std::to_string(pipeline_->limits().context_length) + " tokens; /help tells the commands, Ctrl-D ends");
    if (options_.prompt_file)
      attempt(Question{read_text({.text = {}, .file = options_.prompt_file})});
    for (bool interrupted = false; !ended_;) {
      const auto input = editor_.read();
      if (std::holds_alternative<EndOfInput>(input)) {
        if (interactive_)
          print("\n");
        return 0;
      }
      if (const auto* interrupt = std::get_if<LineInterrupted>(&input)) {
        if (interrupted && interrupt->was_empty)
          return kExitInterrupted;
        interrupted = true;
        say("Ctrl-C once more, or Ctrl-D, ends");
        continue;
      }
      interrupted = false;
      if (const auto command = parse_chat_command(std::get<std::string>(input)))
        attempt(*command);
    }
    return 0;
  }

private:
  /// Whatever breaks a limit of every model, before one is loaded.
  static void check(Generate request) {
    request.messages.emplace(1);
    request.messages->front().role = "user";
    request.request = random_stream_id();
    if (const auto failure = validate(request, widest_limits()))
      throw_refusal(*failure);
  }

  /// At a terminal an error is told and the conversation goes on.
  void attempt(const ChatCommand& command) {
    try {
      std::visit([this](const auto& held) { take(held); }, command);
    } catch (const OutputClosed&) {
      throw;
    } catch (const std::exception& e) {
      if (!interactive_)
        throw;
      say(e.what());
    }
  }

  void take(const Question& question) { ask(question.text); }
  void take(const SetSystem& system) {
    conversation_.set_system(system.text);
    note(system.text.empty() ? "no system message" : "the system message is set");
  }
  void take(const SetSeed& seed) {
    seed_ = seed.seed;
    answers_of_seed_ = 0;
    note("seed " + std::to_string(seed_));
  }
  void take(const SetTemperature& temperature) {
    temperature_ = temperature.temperature;
    note(format("temperature %g", double(temperature_)));
  }
  void take(const Save& save) {
    try {
      conversation_.save(save.path, save.overwrite);
    } catch (const std::system_error& e) {
      if (e.code() == std::errc::file_exists)
        throw std::runtime_error(save.path + " exists; /save! FILE replaces it");
      throw;
    }
    note("saved " + count(conversation_.size(), "answer") + " to " + save.path);
  }
  void take(const Load& load) {
    conversation_ = Conversation::load(load.path);
    unanswered_.reset();
    note("loaded " + count(conversation_.size(), "answer") + " from " + load.path);
  }
  void take(const Reset&) {
    conversation_.reset();
    unanswered_.reset();
    note("the conversation is empty");
  }
  void take(const Undo&) {
    unanswered_.reset();
    if (!conversation_.undo())
      throw UsageError("/undo: nothing was said yet");
    note("forgot the last question and its answer, " + count(conversation_.size(), "answer") + " left");
  }
  void take(const Retry&) {
    if (const auto question = std::exchange(unanswered_, std::nullopt))
      return ask(*question);
    const auto last = conversation_.undo();
    if (!last)
      throw UsageError("/retry: nothing was said yet");
    try {
      ask(last->question);
    } catch (...) {
      unanswered_.reset();
      conversation_.add(last->question, last->answer);
      throw;
    }
  }
  void take(const ShowStats&) {
    say(format("%s; %lld tokens generated in %.1f s (%.1f/s)", count(answers_, "answer").c_str(),
               static_cast<long long>(generated_), decode_ms_ / 1000,
               decode_ms_ > 0 ? double(decoded_) / decode_ms_ * 1000 : 0.0));
    if (answers_ > 0)
      say(format("the last answer: %d tokens of which %d were known, the rest read in %.0f ms, %d generated, "
                 "%d of %d positions used, seed %llu",
                 last_.done.prompt_tokens, last_.cached_tokens, last_.done.prefill_ms, last_.done.generated_tokens,
                 used(last_.done), pipeline_->limits().context_length, static_cast<unsigned long long>(last_.seed)));
  }
  void take(const ShowHelp&) { std::fputs(std::string(chat_help()).c_str(), stderr); }
  void take(const Exit&) { ended_ = true; }
  void take(const Misunderstood& misunderstood) { throw UsageError(misunderstood.message); }

  /// Asks, prints the answer as it comes, and keeps both. Throws what kept the question from being answered.
  void ask(const std::string& question) {
    unanswered_ = question;
    last_ = answer(question);
    if (last_.failure.code == Error::prompt_too_long)
      throw std::runtime_error("the context is full (" + last_.failure.message + "): " +
                               (conversation_.size() == 0 ? "ask something shorter"
                                                          : "/undo forgets the last answer, /reset all of them"));
    if (last_.failure.code != Error::none)
      throw std::runtime_error(last_.failure.message.empty() ? std::string(to_string(last_.failure.code))
                                                             : last_.failure.message);
    ++answers_;
    generated_ += last_.done.generated_tokens;
    decoded_ += std::max(0, last_.done.generated_tokens - 1); // the first one comes out of the prompt's pass
    decode_ms_ += last_.done.decode_ms;
    if (last_.text.empty() && last_.reason == to_string(FinishReason::cancelled))
      return say("ended before anything was said; the question is not kept, /retry asks it again");
    conversation_.add(question, last_.text);
    unanswered_.reset();
    tell_end(last_);
  }

  void tell_end(const Answer& answer) {
    const int32_t context = pipeline_->limits().context_length;
    if (answer.reason == to_string(FinishReason::cancelled))
      say("ended; what was said stays, /undo forgets it");
    else if (answer.reason == to_string(FinishReason::length) && used(answer.done) >= context)
      say(format("the context of %d tokens is full, so the answer is cut: /undo forgets it, /reset all", context));
    else if (answer.reason == to_string(FinishReason::length))
      note(format("cut after %d tokens, see -n", answer.done.generated_tokens));
  }

  Answer answer(const std::string& question) {
    Generate request = options_.request;
    request.request = random_stream_id();
    request.messages = conversation_.turns(question);
    request.sampling.temperature = temperature_;
    request.sampling.seed = seed_ + answers_of_seed_++;
    if (is_plain_transcript() && request.stop.size() < pipeline_->limits().max_stop)
      request.stop.push_back("\nuser:"); // nothing else tells such a model that its turn is over

    Answer answer;
    answer.seed = *request.sampling.seed;
    interrupts_.begin(++number_);
    if (auto failure = pipeline_->submit(request))
      answer.failure = std::move(*failure);
    else
      receive(request.request, answer);
    interrupts_.end();
    return answer;
  }

  void receive(const StreamId& stream, Answer& answer) {
    AnswerPrinter printer(stdout_is_terminal());
    std::optional<ProgressBar> bar;
    for (bool last = false; !last;) {
      const auto input = queue_.pop();
      if (const auto* interrupt = std::get_if<Interrupt>(&input)) {
        if (interrupt->answer == number_)
          pipeline_->cancel(stream);
        continue;
      }
      const Event& event = std::get<Event>(input);
      if (const auto* started = std::get_if<Started>(&event)) {
        if (started->epoch == 0) // what a preempted answer finds again was not known before
          answer.cached_tokens = started->cached_tokens;
      } else if (const auto* progress = std::get_if<Progress>(&event)) {
        if (!bar)
          bar.emplace("reading");
        bar->update(double(progress->processed) / std::max(1, progress->total));
      } else if (const auto* token = std::get_if<Token>(&event)) {
        bar.reset();
        printer(token->text);
      } else if (const auto* finished = std::get_if<Finished>(&event)) {
        bar.reset();
        printer(finished->text);
        answer.text = printer.finish();
        answer.reason = finished->reason;
        if (finished->reason == to_string(FinishReason::error))
          answer.failure = {Error::internal, "", "the answer could not go on: " + finished->error};
      } else if (const auto* done = std::get_if<Done>(&event)) {
        answer.done = *done;
        last = true;
      } else if (const auto* rejected = std::get_if<Rejected>(&event)) {
        answer.failure = {error_of(rejected->error), rejected->field, rejected->message};
        last = true;
      }
    }
  }

  static Error error_of(std::string_view name) {
    return name == to_string(Error::prompt_too_long) ? Error::prompt_too_long : Error::internal;
  }
  static int32_t used(const Done& done) { return done.prompt_tokens + done.generated_tokens; }
  static std::string count(size_t n, const char* what) {
    return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s");
  }
  bool is_plain_transcript() const {
    return engine_.chat.chat_template && engine_.chat.chat_template->source() == ChatTemplate::plain();
  }

  /// What everybody must know.
  static void say(const std::string& text) { std::fprintf(stderr, "[%s]\n", for_terminal(text).c_str()); }
  /// What only a person wants to know.
  void note(const std::string& text) const {
    if (interactive_)
      say(text);
  }

  const Options& options_;
  const bool interactive_;
  LineEditor& editor_;
  EventQueue<std::variant<Event, Interrupt>> queue_;
  Interrupts interrupts_;
  SignalWatch signals_; // before any other thread
  Engine engine_;
  Conversation conversation_;
  std::optional<std::string> unanswered_; // the last question, if it got no answer
  uint64_t seed_ = 0, answers_of_seed_ = 0;
  float temperature_ = 0;
  uint64_t number_ = 0; // of the answers, refused ones included
  size_t answers_ = 0;
  int64_t generated_ = 0, decoded_ = 0;
  double decode_ms_ = 0;
  Answer last_;
  bool ended_ = false;
  std::unique_ptr<Pipeline> pipeline_; // ends first: its events come to the queue
};

int chat(const Options& options) {
  const bool interactive = ::isatty(STDIN_FILENO) == 1 && (stdout_is_terminal() || stderr_is_terminal());
  const auto editor = interactive ? make_terminal_editor(options.no_history ? std::filesystem::path() : chat_history_path())
                                  : make_script_reader();
  return Chat(options, interactive, *editor).run();
}

} // namespace

void add_chat(CLI::App& program, Action& chosen) {
  auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("chat", "Hold a conversation in the terminal");
  command.add_option("--system", options->system, "What the model is told before the conversation")
      ->option_text("TEXT");
  command.add_option("--prompt", options->prompt_file, "Ask what this file holds, first of all")
      ->option_text("FILE");
  command.add_flag("--no-history", options->no_history, "Remember nothing of what is typed");
  add_model_options(command, options->model);
  add_generation_options(command, options->request);
  command.remove_option(command.get_option("--logprobs"));
  command.footer(kExamples);
  command.callback([options, &chosen] { chosen = [options] { return chat(*options); }; });
}

} // namespace millrace
