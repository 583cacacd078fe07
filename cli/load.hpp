#pragma once

#include "actors/chat_support.hpp"
#include "cli/options.hpp"
#include "model/device.hpp"
#include "model/model.hpp"
#include "model/text/tokenizer.hpp"

#include <memory>
#include <string>

namespace millrace {

/// A model that is ready to run.
struct Engine {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<Device> device;
  ChatSupport chat; // for PipelineOptions
};

/// The file of -m, or the built-in model. Throws std::runtime_error that begins with the path.
std::shared_ptr<const Model> load_model(const ModelOptions& options);
/// The same file without reading a model from it: it may hold a vocabulary alone, of any architecture.
std::unique_ptr<const GgufFile> load_file(const ModelOptions& options);
/// The tokenizer points into the file. Throws std::runtime_error that begins with the path.
std::shared_ptr<const Tokenizer> load_tokenizer(const GgufFile& file, const ModelOptions& options);
/// All of it, with a progress bar on a terminal. Throws UsageError for a device that does not exist.
Engine load_engine(const ModelOptions& options);

/// "tales", or the file's name: what a person calls the model.
std::string model_name(const Model& model, const ModelOptions& options);

} // namespace millrace
