#pragma once

#include "messages/msgpack_slot.hpp"

#include <optional>
#include <string_view>

namespace millrace {

/// How deep containers may stand in each other, unknown fields included. The messages themselves need four.
inline constexpr size_t kMaxDepth = 16;

/// Fills the object behind root from one msgpack value that is the whole of frame. After a failure the object
/// holds what was read until then. Memory: what the object itself takes, and nothing for what is skipped.
std::optional<Failure> read_msgpack(std::string_view frame, Slot root);

} // namespace millrace
