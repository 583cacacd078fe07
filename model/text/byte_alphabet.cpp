#include "model/text/byte_alphabet.hpp"

#include "model/text/utf8.hpp"

#include <array>

namespace millrace {
namespace {

constexpr int kFirstShifted = 0x100;
constexpr int kCharacters = kFirstShifted + 68;

struct Alphabet {
  std::array<std::string, 256> spelling; // by byte
  std::array<int16_t, kCharacters> byte; // by character; -1: not of the alphabet

  Alphabet() {
    byte.fill(-1);
    int next_shifted = kFirstShifted;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b > ' ' && b < 0x7F) || (b > 0xA0 && b != 0xAD);
      const int character = printable ? b : next_shifted++;
      byte[character] = static_cast<int16_t>(b);
      if (character < 0x80)
        spelling[b] = std::string(1, static_cast<char>(character));
      else
        spelling[b] = {static_cast<char>(0xC0 | character >> 6),
                       static_cast<char>(0x80 | (character & 0x3F))};
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

} // namespace

std::string_view spell_byte(uint8_t byte) {
  return alphabet().spelling[byte];
}

std::optional<std::string> unspell_bytes(std::string_view piece) {
  std::string bytes;
  bytes.reserve(piece.size());
  while (!piece.empty()) {
    const size_t size = utf8_character_size(piece);
    if (size != 1 && size != 2)
      return std::nullopt;
    const auto lead = static_cast<unsigned char>(piece[0]);
    const int character = size == 1 ? lead : (lead & 0x1F) << 6 | (piece[1] & 0x3F);
    if (character >= kCharacters || alphabet().byte[character] < 0)
      return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet().byte[character]));
    piece.remove_prefix(size);
  }
  return bytes;
}

} // namespace millrace
