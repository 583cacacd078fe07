#include "model/model.hpp"

#include "kernels/dequantize.hpp"
#include "model/default/default_model.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>
#include <unordered_set>

namespace millrace {

namespace {

std::string shape(int64_t rows, int64_t cols) { return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]"; }

/// Hands out the file's tensors by name, each with its shape checked, and knows which nobody asked for.
class TensorTable {
public:
  explicit TensorTable(const GgufFile& file) : file_(file) {}

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  Matrix matrix(const std::string& name, int64_t rows, int64_t cols) {
    Matrix found = take(name).matrix();
    if (found.rows != rows || found.cols != cols)
      throw FormatError("tensor '" + name + "': expected " + shape(rows, cols) + ", found " +
                        shape(found.rows, found.cols));
    return found;
  }

  std::vector<float> vector(const std::string& name, int64_t size) {
    auto& tensor = take(name);
    if (tensor.dims.size() != 1 || tensor.dims[0] != size)
      throw FormatError("tensor '" + name + "': expected [" + std::to_string(size) + "], found " + dims_text(tensor));
    if (tensor.type != DType::f32 && tensor.type != DType::f16 && tensor.type != DType::bf16)
      throw FormatError("tensor '" + name + "': expected F32, F16 or BF16, found " + traits(tensor.type).name);
    std::vector<float> values(static_cast<size_t>(size));
    dequantize(values.data(), tensor.data, size, tensor.type);
    return values;
  }

  std::vector<float> optional_vector(const std::string& name, int64_t size) {
    return has(name) ? vector(name, size) : std::vector<float>();
  }

  /// Frequencies that older converters stored and that follow from the configuration.
  void ignore(const std::string& name) { taken_.insert(name); }

  /// A tensor without a role would be left out of the sums: what came out would look right and be wrong.
  void refuse_leftovers(const std::string& architecture) const {
    for (auto& tensor : file_.tensors())
      if (!taken_.contains(std::string(tensor.name)))
        throw FormatError("tensor '" + printable(tensor.name) + "' has no place in a " + architecture + " model");
  }

private:
  const GgufTensor& take(const std::string& name) {
    auto* tensor = file_.find_tensor(name);
    if (!tensor) throw FormatError("tensor '" + name + "' is missing");
    taken_.insert(name);
    return *tensor;
  }

  static std::string dims_text(const GgufTensor& tensor) { // slowest first, as matrices are written
    std::string text;
    for (size_t d = tensor.dims.size(); d-- > 0;) text += std::to_string(tensor.dims[d]) + (d > 0 ? ", " : "");
    return "[" + text + "]";
  }

  const GgufFile& file_;
  std::unordered_set<std::string> taken_;
};

LayerTensors read_layer(TensorTable& tensors, const ModelConfig& config, int32_t index) {
  const std::string layer = "blk." + std::to_string(index) + ".";
  const int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
  const int64_t q_rows = int64_t(config.n_heads) * config.head_dim;
  const int64_t kv_rows = int64_t(config.n_kv_heads) * config.head_dim;
  auto bias = [&](const char* name, int64_t rows) {
    return config.qkv_bias ? tensors.vector(layer + name, rows) : tensors.optional_vector(layer + name, rows);
  };

  LayerTensors t;
  t.attn_norm = tensors.vector(layer + "attn_norm.weight", hidden);
  t.q = tensors.matrix(layer + "attn_q.weight", q_rows, hidden);
  t.k = tensors.matrix(layer + "attn_k.weight", kv_rows, hidden);
  t.v = tensors.matrix(layer + "attn_v.weight", kv_rows, hidden);
  t.q_bias = bias("attn_q.bias", q_rows);
  t.k_bias = bias("attn_k.bias", kv_rows);
  t.v_bias = bias("attn_v.bias", kv_rows);
  t.o = tensors.matrix(layer + "attn_output.weight", hidden, q_rows);
  t.o_bias = tensors.optional_vector(layer + "attn_output.bias", hidden);
  t.ffn_norm = tensors.vector(layer + "ffn_norm.weight", hidden);
  t.gate = tensors.matrix(layer + "ffn_gate.weight", intermediate, hidden);
  t.up = tensors.matrix(layer + "ffn_up.weight", intermediate, hidden);
  t.down = tensors.matrix(layer + "ffn_down.weight", hidden, intermediate);
  tensors.ignore(layer + "attn_rot_embd.weight");
  return t;
}

/// Divisors of RoPE's frequencies: Llama 3's from the file, times the scale of the positions; empty if all are 1.
std::vector<float> read_rope_factors(TensorTable& tensors, const ModelConfig& config) {
  const int64_t pairs = config.rope_dim / 2;
  auto factors = tensors.optional_vector("rope_freqs.weight", pairs);
  for (float factor : factors)
    if (!(factor > 0 && std::isfinite(factor)))
      throw FormatError("tensor 'rope_freqs.weight' holds " + std::to_string(factor) + ", must be above 0 and finite");
  if (config.rope_position_scale != 1) {
    factors.resize(size_t(pairs), 1.0f);
    for (float& factor : factors) factor = float(factor * config.rope_position_scale);
  }
  return factors;
}

} // namespace

Model::Model(std::unique_ptr<GgufFile> file) : file_(std::move(file)), config_(read_config(*file_)) {
  TensorTable tensors(*file_);
  embedding = tensors.matrix("token_embd.weight", config_.vocab_size, config_.hidden_size);
  tied_output = !tensors.has("output.weight");
  output = tied_output ? embedding : tensors.matrix("output.weight", config_.vocab_size, config_.hidden_size);
  output_norm = tensors.vector("output_norm.weight", config_.hidden_size);
  rope_factors = read_rope_factors(tensors, config_);
  for (int32_t i = 0; i < config_.n_layers; ++i) layers.push_back(read_layer(tensors, config_, i));
  tensors.refuse_leftovers(config_.architecture);
}

std::shared_ptr<const Model> Model::open(const std::string& path) {
  return std::make_shared<const Model>(std::make_unique<GgufFile>(path));
}

std::shared_ptr<const Model> Model::built_in() {
  return std::make_shared<const Model>(std::make_unique<GgufFile>(default_model_bytes()));
}

uint64_t Model::hash() const {
  std::call_once(hashed_, [&] { hash_ = XXH3_64bits(file_->bytes().data(), file_->bytes().size()); });
  return hash_;
}

size_t Model::bytes_per_token() const {
  size_t bytes = 0;
  for (auto& tensor : file_->tensors())
    if (tied_output || tensor.data != embedding.data) bytes += tensor.bytes;
  return bytes;
}

int64_t Model::parameters() const {
  int64_t count = 0;
  for (auto& tensor : file_->tensors()) {
    int64_t elements = 1;
    for (int64_t dim : tensor.dims) elements *= dim;
    count += elements;
  }
  return count;
}

} // namespace millrace
