#pragma once

#include <cstddef>
#include <span>

namespace millrace {

/// The GGUF file that is embedded in the binary: Millrace Tales (see MODEL_CARD.md), 6.3 MB of read-only data.
std::span<const std::byte> default_model_bytes();

} // namespace millrace
