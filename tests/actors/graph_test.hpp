#pragma once

// The whole graph on a fake device and without threads.

#include "tests/actors/actor_test.hpp"

namespace millrace::testing {

class GraphTest : public ActorTest {
protected:
  ~GraphTest() override {
    if (graph.supervisor)
      caf::anon_send(graph.supervisor, stop_atom_v);
    run();
  }

  void start(FakeDevice::Shape shape = {}) {
    device = std::make_shared<FakeDevice>(shape);
    spawn();
  }
  void spawn() {
    context =
        int32_t(std::min<int64_t>(device->context_length(), int64_t(device->blocks().total()) * kBlockSize));
    budget = std::make_shared<StepBudget>(options.prefill_chunk, options.prefill_stretch);
    graph = spawn_graph(system,
                        {.tokenizer = tokenizer,
                         .device = device,
                         .options = options,
                         .context_length = context,
                         .backlog = backlog,
                         .board = board,
                         .budget = budget,
                         .sink =
                             [this](const Event& event) {
                               events.push_back(event);
                               reader(event);
                             },
                         .report = [this](std::string text) { reports.push_back(std::move(text)); },
                         .on_end_of_dispatch = [this] { dispatch_ended = true; }},
                        Pinning::none);
  }

  static Generate request(int id, std::string prompt = "Once upon a time", int32_t max_tokens = 8) {
    Generate generate;
    generate.request = stream_id(id);
    generate.prompt = std::move(prompt);
    generate.max_tokens = max_tokens;
    generate.ignore_eos = true;
    generate.sampling.temperature = 1;
    generate.sampling.seed = 100 + uint64_t(id);
    return generate;
  }
  static Generate request_of(int id, size_t prompt_ids, std::optional<int32_t> max_tokens = 8) {
    Generate generate = request(id);
    generate.prompt.reset();
    generate.prompt_ids.emplace();
    for (size_t i = 0; i < prompt_ids; ++i)
      generate.prompt_ids->push_back(TokenId(10 + (i * 7 + size_t(id)) % 400));
    generate.max_tokens = max_tokens;
    return generate;
  }

  /// Ends the graph and forgets what was read.
  void stop() {
    caf::anon_send(graph.supervisor, stop_atom_v);
    run();
    reader = {};
    events.clear();
  }

  void submit(const Generate& generate) {
    ASSERT_TRUE(backlog->enter(generate));
    caf::anon_send(graph.tokenizer, generate);
  }
  void cancel(int id) {
    caf::anon_send(graph.dispatch, Cancel{stream_id(id)});
    caf::anon_send(graph.tokenizer, Cancel{stream_id(id)});
  }

  void expect_idle() {
    EXPECT_EQ(device->blocks().used(), 0);
    EXPECT_EQ(device->blocks().tables(), 0);
    device->blocks().check_integrity();
    EXPECT_EQ(board->read().running, 0);
    EXPECT_EQ(board->read().waiting, 0);
    EXPECT_EQ(board->read().queued_tokens, 0);
  }

  /// Nine requests of unlike kinds: long and short, several choices, stop strings and ids.
  std::vector<Generate> mixture() {
    std::vector<Generate> requests;
    for (int i = 0; i < 6; ++i)
      requests.push_back(request_of(i, 1 + size_t(i) * 11, 3 + i));
    requests.push_back(request(6, "The fox said", 10));
    requests.back().n = 3;
    requests.push_back(request(7, "A stop string", 40));
    requests.back().stop = {"e", "in the end"};
    requests.push_back(request(8, "A stop id", 60));
    for (TokenId id = 0; id < 30; ++id)
      requests.back().stop_ids.push_back(id * 16);
    return requests;
  }

  /// What the requests give on a fresh graph, one at a time.
  std::map<std::pair<StreamId, int32_t>, Output> alone(const std::vector<Generate>& requests) {
    start();
    for (const Generate& generate : requests) {
      submit(generate);
      run();
    }
    auto outputs = std::exchange(reader, Reader{}).outputs;
    caf::anon_send(graph.supervisor, stop_atom_v);
    run();
    return outputs;
  }

  std::shared_ptr<const Tokenizer> tokenizer = tiny_tokenizer();
  std::shared_ptr<FakeDevice> device;
  std::shared_ptr<Backlog> backlog = std::make_shared<Backlog>(1 << 20, 1000);
  std::shared_ptr<StatsBoard> board = std::make_shared<StatsBoard>();
  // No stretch: passes of the fake device take no time worth measuring.
  PipelineOptions options{{.max_batch_size = 16, .prefill_chunk = 16, .prefill_stretch = 1e12}};
  int32_t context = 0;
  std::shared_ptr<StepBudget> budget;
  Reader reader;
  std::vector<Event> events;
  bool dispatch_ended = false;
  std::vector<std::string> reports;
  Graph graph;
};

} // namespace millrace::testing
