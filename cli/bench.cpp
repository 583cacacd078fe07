// bench: how fast the model runs here, next to what the machine could do at most.

#include "actors/pipeline.hpp"
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/event_queue.hpp"
#include "cli/load.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "cli/peaks.hpp"
#include "cli/progress.hpp"
#include "gateway/json.hpp"
#include "model/sampler.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
  millrace bench                               the built-in model
  millrace bench -m model.gguf -p 1024 -n 64 --threads 2
Each figure is a median. Decoding reads all weights for each token, so it is bound by the read bandwidth;
a prompt shares one reading among many tokens, so it is bound by arithmetic.)";

struct Options {
  ModelOptions model;
  int32_t prompt = 512;
  int32_t generate = 128;
  int32_t chunk = 128;
  int32_t repeats = 5;
  int32_t probe_mib = 1024;
  bool json = false;
};

struct Phase {
  int32_t tokens = 0;
  double tokens_s = 0; // median
  double min_tokens_s = 0, max_tokens_s = 0;
  double gb_s = 0;          // weights only
  double gop_s = 0;         // matrix products only
  double share_of_read = 0; // of the probes
  double share_of_arithmetic = 0;
  MILLRACE_FIELDS(tokens, tokens_s, min_tokens_s, max_tokens_s, gb_s, gop_s, share_of_read,
                  share_of_arithmetic)
};

struct Report {
  std::string cpu;
  int32_t threads = 0;
  std::string isa;
  std::string activations;
  std::string model;
  uint64_t bytes_per_token = 0;
  int64_t operations_per_token = 0; // of a generated token: two for each weight of a matrix product
  Rates probes;
  Phase prefill, decode;
  double loop_overhead_us = 0; // a token, beyond its pass, when the actors run the loop
  MILLRACE_FIELDS(cpu, threads, isa, activations, model, bytes_per_token, operations_per_token, probes,
                  prefill, decode, loop_overhead_us)
};

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      return line.substr(std::min(line.find(": ") + 2, line.size()));
  return "unknown CPU";
}

/// One sequence that is read and continued: what prefill and decode do, without the actors around them.
class Run {
public:
  Run(Device& device, int64_t positions)
      : device_(device), table_(device.blocks().allocate(positions)),
        logits_(size_t(device.config().vocab_size)) {
    if (!table_)
      throw std::runtime_error("no room in the KV cache for " + std::to_string(positions) + " positions");
  }

  /// Seconds for a prompt of n tokens, whatever they are: only the last row makes logits.
  double prefill(int32_t n, int32_t chunk) {
    const int32_t vocab = device_.config().vocab_size;
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Row> rows;
    for (int32_t from = 0; from < n; from += chunk) {
      const int32_t to = std::min(from + chunk, n);
      rows.clear();
      for (int32_t p = from; p < to; ++p)
        rows.push_back({TokenId((int64_t{p} * 7919 + 11) % vocab), p, table_->blocks(), p + 1 == n});
      device_.forward(rows, to == n ? std::span(logits_) : std::span<float>());
    }
    return seconds_since(begin);
  }

  /// Seconds for n more tokens after `position`, each the likeliest.
  double decode(int32_t n, int32_t position) {
    const auto begin = std::chrono::steady_clock::now();
    for (int32_t i = 0; i < n; ++i) {
      const auto next = TokenId(std::max_element(logits_.begin(), logits_.end()) - logits_.begin());
      const Row row{next, position + i, table_->blocks(), true};
      device_.forward({&row, 1}, logits_);
    }
    return seconds_since(begin);
  }

private:
  static double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  Device& device_;
  std::shared_ptr<BlockTable> table_;
  std::vector<float> logits_;
};

/// Microseconds that each token takes beyond its pass when the actors run the loop, over the tokens of one
/// request.
double loop_overhead_us(const Engine& engine, int32_t tokens) {
  struct Moment {
    std::chrono::steady_clock::time_point time;
    double busy_seconds; // of the device so far
  };
  std::vector<Moment> moments;
  EventQueue<Event> ends;
  Pipeline pipeline(engine.tokenizer, engine.device, {}, [&](const Event& event) {
    if (std::holds_alternative<Token>(event))
      moments.push_back({std::chrono::steady_clock::now(), engine.device->counters().busy_seconds});
    if (std::holds_alternative<Done>(event) || std::holds_alternative<Rejected>(event))
      ends.push(event);
  });

  Generate request;
  request.request = random_stream_id();
  request.prompt_ids = {0};
  request.max_tokens = tokens;
  request.sampling.temperature = 0;
  request.sampling.seed = 0;
  request.ignore_eos = true;
  if (const auto failure = pipeline.submit(request))
    throw_refusal(*failure);
  ends.pop();
  if (moments.size() < 2)
    return 0;
  const auto& first = moments.front();
  const auto& last = moments.back();
  const double wall_seconds = std::chrono::duration<double>(last.time - first.time).count();
  return 1e6 * (wall_seconds - (last.busy_seconds - first.busy_seconds)) / double(moments.size() - 1);
}

/// tokens/s from the seconds of the repeats.
Phase summarize(int32_t tokens, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  Phase phase;
  phase.tokens = tokens;
  phase.tokens_s = tokens / seconds[seconds.size() / 2];
  phase.min_tokens_s = tokens / seconds.back();
  phase.max_tokens_s = tokens / seconds.front();
  return phase;
}

void print_report(const Report& r) {
  print(format("%s, %d threads, %s, activations %s\n"
               "%s: %.1f MB of weights and %.3f Gop for each generated token\n\n",
               r.cpu.c_str(), r.threads, r.isa.c_str(), r.activations.c_str(), r.model.c_str(),
               double(r.bytes_per_token) / 1e6, double(r.operations_per_token) / 1e9));
  print(format("probe    read %.1f GB/s   int8 %.0f Gop/s   f32 %.0f Gop/s\n", r.probes.read_gb_s,
               r.probes.int8_gop_s, r.probes.f32_gop_s));
  const auto row = [&](const char* name, const Phase& p) {
    print(format("%-8s %5d tokens  %9.1f tokens/s (%.1f … %.1f)   %6.1f GB/s, %2.0f %% of read   %7.1f "
                 "Gop/s, %2.0f %% of %s\n",
                 name, p.tokens, p.tokens_s, p.min_tokens_s, p.max_tokens_s, p.gb_s, 100 * p.share_of_read,
                 p.gop_s, 100 * p.share_of_arithmetic, r.activations == "q8" ? "int8" : "f32"));
  };
  row("prefill", r.prefill);
  row("decode", r.decode);
  print(format("loop     %.0f us a token beyond the pass, when the actors run it\n", r.loop_overhead_us));
}

int bench(const Options& options) {
  const Engine engine = load_engine(options.model);
  Device& device = *engine.device;
  const int32_t positions = options.prompt + options.generate;
  if (positions > device.context_length())
    throw UsageError(
        format("-p and -n: %d tokens are more than the context's %d", positions, device.context_length()));

  Report report;
  report.cpu = cpu_name();
  report.threads = threads_of(options.model.threads);
  report.isa = device.key().kernel_path;
  report.activations = device.key().activations;
  report.model = model_name(*engine.model, options.model);
  const DeviceCost cost = device.cost();
  report.bytes_per_token = uint64_t(cost.weight_bytes);
  report.operations_per_token = int64_t(cost.row_operations + cost.logits_operations);
  report.probes = measure_peaks(report.threads, size_t(options.probe_mib) << 20);

  std::vector<double> prefill, decode;
  {
    ProgressBar bar("running the model");
    Run run(device, positions);
    run.prefill(options.prompt, options.chunk); // caches, clocks and threads warm up
    for (int32_t i = 0; i < options.repeats; ++i) {
      prefill.push_back(run.prefill(options.prompt, options.chunk));
      decode.push_back(run.decode(options.generate, options.prompt));
      bar.update(double(i + 1) / options.repeats);
    }
  }

  report.loop_overhead_us = loop_overhead_us(engine, options.generate);

  const double arithmetic = report.probes.gop_s(report.activations);
  const auto fill = [&](Phase& phase, double bytes_per_token, double operations_per_token) {
    phase.gb_s = phase.tokens_s * bytes_per_token / 1e9;
    phase.gop_s = phase.tokens_s * operations_per_token / 1e9;
    phase.share_of_read = phase.gb_s / report.probes.read_gb_s;
    phase.share_of_arithmetic = phase.gop_s / arithmetic;
  };
  report.prefill = summarize(options.prompt, prefill);
  report.decode = summarize(options.generate, decode);
  // A chunk reads the weights once; the output matrix meets only the last row of the prompt.
  const double chunks = (options.prompt + options.chunk - 1) / options.chunk;
  fill(report.prefill, cost.weight_bytes * chunks / options.prompt,
       cost.row_operations + cost.logits_operations / options.prompt);
  fill(report.decode, cost.weight_bytes, cost.row_operations + cost.logits_operations);

  if (options.json)
    print_line(to_json(report));
  else
    print_report(report);
  return 0;
}

} // namespace

void add_bench(CLI::App& program, Action& chosen) {
  auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand(
      "bench", "Speed of prompt and generation, next to the machine's measured peaks");
  add_model_options(command, options->model);
  command.option_defaults()->group("Measurement");
  add_int(command, "-p,--prompt-tokens", options->prompt, 1, 1 << 20, "Tokens of the prompt [512]");
  add_int(command, "-n,--generate-tokens", options->generate, 1, 1 << 20, "Tokens generated after it [128]");
  add_int(command, "--prefill-chunk", options->chunk, 1, 1 << 16, "Prompt tokens in one pass [128]");
  add_int(command, "--repeats", options->repeats, 1, 1000, "Runs that the median is taken of [5]");
  add_int(command, "--probe-mib", options->probe_mib, 1, 1 << 16,
          "Size of the array that the read probe reads [1024]");
  command.add_flag("--json", options->json, "The figures as one object")->group("Output");
  command.footer(kExamples);
  command.callback([options, &chosen] { chosen = [options] { return bench(*options); }; });
}

} // namespace millrace
