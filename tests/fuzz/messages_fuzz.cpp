// Whatever the bytes are: they are read as a message that encodes to something equal, or refused without
// echoing them.

#include "messages/codec.hpp"
#include "messages/validate.hpp"

#include <cstdint>
#include <cstdlib>

namespace {

using namespace millrace;

void require(bool condition) {
  if (!condition)
    std::abort();
}

/// Paths are made of our own names and of numbers.
void check(const Failure& failure) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_.[]-0123456789";
  require(failure.code == Error::malformed || failure.code == Error::invalid_field ||
          failure.code == Error::prompt_too_long);
  require(failure.field.find_first_not_of(kLetters) == std::string::npos);
  require(!failure.message.empty() && failure.message.size() < 200);
}

template <class M> void read_as(std::string_view frame) {
  const auto message = decode<M>(frame);
  if (const auto* failure = std::get_if<Failure>(&message))
    return check(*failure);
  const std::string once = encode(std::get<M>(message));
  const auto again = decode<M>(once);
  require(std::holds_alternative<M>(again) && encode(std::get<M>(again)) == once);
}

void validate_as_gateway(std::string_view frame) {
  const auto message = decode_client_message(frame);
  if (const auto* failure = std::get_if<Failure>(&message))
    return check(*failure);
  const auto* generate = std::get_if<Generate>(&std::get<ClientMessage>(message));
  if (!generate)
    return;
  Limits limits;
  limits.vocab_size = 1000;
  limits.context_length = 64;
  if (const auto failure = validate(*generate, limits))
    check(*failure);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view frame(reinterpret_cast<const char*>(data), size);
  std::apply([&]<class... M>(const M&...) { (read_as<M>(frame), ...); }, Messages{});
  validate_as_gateway(frame);
  decode_event(frame);
  read_envelope(frame);
  return 0;
}
