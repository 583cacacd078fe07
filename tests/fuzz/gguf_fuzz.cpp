// Whatever the bytes are: they are read as a model with its tokenizer, or refused with a FormatError.

#include "model/model.hpp"
#include "model/text/tokenizer.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

/// All of the tensors' bytes lie inside the file: AddressSanitizer would tell.
unsigned touch(const millrace::GgufFile& file) {
  unsigned sum = 0;
  for (auto& tensor : file.tensors()) sum += unsigned(tensor.data[0]) + unsigned(tensor.data[tensor.bytes - 1]);
  return sum;
}

/// Text of several scripts goes in; ids of the vocabulary come out, and any id has bytes or none.
void tokenize(const millrace::GgufFile& file) {
  millrace::Tokenizer tokenizer(file);
  auto ids = tokenizer.encode("ab a 12\n\xc3\xa9<|im_end|>\xff", {.add_bos = true, .parse_special = true});
  for (auto id : ids)
    if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
  tokenizer.decode(ids);
  tokenizer.bytes(tokenizer.bos());
  tokenizer.bytes(tokenizer.eos());
  tokenizer.hash();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    GgufFile file(bytes);
    volatile unsigned sum = touch(file);
    (void)sum;
    tokenize(file);
  } catch (const FormatError&) {
  }
  try {
    Model(std::make_unique<GgufFile>(bytes)).hash();
  } catch (const FormatError&) {
  }
  return 0;
}
