// top: how a server does, once a second, asked over ZeroMQ.

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "cli/signals.hpp"
#include "cli/top_view.hpp"
#include "gateway/client.hpp"
#include "gateway/json.hpp"
#include "gateway/zeromq/curve_key.hpp"

#include <sys/ioctl.h>
#include <unistd.h>
#include <zmq.hpp>

#include <condition_variable>
#include <cstdio>
#include <mutex>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr const char* kExamples = R"(Examples:
  millrace top                      the server on port 5555, until Ctrl-C
  millrace top --once               one look; code 1 if nobody answers
  millrace top --json | jq .running a line of JSON each second

Asks the ROUTER socket; a server that has gone is waited for. Into a file or a pipe it writes plain text.)";

constexpr auto kPatience = 1s;          // for an answer
constexpr auto kBetweenSamples = 250ms; // with --once, for the rates

struct Options {
  std::string endpoint = "tcp://127.0.0.1:5555";
  int32_t port = -1;
  std::string server_key, key_file;
  int32_t interval = 1; // seconds
  int32_t rows = 64;
  bool once = false, json = false;
};

ClientOptions client_options(const Options& options) {
  ClientOptions client{.requests = options.endpoint, .events = ""};
  if (options.port >= 0)
    client.requests = "tcp://127.0.0.1:" + std::to_string(options.port);
  if (options.server_key.empty() != options.key_file.empty())
    throw UsageError("--server-key and --curve-key go together");
  if (options.server_key.empty())
    return client;
  if (!is_curve_key(options.server_key))
    throw UsageError(
        "--server-key is the server's public key: 40 characters, as `millrace keygen` prints it");
  const CurveKeyPair own = read_curve_key_pair(options.key_file);
  client.server_key = options.server_key;
  client.public_key = own.public_key;
  client.secret_key = own.secret_key;
  return client;
}

/// Set once, by a signal.
class Stop {
public:
  void set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool wait_until(Clock::time_point time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, time, [this] { return set_; });
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

/// The second screen of a terminal without its cursor, for as long as this lives; else nothing.
class Screen {
public:
  explicit Screen(bool on) : on_(on) {
    if (on_)
      print("\x1b[?1049h\x1b[?25l");
  }
  ~Screen() {
    if (on_)
      std::fputs("\x1b[?25h\x1b[?1049l", stdout), std::fflush(stdout);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void show(const std::vector<std::string>& lines) const {
    if (on_) {
      winsize size{}; // as it is now: it may have changed
      const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0;
      return print(top_screen(lines, known ? size.ws_row : 24, known ? size.ws_col : 80));
    }
    std::string text;
    for (const std::string& line : lines)
      text += line + '\n';
    print(text + '\n');
  }

private:
  const bool on_;
};

int once(Client& client, const Options& options, const std::string& endpoint, Stop& stop) {
  auto stats = client.stats(options.rows, 3 * kPatience);
  if (!stats)
    throw std::runtime_error("no answer from " + quote(endpoint));
  if (options.json) {
    print_line(to_json(*stats));
    return 0;
  }
  const StatsSample first{*std::move(stats), Clock::now()};
  stop.wait_until(first.when + kBetweenSamples);
  stats = client.stats(options.rows, kPatience);
  const StatsSample second = stats ? StatsSample{*std::move(stats), Clock::now()} : first;
  for (const std::string& line : top_lines(second, stats ? std::optional(first) : std::nullopt))
    print_line(line);
  return 0;
}

int watch(Client& client, const Options& options, const std::string& endpoint, Stop& stop) {
  const bool terminal = stdout_is_terminal() && !options.json;
  const Screen screen(terminal);
  std::optional<StatsSample> last;
  bool lost = false;
  for (auto next = Clock::now();;) {
    auto stats = client.stats(options.rows, kPatience);
    if (stats) {
      lost = false;
      const StatsSample now{*std::move(stats), Clock::now()};
      if (options.json)
        print_line(to_json(now.stats));
      else
        screen.show(top_lines(now, last));
      last = now;
    } else {
      const std::string text = "no answer from " + quote(endpoint) + ", waiting for it";
      if (terminal) {
        std::vector<std::string> lines = last ? top_lines(*last, std::nullopt) : std::vector<std::string>(1);
        lines.front() = text;
        screen.show(lines);
      } else if (!std::exchange(lost, true)) {
        std::fprintf(stderr, "millrace: %s\n", text.c_str());
      }
    }
    next = std::max(next + std::chrono::seconds(options.interval), Clock::now());
    if (stop.wait_until(next))
      return 0;
  }
}

int top(const Options& options) {
  const ClientOptions client_opts = client_options(options);
  Stop stop;
  const SignalWatch signals([&](int signal, int count) {
    if (count > 1)
      std::_Exit(128 + signal);
    stop.set();
  });
  std::optional<Client> client;
  try {
    client.emplace(client_opts);
  } catch (const zmq::error_t& error) {
    throw UsageError("the endpoint " + quote(client_opts.requests) + ": " + error.what());
  }
  return options.once ? once(*client, options, client_opts.requests, stop)
                      : watch(*client, options, client_opts.requests, stop);
}

} // namespace

void add_top(CLI::App& program, Action& chosen) {
  auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("top", "Watch a running server: requests, tokens/s, KV cache");
  auto* port = add_int(command, "--port", options->port, 1, 65535, "Loopback port of its requests [5555]");
  command.add_option("--requests-endpoint", options->endpoint, "Its ROUTER socket [tcp://127.0.0.1:5555]")
      ->option_text("URL")
      ->excludes(port);
  command.add_option("--server-key", options->server_key, "Its public CURVE key")->option_text("KEY");
  command.add_option("--curve-key", options->key_file, "Our secret CURVE key, from `millrace keygen`")
      ->option_text("FILE");
  add_int(command, "--interval", options->interval, 1, 3600, "Seconds between two looks [1]");
  add_int(command, "--rows", options->rows, 0, 1024, "Requests that are shown [64]");
  command.add_flag("--once", options->once, "Look once and end");
  command.add_flag("--json", options->json, "A line of JSON for each look");
  command.footer(kExamples);
  command.callback([options, &chosen] { chosen = [options] { return top(*options); }; });
}

} // namespace millrace
