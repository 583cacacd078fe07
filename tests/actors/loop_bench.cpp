// What a step costs besides its pass: the loop on a device whose passes take no time.

#include "actors/pipeline.hpp"
#include "tests/actors/fake_device.hpp"

#include <chrono>
#include <cstdio>
#include <future>

namespace millrace::testing {
namespace {

class InstantDevice : public Device {
public:
  InstantDevice() : Device(64 * 300, 4096) {
    config_.vocab_size = 512;
    config_.context_length = 4096;
  }
  const ModelConfig& config() const override { return config_; }
  const DeviceKey& key() const override { return key_; }
  std::string name() const override { return "instant:0"; }

protected:
  void run_pass(std::span<const Row>, std::span<float> logits) override { std::ranges::fill(logits, 0.0f); }
  void copy_block(const BlockCopy&) override {}

private:
  ModelConfig config_;
  DeviceKey key_;
};

void measure(int sequences) {
  constexpr int kTokens = 3000;
  auto tokenizer =
      std::make_shared<Tokenizer>(GgufFile(MILLRACE_TEST_DATA "/vocab/tiny/spm-llama.gguf"));
  auto device = std::make_shared<InstantDevice>();
  std::promise<void> ended;
  std::atomic<int> running = sequences;
  Pipeline pipeline(tokenizer, device, {{.max_batch_size = sequences}}, [&](const Event& event) {
    if (std::holds_alternative<Done>(event) && --running == 0)
      ended.set_value();
  });
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < sequences; ++i) {
    Generate request;
    request.request.bytes[0] = uint8_t(i);
    request.prompt_ids = {1, 2, 3};
    request.max_tokens = kTokens;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    pipeline.submit(request);
  }
  ended.get_future().wait();
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  std::printf("%2d sequences: %.1f us a step, of which %.1f us in the device's pass\n", sequences,
              time.count() / double(device->counters().passes),
              device->counters().busy_seconds * 1e6 / double(device->counters().passes));
}

} // namespace
} // namespace millrace::testing

int main() {
  for (int sequences : {1, 4, 16})
    millrace::testing::measure(sequences);
}
