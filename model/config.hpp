#pragma once

#include "kernels/rope.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>

namespace millrace {

/// A model file that breaks its format or our limits. The text names the key or tensor, the limit and the offset.
struct FormatError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The hyperparameters of a decoder, each checked against its range when the file is read.
struct ModelConfig {
  std::string architecture;       // "llama", "qwen2"
  std::string name;               // general.name, for people; made printable
  int32_t n_layers = 0;
  int32_t hidden_size = 0;        // width of the residual stream
  int32_t intermediate_size = 0;  // width of the feed-forward layer
  int32_t n_heads = 0;            // of queries
  int32_t n_kv_heads = 0;         // of keys and values; divides n_heads
  int32_t head_dim = 0;
  int32_t vocab_size = 0;         // width of the logits
  int32_t context_length = 0;     // positions the model was trained for; at most its sliding window, if it has one
  float norm_eps = 0;
  double rope_theta = 10000;
  int32_t rope_dim = 0;           // numbers of a head that are turned; even, at most head_dim
  double rope_position_scale = 1; // "linear" scaling: positions are divided by it; Model::rope_factors include it
  RopeStyle rope_style = RopeStyle::interleaved;
  bool qkv_bias = false;          // the architecture has biases at q, k and v; otherwise they are optional
};

class GgufFile; // model/gguf.hpp

/// Reads the hyperparameters of a Llama or Qwen2 model. Throws FormatError naming the key that is missing, of the wrong
/// type, out of range or asking for what is not supported, and what is.
ModelConfig read_config(const GgufFile& file);

} // namespace millrace
