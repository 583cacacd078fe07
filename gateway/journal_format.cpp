#include "gateway/journal_format.hpp"

#include "messages/codec.hpp"
#include "messages/msgpack_reader.hpp"
#include "messages/msgpack_writer.hpp"
#include "messages/validate.hpp"

#include <xxhash.h>

#include <stdexcept>

namespace millrace {
namespace {

uint64_t checksum(std::string_view body, size_t offset) {
  return XXH3_64bits_withSeed(body.data(), body.size(), offset);
}

void append_little_endian(std::string& bytes, uint64_t value, int size) {
  for (int i = 0; i < size; ++i)
    bytes += static_cast<char>(value >> 8 * i);
}

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    value |= uint64_t{static_cast<uint8_t>(bytes[i])} << 8 * i;
  return value;
}

/// The record at offset, if it is whole.
std::optional<std::string_view> record_at(std::string_view bytes, size_t offset) {
  if (bytes.size() - offset < kRecordOverhead)
    return std::nullopt;
  const uint64_t length = little_endian(bytes.substr(offset, 4));
  if (length == 0 || length > bytes.size() - offset - kRecordOverhead)
    return std::nullopt;
  const std::string_view body = bytes.substr(offset + kRecordOverhead, length);
  if (checksum(body, offset) != little_endian(bytes.substr(offset + 4, 8)))
    return std::nullopt;
  return body;
}

} // namespace

void append_record(std::string& bytes, size_t offset, std::string_view body) {
  append_little_endian(bytes, body.size(), 4);
  append_little_endian(bytes, checksum(body, offset), 8);
  bytes += body;
}

std::string encode_journal_head(const JournalHead& head) {
  MsgpackWriter writer;
  writer.write_frame(head);
  const std::string frame = writer.take();
  if (frame.size() > kMaxFrameBytes)
    throw std::length_error("the head of a journal exceeds the frame limit");
  std::string bytes(kJournalMagic);
  append_record(bytes, bytes.size(), frame);
  return bytes;
}

std::optional<JournalContents> read_journal(std::string_view bytes) {
  if (!bytes.starts_with(kJournalMagic))
    return std::nullopt;
  JournalContents contents;
  size_t offset = kJournalMagic.size();
  const auto first = record_at(bytes, offset);
  if (!first || read_msgpack(*first, frame_slot_of(contents.head)) ||
      contents.head.version != JournalHead{}.version)
    return std::nullopt;
  if (const int32_t n = contents.head.generate.n; n < 1 || n > Limits{}.max_choices)
    return std::nullopt; // others allocate by it

  offset += kRecordOverhead + first->size();
  while (const auto event = record_at(bytes, offset)) {
    contents.events.push_back(*event);
    offset += kRecordOverhead + event->size();
  }
  contents.good_bytes = offset;
  return contents;
}

} // namespace millrace
