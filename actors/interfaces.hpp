#pragma once

// Who may be told what, in the order of a request's way. Mailboxes have no bound of their own: a line that brings in work says
// what bounds it.

#include "actors/type_ids.hpp"

#include <caf/typed_actor.hpp>

namespace millrace {

struct LocalDeviceActors;

/// Text to token ids.
using TokenizerActor = caf::typed_actor<
  // Encodes a valid request and passes it to dispatch as Prompt or Rejected; bounded by Backlog.
  caf::reacts_to<Generate>,
  // Likewise for a request of an earlier process, as LocalResumption; bounded by what that had in flight.
  caf::reacts_to<ResumedRequest>,
  // Passes a cancellation on, behind the request that it is for.
  caf::reacts_to<Cancel>>;

/// Owns the ledger of all requests and speaks to their readers.
using DispatchActor = caf::typed_actor<
  // Admits a request or refuses it as busy.
  caf::reacts_to<Prompt>,
  // Opens a request of an earlier process where its readers stand; it is never busy for these.
  caf::reacts_to<LocalResumption>,
  // Passes a refusal of the tokenizer's on.
  caf::reacts_to<Rejected>,
  // Ends all choices of a request; an unknown one is ignored.
  caf::reacts_to<Cancel>,
  // The device is ready: what was with its earlier actors goes to these.
  caf::reacts_to<LocalDeviceActors>,
  // The device is given up: fails what is in flight and refuses the rest.
  caf::reacts_to<lost_atom>,
  // Tells the reader that a sequence runs.
  caf::reacts_to<SequenceStarted>,
  // Tells the reader how much of the prompt has been read.
  caf::reacts_to<Progress>,
  // Tells the reader the log-probs of a piece of the prompt and books how far they go.
  caf::reacts_to<PromptLogprobs>,
  // A sequence waits again, its blocks are free.
  caf::reacts_to<SequencePreempted>,
  // INTERNAL: a deadline is over.
  caf::reacts_to<expire_atom>,
  // Books tokens and ends and tells the reader; those of an earlier owner are dropped and counted.
  caf::reacts_to<SampledBatch>>;

/// Reads prompts.
using PrefillActor = caf::typed_actor<
  // Queues a sequence until there are blocks for what is to be read; bounded by dispatch.
  caf::reacts_to<Sequence>,
  // Drops a sequence and tells the sampler, behind the message that opened it.
  caf::reacts_to<CancelSequence>,
  // Looks again for blocks, since some have become free.
  caf::reacts_to<freed_atom>,
  // Hands on the prompts that have been read, with the sampler's first tokens.
  caf::reacts_to<LocalNextIds>,
  // INTERNAL: reads the next chunk.
  caf::reacts_to<step_atom>>;

/// Runs the loop: one row a step for each sequence.
using DecodeActor = caf::typed_actor<
  // Learns who waits for blocks; comes before the first sequence.
  caf::reacts_to<PrefillActor>,
  // Adds a sequence to the running batch; bounded by dispatch.
  caf::reacts_to<LocalSequence>,
  // Drops a sequence, also one that comes later.
  caf::reacts_to<CancelSequence>,
  // Lets a sequence go after its step, to be read again; an unknown one is ignored.
  caf::reacts_to<YieldSequence>,
  // Feeds the sampler's tokens in the next step.
  caf::reacts_to<LocalNextIds>,
  // INTERNAL: advances every running sequence by one token.
  caf::reacts_to<step_atom>>;

/// Logits to tokens.
using SamplerActor = caf::typed_actor<
  // Opens a sequence and replays what it has emitted elsewhere; bounded by the blocks that it holds.
  caf::reacts_to<Sequence>,
  // Draws a token for each row, tells dispatch what is decided by that and the sender what follows.
  caf::replies_to<LocalLogits>::with<LocalNextIds>,
  // Forgets a sequence; an unknown one is ignored.
  caf::reacts_to<CancelSequence>>;

/// Watches all of them; restarts the actors of a device a few times, then gives it up.
using SupervisorActor = caf::typed_actor<
  // Ends all actors, then itself.
  caf::reacts_to<stop_atom>>;

/// The actors of one device, local. They live and die together.
struct LocalDeviceActors {
  PrefillActor prefill;
  DecodeActor decode;
  SamplerActor sampler;
};

} // namespace millrace

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(millrace::PrefillActor)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(millrace::LocalDeviceActors)
