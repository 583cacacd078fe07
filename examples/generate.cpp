// The whole pipeline in one process, without sockets: a prompt in, its text out as it comes.
//
//   example_generate ["Once upon a time" [tokens]]

#include "actors/pipeline.hpp"
#include "kernels/isa.hpp"
#include "model/model.hpp"

#include <cstdio>
#include <cstdlib>
#include <future>

using namespace millrace;

int main(int argc, char** argv) {
  // A model is immutable and shared: the tokenizer reads its vocabulary, the device its weights.
  const std::shared_ptr<const Model> model = Model::built_in(); // or Model::open("some.gguf")
  const auto tokenizer = std::make_shared<Tokenizer>(model->file());
  CpuDeviceOptions options;
  options.isa = active_isa();
  const std::shared_ptr<Device> device = make_cpu_device(model, options);

  // All events of all requests come here, on a thread of the pipeline's; those of one request are in order.
  std::promise<std::string> ended;
  const auto on_event = [&](const Event& event) {
    if (const auto* token = std::get_if<Token>(&event)) {
      std::fputs(token->text.c_str(), stdout);
      std::fflush(stdout);
    } else if (const auto* finished = std::get_if<Finished>(&event)) {
      std::printf("%s\n[%s]\n", finished->text.c_str(), finished->reason.c_str());
    } else if (const auto* done = std::get_if<Done>(&event)) { // the last event of a request that was taken
      std::printf("[%d tokens in, %d out, %.1f ms a token]\n", done->prompt_tokens, done->generated_tokens,
                  done->generated_tokens > 1 ? done->decode_ms / (done->generated_tokens - 1) : 0.0);
      ended.set_value("");
    } else if (const auto* rejected = std::get_if<Rejected>(&event)) { // the only event of one that was not
      ended.set_value(rejected->message);
    }
  };
  Pipeline pipeline(tokenizer, device, {}, on_event);

  Generate request;
  request.request = random_stream_id();
  request.prompt = argc > 1 ? argv[1] : "Once upon a time";
  request.max_tokens = argc > 2 ? std::atoi(argv[2]) : 100;
  if (const auto failure = pipeline.submit(request)) { // refused at once: a field is out of its range
    std::fprintf(stderr, "%s: %s\n", failure->field.c_str(), failure->message.c_str());
    return 1;
  }
  const std::string error = ended.get_future().get();
  std::fputs(error.c_str(), stderr);
  return error.empty() ? 0 : 1;
}
