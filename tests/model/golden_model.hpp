#pragma once

// Tiny models with logits of a float reference, from tests/golden/tiny.

#include "model/device.hpp"
#include "model/model.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace millrace {

inline nlohmann::json tiny_golden(const std::string& name) {
  return nlohmann::json::parse(std::ifstream{MILLRACE_TEST_DATA "/tiny/" + name + ".json"});
}

/// "llama-Q8_0"; opened once.
inline std::shared_ptr<const Model> tiny_model(const std::string& name) {
  static std::map<std::string, std::shared_ptr<const Model>> models;
  auto& model = models[name];
  if (!model)
    model = Model::open(MILLRACE_TEST_DATA "/tiny/" + name + ".gguf");
  return model;
}

/// A sequence on a device, fed piece by piece.
class Feeder {
public:
  /// Throws if the device has not so many positions.
  Feeder(Device& device, int64_t positions) : device_{device}, table_{device.blocks().allocate(positions)} {
    if (!table_)
      throw std::runtime_error{"no blocks left"};
  }

  /// Rows for the next tokens, all of them with logits.
  std::vector<Row> rows(std::span<const TokenId> tokens) {
    std::vector<Row> rows;
    for (TokenId token : tokens)
      rows.push_back({token, next_position_++, table_->blocks(), true});
    return rows;
  }

  /// Runs the next tokens in one pass. Returns [tokens, vocab].
  std::vector<float> feed(std::span<const TokenId> tokens) {
    std::vector<float> logits(tokens.size() * size_t(device_.config().vocab_size));
    device_.forward(rows(tokens), logits);
    return logits;
  }

private:
  Device& device_;
  std::shared_ptr<BlockTable> table_;
  int32_t next_position_ = 0;
};

inline TokenId most_likely(std::span<const float> logits) {
  return TokenId(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

} // namespace millrace
