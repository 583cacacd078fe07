#include "actors/graph.hpp"

#include "actors/decode.hpp"
#include "actors/prefill.hpp"
#include "actors/sampler.hpp"
#include "actors/supervisor.hpp"

#include <caf/send.hpp>

namespace millrace {
namespace {

template <class Actor, class... Args>
auto spawn_pinned(caf::actor_system& system, Pinning pinning, Actor actor, Args&&... args) {
  return pinning == Pinning::own_threads ? system.spawn<caf::detached>(actor, std::forward<Args>(args)...)
                                         : system.spawn(actor, std::forward<Args>(args)...);
}

//   dispatch ──▶ prefill ──▶ decode       both ask the sampler for the next ids; it tells dispatch what
//      ▲            └──▶ sampler ◀──┘      became of them. Decode tells prefill when blocks are free.
//      └───────────────────┘
LocalDeviceActors spawn_device(caf::actor_system& system, const Parts& parts, Pinning pinning,
                               const DispatchActor& dispatch) {
  auto sampler =
      system.spawn(sampler_actor, parts.tokenizer, parts.device->config().vocab_size, dispatch);
  auto decode = spawn_pinned(system, pinning, decode_actor, parts.device, parts.budget, dispatch, sampler);
  auto prefill = spawn_pinned(system, pinning, prefill_actor, parts.device, parts.tokenizer,
                              parts.budget, dispatch, decode, sampler);
  caf::anon_send(decode, prefill);
  return {prefill, decode, sampler};
}

} // namespace

Graph spawn_graph(caf::actor_system& system, const Parts& parts, Pinning pinning) {
  auto dispatch =
      system.spawn(dispatch_actor, parts.options, parts.context_length,
                   [device = parts.device] { return device->counters().passes; }, parts.sink, parts.board);
  auto tokenizer =
      system.spawn(tokenizer_actor, PromptEncoder(parts.tokenizer, parts.options.chat, parts.context_length),
                   parts.backlog, parts.on_encoded, dispatch);
  auto supervisor = system.spawn(
      supervisor_actor, Charges{.device_name = parts.device->name(),
                                .tokenizer = tokenizer,
                                .dispatch = dispatch,
                                .spawn_device = [&system, parts, pinning,
                                                 dispatch] { return spawn_device(system, parts, pinning, dispatch); },
                                .report = parts.report,
                                .on_end_of_dispatch = parts.on_end_of_dispatch,
                                .on_death = parts.options.on_death});
  return {tokenizer, dispatch, supervisor};
}

} // namespace millrace
