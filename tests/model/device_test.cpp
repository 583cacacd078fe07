#include "model/device.hpp"

#include "golden_model.hpp"
#include "kernels/attention.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <thread>

namespace {
std::atomic<int64_t> allocations = 0;
}

// Counts what is allocated. Not inlined: g++ 12 would warn that new and free don't match.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1))
    return memory;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace millrace {
namespace {

std::vector<TokenId> random_tokens(size_t n, uint32_t seed) {
  std::mt19937 random{seed};
  std::vector<TokenId> tokens(n);
  for (auto& token : tokens)
    token = TokenId(random() % 512);
  return tokens;
}

struct Path {
  std::string model;
  Isa isa;
  Activations activations;
};

std::vector<Path> all_paths() {
  std::vector<Path> paths;
  for (std::string model : {"llama-Q8_0", "qwen2-Q4_0", "llama-Q5_1", "llama-F16"})
    for (Isa isa : available_isas())
      for (Activations activations : {Activations::f32, Activations::q8})
        if (isa != Isa::scalar || activations == Activations::f32)
          paths.push_back({model, isa, activations});
  return paths;
}

std::string path_name(const testing::TestParamInfo<Path>& info) {
  auto name = info.param.model + "_" + to_string(info.param.isa);
  std::replace(name.begin(), name.end(), '-', '_');
  return name + (info.param.activations == Activations::q8 ? "_q8" : "_f32");
}

class CpuDevice : public testing::TestWithParam<Path> {
protected:
  static std::unique_ptr<Device> device(int threads = 2, int64_t kv_positions = 4096) {
    return make_cpu_device(tiny_model(GetParam().model), {.threads = threads,
                                                          .context_length = 0,
                                                          .kv_positions = kv_positions,
                                                          .isa = GetParam().isa,
                                                          .activations = GetParam().activations,
                                                          .progress = {}});
  }
};
INSTANTIATE_TEST_SUITE_P(, CpuDevice, testing::ValuesIn(all_paths()), path_name);

TEST_P(CpuDevice, GivesTheSameBitsInChunks) {
  const auto tokens = random_tokens(200, 1); // so many that the steps of a layer are cut into pieces, too
  auto cpu = device();
  const auto whole = Feeder{*cpu, 200}.feed(tokens);
  for (size_t chunk : {1, 3, 16, 199}) {
    Feeder feeder{*cpu, 200};
    std::vector<float> logits;
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      auto part = feeder.feed(std::span{tokens}.subspan(begin, std::min(chunk, tokens.size() - begin)));
      logits.insert(logits.end(), part.begin(), part.end());
    }
    EXPECT_EQ(logits, whole) << "chunks of " << chunk;
  }
}

TEST_P(CpuDevice, GivesTheSameBitsInABatch) {
  const auto tokens = random_tokens(40, 2);
  auto cpu = device();
  const auto alone = Feeder{*cpu, 40}.feed(tokens);
  const auto vocab = size_t(cpu->config().vocab_size);

  std::vector<std::unique_ptr<Feeder>> others;
  for (int i = 0; i < 16; ++i) {
    others.push_back(std::make_unique<Feeder>(*cpu, 60));
    others.back()->feed(random_tokens(size_t(i), uint32_t(i)));
  }
  Feeder feeder{*cpu, 40};
  std::vector<float> logits;
  for (size_t begin = 0; begin < tokens.size();
       begin += 8) { // the sequence's rows stand among those of the others
    std::vector<Row> rows;
    size_t ours = 0;
    for (size_t i = 0; i < others.size(); ++i) {
      if (i == 5) {
        ours = rows.size();
        auto own = feeder.rows(std::span{tokens}.subspan(begin, 8));
        rows.insert(rows.end(), own.begin(), own.end());
      }
      auto other = others[i]->rows(random_tokens(i % 3 + 1, uint32_t(begin + i)));
      rows.insert(rows.end(), other.begin(), other.end());
    }
    std::vector<float> all(rows.size() * vocab);
    cpu->forward(rows, all);
    logits.insert(logits.end(), all.begin() + int64_t(ours * vocab),
                  all.begin() + int64_t((ours + 8) * vocab));
  }

  EXPECT_EQ(logits, alone);
}

TEST_P(CpuDevice, GivesTheSameBitsForAnyNumberOfThreads) {
  const auto tokens = random_tokens(33, 3);
  const auto one = Feeder{*device(1), 33}.feed(tokens);
  EXPECT_EQ(Feeder(*device(2), 33).feed(tokens), one);
  EXPECT_EQ(Feeder(*device(5), 33).feed(tokens), one);
}

TEST_P(CpuDevice, GivesTheSameBitsInUsedBlocks) {
  const auto tokens = random_tokens(21, 4);
  auto cpu = device(2, 64);
  const auto fresh = Feeder{*cpu, 21}.feed(tokens);
  Feeder{*cpu, 64}.feed(random_tokens(64, 5)); // fills all blocks, then frees them
  EXPECT_EQ(Feeder(*cpu, 21).feed(tokens), fresh);
}

TEST_P(CpuDevice, WritesLogitsOfTheRowsThatWantThem) {
  const auto tokens = random_tokens(20, 6);
  auto cpu = device();
  const auto vocab = size_t(cpu->config().vocab_size);
  const auto all = Feeder{*cpu, 20}.feed(tokens);

  Feeder feeder{*cpu, 20};
  auto rows = feeder.rows(tokens);
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i].wants_logits = i == 4 || i == 19;
  std::vector<float> logits(2 * vocab);
  cpu->forward(rows, logits);

  EXPECT_TRUE(std::equal(logits.begin(), logits.begin() + int64_t(vocab), all.begin() + int64_t(4 * vocab)));
  EXPECT_TRUE(std::equal(logits.begin() + int64_t(vocab), logits.end(), all.begin() + int64_t(19 * vocab)));
}

TEST_P(CpuDevice, FillsTheCacheWithoutLogits) {
  const auto tokens = random_tokens(20, 7);
  auto cpu = device();
  const auto vocab = size_t(cpu->config().vocab_size);
  const auto all = Feeder{*cpu, 20}.feed(tokens);

  Feeder feeder{*cpu, 20};
  auto rows = feeder.rows(std::span{tokens}.first(19));
  for (Row& row : rows)
    row.wants_logits = false;
  cpu->forward(rows, {});
  const auto last = feeder.feed(std::span{tokens}.last(1));

  EXPECT_TRUE(std::equal(last.begin(), last.end(), all.end() - int64_t(vocab)));
}

TEST_P(CpuDevice, AllocatesNothingInTheTokenLoop) {
  if (GetParam().isa == Isa::scalar)
    GTEST_SKIP() << "the reference of matmul dequantises into a buffer of its own";
  auto cpu = device();
  Feeder feeder{*cpu, 200};
  const auto tokens = random_tokens(30, 8);
  feeder.feed(tokens);
  std::vector<std::vector<Row>> steps;
  for (TokenId token : tokens)
    steps.push_back(feeder.rows(std::span{&token, 1}));
  std::vector<float> logits(size_t(cpu->config().vocab_size));
  cpu->forward(steps[0], logits); // the first step warms up what is kept per thread

  const int64_t before = allocations;
  for (size_t i = 1; i < steps.size(); ++i)
    cpu->forward(steps[i], logits);
  EXPECT_EQ(allocations - before, 0);
}

CpuDeviceOptions scalar_options() {
  CpuDeviceOptions options;
  options.threads = 1;
  return options;
}

TEST(CpuDeviceOptions, BoundTheContext) {
  auto model = tiny_model("llama-Q8_0");
  auto options = scalar_options();
  EXPECT_EQ(make_cpu_device(model, options)->context_length(),
            std::min(model->config().context_length, 4096));

  options.context_length = 50;
  auto cpu = make_cpu_device(model, options);
  EXPECT_EQ(cpu->context_length(), 50);
  EXPECT_EQ(cpu->blocks().total(), 16 * BlockManager::blocks_for(50));

  options.kv_positions = 20; // two blocks: no sequence can be longer
  cpu = make_cpu_device(model, options);
  EXPECT_EQ(cpu->blocks().total(), 2);
  EXPECT_EQ(cpu->context_length(), 32);
}

TEST(CpuDeviceOptions, RefuseWhatTheModelCannotDo) {
  auto model = tiny_model("llama-Q8_0");
  for (int32_t context : {-1, model->config().context_length + 1}) {
    auto options = scalar_options();
    options.context_length = context;
    EXPECT_THROW(make_cpu_device(model, options), std::invalid_argument);
  }
  auto options = scalar_options();
  options.kv_positions = -1;
  EXPECT_THROW(make_cpu_device(model, options), std::invalid_argument);
}

TEST(CpuDeviceOptions, RefuseAPoolThatDoesNotFitIntoMemory) {
  auto options = scalar_options();
  for (int64_t positions : {int64_t(1) << 50, std::numeric_limits<int64_t>::max()}) {
    options.kv_positions = positions;
    EXPECT_THROW(make_cpu_device(tiny_model("llama-Q8_0"), options), std::invalid_argument);
  }
}

TEST(CpuDeviceOptions, TellTheProgressOfPacking) {
  std::vector<double> shares;
  auto options = scalar_options();
  options.progress = [&](double share) { shares.push_back(share); };
  make_cpu_device(tiny_model("llama-Q8_0"), options);
  ASSERT_EQ(shares.size(), 3 * 7 + 1u);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_GT(shares.front(), 0);
  EXPECT_DOUBLE_EQ(shares.back(), 1);
}

TEST(CpuDeviceOptions, NameTheArithmetic) {
  auto options = scalar_options();
  auto scalar = make_cpu_device(tiny_model("llama-Q8_0"), options, 3);
  EXPECT_EQ(scalar->name(), "cpu:3");
  EXPECT_EQ(scalar->key().kernel_path, "scalar");
  EXPECT_EQ(scalar->key().activations, "f32") << "the scalar path ignores the option";
  EXPECT_EQ(scalar->key(), make_cpu_device(tiny_model("llama-Q8_0"), options)->key());
  EXPECT_FALSE(scalar->key() == make_cpu_device(tiny_model("llama-Q4_0"), options)->key());
}

/// A device without a model: its passes only watch each other.
class Turnstile : public Device {
public:
  Turnstile() : Device{4, 64} { config_.vocab_size = 1; }
  const ModelConfig& config() const override { return config_; }
  const DeviceKey& key() const override { return key_; }
  std::string name() const override { return "turnstile"; }

  std::function<void()> pass;

private:
  void run_pass(std::span<const Row>, std::span<float>) override { pass(); }
  void copy_block(const BlockCopy&) override { pass(); }
  ModelConfig config_;
  DeviceKey key_;
};

TEST(Device, RunsOnePassAtATime) {
  Turnstile device;
  int inside = 0; // unguarded on purpose: ThreadSanitizer sees two passes that overlap
  int64_t passes = 0;
  device.pass = [&] {
    EXPECT_EQ(++inside, 1);
    ++passes;
    --inside;
  };
  auto table = device.blocks().allocate(1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      std::vector<Row> rows{{0, 0, table->blocks(), true}, {0, 1, table->blocks(), false}};
      float logit;
      for (int i = 0; i < 500; ++i)
        device.forward(rows, {&logit, 1});
    });
  for (auto& thread : threads)
    thread.join();

  EXPECT_EQ(passes, 2000);
  EXPECT_EQ(device.counters().passes, 2000);
  EXPECT_EQ(device.counters().rows, 4000);
  EXPECT_GT(device.counters().busy_seconds, 0);
}

TEST(Device, GoesOnAfterAPassThatThrew) {
  Turnstile device;
  auto table = device.blocks().allocate(1);
  std::vector<Row> rows{{0, 0, table->blocks(), false}};
  device.pass = [] { throw std::runtime_error{"broken"}; };
  EXPECT_THROW(device.forward(rows, {}), std::runtime_error);
  device.pass = [] {};
  EXPECT_NO_THROW(device.forward(rows, {}));
}

TEST(Device, TakesNoTurnForNoRows) {
  Turnstile device;
  device.forward({}, {});
  EXPECT_EQ(device.counters().passes, 0);
}

} // namespace
} // namespace millrace
