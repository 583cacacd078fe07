// inspect: what a model file holds and what running it takes, without running it.

#include "cli/commands.hpp"
#include "cli/load.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "gateway/json.hpp"

#include <algorithm>
#include <map>

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
  millrace inspect                 the built-in model
  millrace inspect -m model.gguf --json)";

/// All tensors of one type together.
struct TypeFacts {
  std::string type;
  int64_t tensors = 0;
  int64_t parameters = 0;
  uint64_t bytes = 0;
  MILLRACE_FIELDS(type, tensors, parameters, bytes)
};

struct Facts {
  std::string name;
  std::string architecture;
  uint64_t file_bytes = 0;
  int32_t gguf_version = 0;
  std::string hash; // xxHash3 of the file, hex
  int64_t parameters = 0;
  int32_t layers = 0;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  double rope_theta = 0;
  int32_t rope_dim = 0;
  int32_t context_length = 0;
  int32_t vocab_size = 0;       // width of the logits
  std::string tokenizer;        // "gpt2/qwen2"; empty if the file has none that is supported
  std::string tokenizer_error;  // why so
  int32_t tokens = 0;           // in the tokenizer
  bool tied_output = false;     // one matrix is embedding and output
  uint64_t kv_bytes_per_position = 0;
  uint64_t weight_bytes_per_token = 0; // read for each decoded token
  std::vector<TypeFacts> types;        // most bytes first
  MILLRACE_FIELDS(name, architecture, file_bytes, gguf_version, hash, parameters, layers, hidden_size,
                  intermediate_size, heads, kv_heads, head_dim, rope_theta, rope_dim, context_length,
                  vocab_size, tokenizer, tokenizer_error, tokens, tied_output, kv_bytes_per_position,
                  weight_bytes_per_token, types)
};

std::vector<TypeFacts> collect_types(const GgufFile& file) {
  std::map<DType, TypeFacts> by_type;
  for (const auto& tensor : file.tensors()) {
    int64_t parameters = 1;
    for (const int64_t dim : tensor.dims)
      parameters *= dim;
    auto& facts = by_type[tensor.type];
    facts.type = traits(tensor.type).name;
    facts.tensors += 1;
    facts.parameters += parameters;
    facts.bytes += tensor.bytes;
  }
  std::vector<TypeFacts> types;
  for (auto& [type, facts] : by_type)
    types.push_back(std::move(facts));
  std::stable_sort(types.begin(), types.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
  return types;
}

/// Everything but the text.
Facts collect_facts(const Model& model) {
  const auto& config = model.config();
  Facts facts;
  facts.name = config.name;
  facts.architecture = config.architecture;
  facts.file_bytes = model.file().bytes().size();
  facts.gguf_version = int32_t(model.file().version());
  facts.hash = format("%016llx", static_cast<unsigned long long>(model.hash()));
  facts.parameters = model.parameters();
  facts.layers = config.n_layers;
  facts.hidden_size = config.hidden_size;
  facts.intermediate_size = config.intermediate_size;
  facts.heads = config.n_heads;
  facts.kv_heads = config.n_kv_heads;
  facts.head_dim = config.head_dim;
  facts.rope_theta = config.rope_theta;
  facts.rope_dim = config.rope_dim;
  facts.context_length = config.context_length;
  facts.vocab_size = config.vocab_size;
  facts.tied_output = model.tied_output;
  // A key and a value of each KV head in each layer, kept as F32 (kernels/attention.hpp).
  facts.kv_bytes_per_position =
      uint64_t(config.n_layers) * uint64_t(config.n_kv_heads) * uint64_t(config.head_dim) * 2 * sizeof(float);
  facts.weight_bytes_per_token = model.bytes_per_token();
  facts.types = collect_types(model.file());
  try {
    const Tokenizer tokenizer(model.file());
    facts.tokenizer = tokenizer.kind();
    facts.tokens = tokenizer.vocab_size();
  } catch (const FormatError& e) {
    facts.tokenizer_error = e.what();
  }
  return facts;
}

/// "491.4 MB": three or four digits and the unit, in powers of ten.
std::string amount(double value, const char* unit) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T"};
  size_t prefix = 0;
  for (; value >= 1000 && prefix + 1 < std::size(kPrefixes); ++prefix)
    value /= 1000;
  return format(prefix == 0 ? "%.0f %s%s" : "%.1f %s%s", value, kPrefixes[prefix], unit);
}

std::string as_text(const Facts& f) {
  std::string out;
  const auto row = [&out](const char* label, const std::string& text) { out += format("%-12s ", label) + text + '\n'; };
  row("model", f.name.empty() ? "(unnamed)" : f.name);
  row("architecture", f.architecture);
  row("file", format("%s, GGUF version %d, xxh3 %s", amount(double(f.file_bytes), "B").c_str(), f.gguf_version,
                     f.hash.c_str()));
  row("parameters", amount(double(f.parameters), ""));
  row("layers", format("%d of width %d, feed-forward %d", f.layers, f.hidden_size, f.intermediate_size));
  row("attention", format("%d heads of %d, %d for keys and values", f.heads, f.head_dim, f.kv_heads));
  row("positions", format("RoPE over %d numbers, base %.10g; context %d", f.rope_dim, f.rope_theta, f.context_length));
  row("output", format("%d logits, %s", f.vocab_size, f.tied_output ? "tied to the embedding" : "a matrix of its own"));
  row("tokenizer", f.tokenizer.empty() ? "none: " + f.tokenizer_error
                                       : format("%s, %d tokens", f.tokenizer.c_str(), f.tokens));
  row("KV cache", format("%s a position, %s for the whole context", amount(double(f.kv_bytes_per_position), "B").c_str(),
                         amount(double(f.kv_bytes_per_position) * f.context_length, "B").c_str()));
  row("decode", format("reads %s of weights a token", amount(double(f.weight_bytes_per_token), "B").c_str()));
  out += format("\n%-8s %8s %12s %12s %7s\n", "type", "tensors", "parameters", "bytes", "share");
  uint64_t bytes = 0;
  for (const auto& type : f.types)
    bytes += type.bytes;
  for (const auto& type : f.types)
    out += format("%-8s %8lld %12s %12s %5.1f %%\n", type.type.c_str(), static_cast<long long>(type.tensors),
                  amount(double(type.parameters), "").c_str(), amount(double(type.bytes), "B").c_str(),
                  100 * double(type.bytes) / double(bytes));
  return out;
}

int inspect(const ModelOptions& options, bool json) {
  const auto facts = collect_facts(*load_model(options));
  if (json)
    print_line(to_json(facts));
  else
    print(as_text(facts));
  return 0;
}

} // namespace

void add_inspect(CLI::App& program, Action& chosen) {
  struct Options {
    ModelOptions model;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  auto& command = *program.add_subcommand("inspect", "Tell what a model file holds and what running it takes");
  add_model_path(command, options->model);
  command.add_flag("--json", options->json, "One JSON object");
  command.footer(kExamples);
  command.callback([options, &chosen] { chosen = [options] { return inspect(options->model, options->json); }; });
}

} // namespace millrace
