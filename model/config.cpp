#include "model/config.hpp"

#include "model/gguf.hpp"

#include <cmath>

namespace millrace {

namespace {

/// What tells the supported architectures apart.
struct Architecture {
  std::string_view name;
  RopeStyle rope_style;
  bool qkv_bias;
};

constexpr Architecture kArchitectures[] = {
  {"llama", RopeStyle::interleaved, false},
  {"qwen2", RopeStyle::halves, true},
};

const Architecture& find_architecture(const GgufFile& file) {
  auto name = file.get_string("general.architecture");
  if (!name) throw FormatError("metadata key 'general.architecture' is missing");
  std::string supported;
  for (auto& architecture : kArchitectures) {
    if (architecture.name == *name) return architecture;
    supported += (supported.empty() ? "" : ", ") + std::string(architecture.name);
  }
  throw FormatError("architecture '" + printable(*name) + "' is not supported (" + supported + " are)");
}

/// The keys "<architecture>.…".
class Hyperparameters {
public:
  Hyperparameters(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  std::optional<int32_t> find_int(const std::string& key, int32_t min, int32_t max) const {
    auto value = file_.get_int(prefix_ + key, min, max);
    return value ? std::optional(int32_t(*value)) : std::nullopt;
  }

  int32_t get_int(const std::string& key, int32_t min, int32_t max) const {
    if (auto value = find_int(key, min, max)) return *value;
    throw FormatError("metadata key '" + prefix_ + key + "' is missing");
  }

  /// Ranges are half-open at the lower end, so that 0 (and NaN) can be left out.
  std::optional<double> find_float(const std::string& key, double above, double max) const {
    auto value = file_.get_float(prefix_ + key);
    if (value && !(*value > above && *value <= max))
      fail(key, "is " + std::to_string(*value) + ", must be above " + std::to_string(above) + " and at most " +
                    std::to_string(max));
    return value;
  }

  double get_float(const std::string& key, double above, double max) const {
    if (auto value = find_float(key, above, max)) return *value;
    throw FormatError("metadata key '" + prefix_ + key + "' is missing");
  }

  std::optional<std::string_view> find_string(const std::string& key) const { return file_.get_string(prefix_ + key); }
  std::optional<bool> find_bool(const std::string& key) const { return file_.get_bool(prefix_ + key); }

  [[noreturn]] void fail(const std::string& key, const std::string& message) const {
    throw FormatError("metadata key '" + prefix_ + key + "' " + message);
  }

private:
  const GgufFile& file_;
  std::string prefix_;
};

/// Refuses what would load and then compute something else than the file means.
void refuse_unsupported(const GgufFile& file, const Hyperparameters& hyper) {
  if (auto type = file.get_string("general.type"); type && *type != "model")
    throw FormatError("metadata key 'general.type' is '" + printable(*type) + "', only 'model' is supported");
  if (auto parts = file.get_int("split.count", 0, 65535); parts.value_or(1) > 1)
    throw FormatError("metadata key 'split.count' is " + std::to_string(*parts) +
                      ": split files are not supported; merge the parts first");
  if (hyper.find_int("expert_count", 0, 65535).value_or(0) > 0)
    hyper.fail("expert_count", "is not 0: mixtures of experts are not supported");
  if (!hyper.find_bool("attention.causal").value_or(true))
    hyper.fail("attention.causal", "is false: only decoders are supported");
}

void read_attention(const Hyperparameters& hyper, ModelConfig& config) {
  config.n_heads = hyper.get_int("attention.head_count", 1, 4096);
  config.n_kv_heads = hyper.find_int("attention.head_count_kv", 1, config.n_heads).value_or(config.n_heads);
  if (config.n_heads % config.n_kv_heads != 0)
    hyper.fail("attention.head_count_kv", "is " + std::to_string(config.n_kv_heads) + ", must divide the " +
                                              std::to_string(config.n_heads) + " heads");
  if (auto head_dim = hyper.find_int("attention.key_length", 1, 4096)) {
    config.head_dim = *head_dim;
  } else {
    config.head_dim = config.hidden_size / config.n_heads;
    if (config.head_dim < 1 || config.head_dim > 4096 || config.hidden_size % config.n_heads != 0)
      hyper.fail("attention.head_count", "is " + std::to_string(config.n_heads) + ", does not give heads of 1 to 4096 "
                     "numbers in a width of " + std::to_string(config.hidden_size));
  }
  if (hyper.find_int("attention.value_length", 1, 4096).value_or(config.head_dim) != config.head_dim)
    hyper.fail("attention.value_length", "must equal the length of keys, " + std::to_string(config.head_dim));
}

void read_rope(const Hyperparameters& hyper, ModelConfig& config) {
  config.rope_theta = hyper.find_float("rope.freq_base", 0, 1e15).value_or(10000);
  config.rope_dim = hyper.find_int("rope.dimension_count", 2, config.head_dim).value_or(config.head_dim);
  if (config.rope_dim % 2 != 0)
    hyper.fail(hyper.find_int("rope.dimension_count", 2, config.head_dim) ? "rope.dimension_count"
                                                                          : "attention.key_length",
               "is " + std::to_string(config.rope_dim) + ", must be even");

  auto scaling = hyper.find_string("rope.scaling.type").value_or("none");
  if (scaling == "linear")
    config.rope_position_scale = hyper.get_float("rope.scaling.factor", 0, 1e6);
  else if (scaling != "none")
    hyper.fail("rope.scaling.type", "is '" + printable(scaling) +
                                        "', supported are none, linear, and Llama 3's by rope_freqs.weight");
  if (auto older = hyper.find_float("rope.scale_linear", 0, 1e6)) config.rope_position_scale = *older;
}

/// Width of the logits: rows of the output matrix, which may be the embedding. The tokenizer must not have more.
int32_t read_vocab_size(const GgufFile& file) {
  if (file.tensors().empty()) throw FormatError("the file has no tensors: it holds a vocabulary or metadata only");
  auto* embedding = file.find_tensor("token_embd.weight");
  if (!embedding) throw FormatError("tensor 'token_embd.weight' is missing");
  constexpr int64_t kMax = 1 << 24;
  int64_t rows = embedding->matrix().rows;
  if (rows > kMax)
    throw FormatError("tensor 'token_embd.weight' has " + std::to_string(rows) + " rows, the limit is " +
                      std::to_string(kMax));
  if (auto tokens = file.get_strings("tokenizer.ggml.tokens"); tokens && std::cmp_greater(tokens->size(), rows))
    throw FormatError("metadata key 'tokenizer.ggml.tokens' has " + std::to_string(tokens->size()) +
                      " elements, but 'token_embd.weight' only " + std::to_string(rows) + " rows");
  return int32_t(rows);
}

} // namespace

ModelConfig read_config(const GgufFile& file) {
  auto& architecture = find_architecture(file);
  Hyperparameters hyper(file, architecture.name);
  refuse_unsupported(file, hyper);

  ModelConfig config;
  config.architecture = architecture.name;
  config.name = printable(file.get_string("general.name").value_or(""));
  config.rope_style = architecture.rope_style;
  config.qkv_bias = architecture.qkv_bias;
  config.n_layers = hyper.get_int("block_count", 1, 1024);
  config.hidden_size = hyper.get_int("embedding_length", 1, 1 << 20);
  config.intermediate_size = hyper.get_int("feed_forward_length", 1, 1 << 22);
  config.context_length = hyper.get_int("context_length", 1, 1 << 24);
  // Within its window, sliding attention is full attention, so a context that ends there is exact.
  if (auto window = hyper.find_int("attention.sliding_window", 0, INT32_MAX); window.value_or(0) > 0)
    config.context_length = std::min(config.context_length, *window);
  config.norm_eps = float(hyper.get_float("attention.layer_norm_rms_epsilon", 0, 1));
  read_attention(hyper, config);
  read_rope(hyper, config);
  config.vocab_size = read_vocab_size(file);
  return config;
}

} // namespace millrace
