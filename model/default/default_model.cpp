#include "model/default/default_model.hpp"

// The assembler takes the file in as it is: no array of numbers for the compiler to parse. CMake tells the path, and rebuilds
// this object when the file changes. 64: a cache line, and a multiple of the file's own alignment.
asm(R"(
  .pushsection .rodata
  .balign 64
  .globl millrace_default_model_begin
  .globl millrace_default_model_end
  .hidden millrace_default_model_begin
  .hidden millrace_default_model_end
millrace_default_model_begin:
  .incbin ")" MILLRACE_DEFAULT_MODEL R"("
millrace_default_model_end:
  .popsection
)");

extern "C" {
extern const std::byte millrace_default_model_begin[];
extern const std::byte millrace_default_model_end[];
}

namespace millrace {

std::span<const std::byte> default_model_bytes() { return {millrace_default_model_begin, millrace_default_model_end}; }

} // namespace millrace
