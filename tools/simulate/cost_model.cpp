#include "tools/simulate/cost_model.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <stdexcept>

namespace millrace::simulate {
namespace {

BenchReport::Phase read_phase(const nlohmann::json& report, const char* name) {
  const auto& phase = report.at(name);
  return {.tokens = phase.at("tokens").get<int32_t>(), .tokens_s = phase.at("tokens_s").get<double>()};
}

BenchReport read_json(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    return {.cpu = json.at("cpu").get<std::string>(),
            .model = json.at("model").get<std::string>(),
            .threads = json.at("threads").get<int32_t>(),
            .prefill = read_phase(json, "prefill"),
            .decode = read_phase(json, "decode"),
            .loop_overhead_us = json.at("loop_overhead_us").get<double>()};
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(std::string("not the JSON of `millrace bench`: ") + error.what());
  }
}

// CPU, 2 threads, avx2, activations q8
// model: 392.0 MB of weights and …
// prefill   512 tokens   250.0 tokens/s (…
// loop     85 us a token …
BenchReport read_table(const std::string& text) {
  BenchReport report;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    char name[8] = {};
    BenchReport::Phase phase;
    double overhead = 0;
    if (std::sscanf(line.c_str(), "%7s %d tokens %lf tokens/s", name, &phase.tokens, &phase.tokens_s) == 3)
      (std::string(name) == "prefill" ? report.prefill : report.decode) = phase;
    else if (std::sscanf(line.c_str(), "loop %lf us", &overhead) == 1)
      report.loop_overhead_us = overhead;
    else if (const auto threads = line.find(" threads, "); threads != std::string::npos) {
      const auto comma = line.rfind(", ", threads);
      report.cpu = line.substr(0, comma);
      report.threads = comma == std::string::npos ? 0 : std::atoi(line.c_str() + comma + 2);
    } else if (const auto weights = line.find(" MB of weights"); weights != std::string::npos) {
      report.model = line.substr(0, line.rfind(": ", weights));
    }
  }
  return report;
}

struct Point {
  double rows, seconds;
};

CostModel line_through(const std::vector<Point>& points) {
  double rows = 0, seconds = 0, rows2 = 0, product = 0;
  for (const Point& point : points) {
    rows += point.rows;
    seconds += point.seconds;
    rows2 += point.rows * point.rows;
    product += point.rows * point.seconds;
  }
  const auto n = double(points.size());
  const double variance = rows2 / n - rows / n * (rows / n);
  if (variance < 1)
    throw std::invalid_argument("the benches have passes of one size only: a line needs a longer prompt");
  PassCost cost;
  cost.row = (product / n - rows / n * (seconds / n)) / variance;
  cost.fixed = seconds / n - cost.row * rows / n;
  if (cost.row <= 0 || cost.fixed < 0)
    throw std::invalid_argument("the benches give no line: " + std::to_string(1e3 * cost.fixed) + " ms a pass and " +
                                std::to_string(1e3 * cost.row) + " ms a row");
  return {.prefill = cost, .decode = cost};
}

} // namespace

double CostModel::capacity(int32_t prompt_tokens, int32_t output_tokens, int32_t batch) const {
  const double step = decode.seconds(batch, int64_t{batch} * (prompt_tokens + output_tokens / 2));
  return 1 / (prefill.seconds(prompt_tokens, int64_t{prompt_tokens} * prompt_tokens / 2) + output_tokens * step / batch);
}

BenchReport read_bench(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  const BenchReport report = first != std::string::npos && text[first] == '{' ? read_json(text) : read_table(text);
  for (const auto& [name, phase] : {std::pair("prefill", report.prefill), std::pair("decode", report.decode)})
    if (phase.tokens < 1 || !(phase.tokens_s > 0))
      throw std::invalid_argument(std::string("not the output of `millrace bench`: it has no tokens/s of ") + name);
  return report;
}

CostModel fit(const std::vector<BenchReport>& reports, int32_t chunk) {
  std::vector<Point> points;
  std::string source;
  double overhead = 0;
  for (const BenchReport& report : reports) {
    const int32_t passes = (report.prefill.tokens + chunk - 1) / chunk;
    const double rows = double(report.prefill.tokens) / passes;
    points.push_back({rows, rows / report.prefill.tokens_s});
    points.push_back({1, 1 / report.decode.tokens_s});
    const std::string of = report.model + " on " + report.cpu + ", " + std::to_string(report.threads) + " threads";
    if (source.find(of) == std::string::npos)
      source += (source.empty() ? "bench: " : "; ") + of;
    overhead += report.loop_overhead_us / double(reports.size());
  }
  CostModel model = line_through(points);
  model.loop = std::max(overhead, 0.0) * 1e-6;
  model.source = source;
  return model;
}

} // namespace millrace::simulate
