// simulate: the server's scheduler under a made-up load, in virtual time.

#include "tools/simulate/report.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <sstream>

namespace millrace::simulate {
namespace {

struct Options {
  TraceOptions trace;
  std::string trace_name = "poisson";
  int64_t deadline_ms = 0;
  SimulationOptions simulation;
  std::vector<std::string> benches;
  int32_t bench_chunk = 128;
  Slo slo;
  bool no_prefix_cache = false;
  bool json = false;
};

constexpr double kMostSeconds = 1e6;

void add_trace_options(CLI::App& program, Options& options) {
  TraceOptions& trace = options.trace;
  auto& group = *program.add_option_group("Load");
  group.add_option("--trace", options.trace_name, "What comes when")->check(CLI::IsMember(trace_names()))->capture_default_str();
  group.add_option("--seed", trace.seed, "Of all draws")->capture_default_str();
  group.add_option("--rate", trace.rate,
                   "Requests a second [twice what the device can serve for greedy-tenant, 10 times for overload, "
                   "0.05 for long-among-short, else half of it]")
      ->check(CLI::Range(1e-6, 1e6));
  group.add_option("--duration", trace.duration, "Seconds in which requests come")
      ->check(CLI::Range(0.0, kMostSeconds))
      ->capture_default_str();
  group.add_option("--tenants", trace.tenants, "That requests come from at random")->check(CLI::Range(1, 10'000))->capture_default_str();
  group.add_option("--prompt-tokens", trace.prompt_tokens, "Mean of the prompts' lengths")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  group.add_option("--output-tokens", trace.output_tokens, "Mean of what is generated")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  group.add_option("--prefix-tokens", trace.prefix_tokens, "shared-prefix: before each prompt")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  group.add_option("--long-tokens", trace.long_tokens, "long-among-short: prompt of a long one")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  group.add_option("--streams", trace.streams, "long-among-short: short ones that run beside")
      ->check(CLI::Range(0, 10'000))
      ->capture_default_str();
  group.add_option("--cancel-fraction", trace.cancel_fraction, "Share of the requests whose client leaves, within 10 s")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  group.add_option("--deadline-ms", options.deadline_ms, "From a request's arrival [none]")->check(CLI::Range(1, 1 << 30));
}

void add_scheduler_options(CLI::App& program, Options& options) {
  SchedulerOptions& scheduler = options.simulation.scheduler;
  auto& group = *program.add_option_group("Server");
  const auto add = [&](const std::string& flag, auto& target, double from, double to, const std::string& help) {
    group.add_option(flag, target, help)->check(CLI::Range(from, to))->capture_default_str();
  };
  const auto add_ms = [&](const std::string& flag, std::chrono::milliseconds& target, const std::string& help) {
    group
        .add_option_function<int64_t>(
            flag, [&target](int64_t ms) { target = std::chrono::milliseconds(ms); },
            help + " [" + std::to_string(target.count()) + "]")
        ->check(CLI::Range(0, 1 << 30));
  };
  add("--max-batch-size", scheduler.max_batch_size, 1, 4096, "Sequences on the device");
  add("--prefill-chunk", scheduler.prefill_chunk, 1, 1 << 16, "Prompt tokens in one pass, at most");
  add("--prefill-stretch", scheduler.prefill_stretch, 0, 1000, "Decode steps that a pass over prompts may take beside streams");
  add("--max-queued-tokens", scheduler.max_queued_tokens, 1, 1 << 30, "Of prompts that wait");
  add("--max-queued-requests", scheduler.max_queued_requests, 1, 1 << 30, "That wait");
  add("--max-tenant-share", scheduler.max_tenant_share, 0, 1, "Of either bound, for a named tenant");
  add_ms("--max-queue-wait-ms", scheduler.max_queue_wait, "What would wait longer is refused; 0: nothing");
  add_ms("--ageing-ms", scheduler.ageing, "After so much waiting a request is a level of priority more urgent");
  add("--context", options.simulation.context_length, 2, 1 << 20, "Positions of one sequence");
  add("--kv-blocks", options.simulation.kv_blocks, 1, 1 << 24, "Of 16 positions");
  group.add_flag("--no-prefix-cache", options.no_prefix_cache, "Read each prompt as a whole");
}

void add_cost_options(CLI::App& program, Options& options) {
  CostModel& cost = options.simulation.cost;
  auto& group = *program.add_option_group("Cost of a pass");
  group.add_option("--fit", options.benches, "Outputs of `millrace bench`, tables or JSON, to take the cost from")
      ->check(CLI::ExistingFile);
  group.add_option("--bench-chunk", options.bench_chunk, "Their --prefill-chunk")->check(CLI::Range(1, 1 << 16))->capture_default_str();
  const auto add_cost = [&](const std::string& kind, PassCost& pass) {
    const auto add = [&](const std::string& part, double& target, double unit, const std::string& help) {
      char text[32];
      std::snprintf(text, sizeof text, " [%.4g]", target / unit);
      group
          .add_option_function<double>("--" + kind + "-" + part, [&target, unit](double value) { target = value * unit; }, help + text)
          ->check(CLI::Range(0.0, 1e6))
          ->excludes("--fit");
    };
    add("fixed-ms", pass.fixed, 1e-3, "Of each pass");
    add("row-ms", pass.row, 1e-3, "For each row");
    add("position-us", pass.position, 1e-6, "For each position that a row sees");
  };
  add_cost("prefill", cost.prefill);
  add_cost("decode", cost.decode);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    throw std::invalid_argument("can't read " + path);
  return text.str();
}

CostModel read_cost(const Options& options) {
  if (options.benches.empty())
    return options.simulation.cost;
  std::vector<BenchReport> reports;
  for (const std::string& path : options.benches)
    reports.push_back(read_bench(read_file(path)));
  return fit(reports, options.bench_chunk);
}

int simulate_and_report(Options options) {
  options.trace.kind = *trace_kind(options.trace_name);
  if (options.deadline_ms > 0)
    options.trace.deadline = std::chrono::milliseconds(options.deadline_ms);
  SimulationOptions& simulation = options.simulation;
  simulation.prefix_cache = !options.no_prefix_cache;
  simulation.cost = read_cost(options);
  const double capacity = simulation.cost.capacity(options.trace.prompt_tokens, options.trace.output_tokens,
                                                   simulation.scheduler.max_batch_size);
  const auto trace = make_trace(options.trace, capacity);
  const Report report = make_report(trace, simulate(trace, simulation), options.slo);
  if (options.json) {
    nlohmann::ordered_json json = to_json(report);
    json["trace"] = options.trace_name;
    json["seed"] = options.trace.seed;
    json["capacity"] = capacity;
    json["cost"] = to_json(simulation.cost);
    std::puts(json.dump().c_str());
  } else {
    std::printf("%s, seed %llu; the device can serve about %.2f such requests/s\n\n%s", options.trace_name.c_str(),
                static_cast<unsigned long long>(options.trace.seed), capacity, to_table(report, simulation.cost).c_str());
  }
  return 0;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App program("The server's scheduler under a made-up load, in virtual time", "simulate");
  add_trace_options(program, options);
  add_scheduler_options(program, options);
  add_cost_options(program, options);
  auto& output = *program.add_option_group("Output");
  output.add_option("--slo-ttft-ms", options.slo.ttft_ms, "A good request has its first token by then; 0: no limit")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  output.add_option("--slo-gap-ms", options.slo.gap_ms, "A good request has no longer gap; 0: no limit")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  output.add_flag("--json", options.json, "The figures as one object");
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  }
  return simulate_and_report(options);
}

} // namespace
} // namespace millrace::simulate

int main(int argc, char** argv) {
  try {
    return millrace::simulate::run(argc, argv);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "simulate: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "simulate: %s\n", error.what());
    return 1;
  }
}
