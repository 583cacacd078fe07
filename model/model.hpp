#pragma once

// A model as it lies in its file: configuration and tensors by role. Immutable; shared by devices and tokenizer.

#include "kernels/dtype.hpp"
#include "model/config.hpp"
#include "model/gguf.hpp"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace millrace {

/// Tensors of one decoder layer. Vectors are F32; an absent one has size 0.
struct LayerTensors {
  std::vector<float> attn_norm;               // [hidden]
  Matrix q, k, v;                             // [heads * head_dim | kv_heads * head_dim, hidden]
  std::vector<float> q_bias, k_bias, v_bias;  // [rows of q, k, v] or absent
  Matrix o;                                   // [hidden, heads * head_dim]
  std::vector<float> o_bias;                  // [hidden] or absent
  std::vector<float> ffn_norm;                // [hidden]
  Matrix gate, up;                            // [intermediate, hidden]
  Matrix down;                                // [hidden, intermediate]
};

class Model {
public:
  /// Opens a GGUF file. Throws FormatError with the name of the missing or misshapen thing, std::system_error on I/O.
  static std::shared_ptr<const Model> open(const std::string& path);
  /// The model that is embedded in the binary (model/default).
  static std::shared_ptr<const Model> built_in();
  explicit Model(std::unique_ptr<GgufFile> file);

  const GgufFile& file() const { return *file_; }
  const ModelConfig& config() const { return config_; }
  /// xxHash3 of the whole file. The first call reads all of it; thread-safe.
  uint64_t hash() const;

  Matrix embedding;                 // [vocab, hidden]
  Matrix output;                    // [vocab, hidden]; the embedding where the file ties them
  bool tied_output = false;
  std::vector<float> output_norm;   // [hidden]
  std::vector<float> rope_factors;  // [rope_dim / 2] divisors of the frequencies, or empty
  std::vector<LayerTensors> layers;

  /// Bytes of weights that one decode step reads (all but the embedding, unless tied).
  size_t bytes_per_token() const;
  int64_t parameters() const;

private:
  std::unique_ptr<GgufFile> file_;
  ModelConfig config_;
  mutable std::once_flag hashed_;
  mutable uint64_t hash_ = 0;
};

} // namespace millrace
