#pragma once

// Names of the message types for CAF. What may cross processes is its msgpack bytes inside CAF, too: one wire format, and CAF
// never sees a float (0.17 writes some of them in endless loops).

#include "actors/messages.hpp"
#include "messages/codec.hpp"
#include "messages/msgpack_reader.hpp"
#include "messages/msgpack_writer.hpp"
#include "messages/stream.hpp"

#include <caf/atom.hpp>
#include <caf/error.hpp>
#include <caf/make_message.hpp>
#include <caf/meta/load_callback.hpp>
#include <caf/sec.hpp>
#include <caf/type_id.hpp>

namespace millrace {

/// Writes and reads a message as one block of bytes.
template <class Inspector, Message M> typename Inspector::result_type inspect(Inspector& inspector, M& message) {
  std::string bytes;
  if constexpr (Inspector::reads_state) {
    MsgpackWriter writer;
    writer.write_frame(message);
    bytes = writer.take();
    return inspector(bytes);
  } else {
    auto decode = [&]() -> caf::error {
      M decoded;
      if (read_msgpack(bytes, frame_slot_of(decoded)))
        return caf::sec::invalid_argument;
      message = std::move(decoded);
      return caf::none;
    };
    return inspector(bytes, caf::meta::load_callback(decode));
  }
}

struct ResumedRequest;

} // namespace millrace

// CAF 0.17: an atom holds ten characters.
CAF_BEGIN_TYPE_ID_BLOCK(millrace, caf::first_custom_type_id)
  CAF_ADD_TYPE_ID(millrace, (millrace::Generate))
  CAF_ADD_TYPE_ID(millrace, (millrace::Cancel))
  CAF_ADD_TYPE_ID(millrace, (millrace::Prompt))
  CAF_ADD_TYPE_ID(millrace, (millrace::Rejected))
  CAF_ADD_TYPE_ID(millrace, (millrace::Sequence))
  CAF_ADD_TYPE_ID(millrace, (millrace::CancelSequence))
  CAF_ADD_TYPE_ID(millrace, (millrace::SequenceStarted))
  CAF_ADD_TYPE_ID(millrace, (millrace::YieldSequence))
  CAF_ADD_TYPE_ID(millrace, (millrace::SequencePreempted))
  CAF_ADD_TYPE_ID(millrace, (millrace::Progress))
  CAF_ADD_TYPE_ID(millrace, (millrace::PromptLogprobs))
  CAF_ADD_TYPE_ID(millrace, (millrace::SampledBatch))
  CAF_ADD_ATOM(millrace, millrace, step_atom, "step")
  CAF_ADD_ATOM(millrace, millrace, freed_atom, "freed")
  CAF_ADD_ATOM(millrace, millrace, lost_atom, "lost")
  CAF_ADD_ATOM(millrace, millrace, expire_atom, "expire")
  CAF_ADD_ATOM(millrace, millrace, stop_atom, "stop")
CAF_END_TYPE_ID_BLOCK(millrace)

CAF_ERROR_CODE_ENUM(millrace::Error, "millrace")

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(millrace::ResumedRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(millrace::LocalResumption)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(millrace::LocalLogits)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(millrace::LocalNextIds)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(millrace::LocalSequence)
