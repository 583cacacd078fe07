#include "cli/load.hpp"

#include "cli/errors.hpp"
#include "cli/progress.hpp"
#include "cluster/placement.hpp"
#include "model/default/default_model.hpp"

#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace millrace {
namespace {

/// What went wrong, led by the file that it went wrong with.
template <class Load> auto with_path(const ModelOptions& options, Load load) {
  const std::string where = options.path.empty() ? "the built-in model" : options.path;
  try {
    return load();
  } catch (const std::system_error& e) {
    throw std::runtime_error(where + ": " + e.code().message());
  } catch (const FormatError& e) {
    throw std::runtime_error(where + ": " + e.what());
  }
}

/// What parse_device() takes is the processor, the only device of this build.
void check_device(const std::string& name) {
  try {
    parse_device(name);
  } catch (const std::invalid_argument& e) {
    throw UsageError(std::string("--device: ") + e.what());
  }
}

std::shared_ptr<Device> make_device(std::shared_ptr<const Model> model, const ModelOptions& options) {
  check_device(options.device);
  const int32_t model_context = model->config().context_length;
  ProgressBar bar("loading " + model_name(*model, options));
  CpuDeviceOptions cpu;
  cpu.threads = options.threads;
  cpu.context_length = options.context_length;
  cpu.isa = active_isa();
  cpu.kv_positions = options.kv_positions;
  cpu.activations = options.activations;
  cpu.prefix_cache = !options.no_prefix_cache;
  cpu.progress = [&bar](double share) { bar.update(share); };
  try {
    return make_cpu_device(std::move(model), cpu);
  } catch (const std::invalid_argument& e) { // the bounds of model and machine
    const bool context_fits = options.context_length <= model_context;
    throw UsageError((context_fits ? "--kv-positions: " : "--ctx: ") + std::string(e.what()));
  }
}

} // namespace

std::shared_ptr<const Model> load_model(const ModelOptions& options) {
  return with_path(options,
                   [&] { return options.path.empty() ? Model::built_in() : Model::open(options.path); });
}

std::unique_ptr<const GgufFile> load_file(const ModelOptions& options) {
  return with_path(options, [&] {
    return options.path.empty() ? std::make_unique<const GgufFile>(default_model_bytes())
                                : std::make_unique<const GgufFile>(options.path);
  });
}

std::shared_ptr<const Tokenizer> load_tokenizer(const GgufFile& file, const ModelOptions& options) {
  return with_path(options, [&] { return std::make_shared<const Tokenizer>(file); });
}

Engine load_engine(const ModelOptions& options) {
  Engine engine;
  engine.model = load_model(options);
  engine.tokenizer = load_tokenizer(engine.model->file(), options);
  engine.chat = read_chat_support(engine.model->file(), *engine.tokenizer);
  engine.device = with_path(options, [&] { return make_device(engine.model, options); });
  return engine;
}

std::string model_name(const Model& model, const ModelOptions& options) {
  if (!options.path.empty())
    return std::filesystem::path(options.path).filename();
  return model.config().name.empty() ? "built-in" : model.config().name;
}

} // namespace millrace
