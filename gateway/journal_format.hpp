#pragma once

// What a journal file holds: a magic number, then records, each of length, checksum and bytes. The first
// record is the head, the others are events. A checksum covers the place of its record, too, so that a record
// that is cut, damaged, moved or left over from another file is none.
//
//   file   = "MRJRNL1\n" *record
//   record = length (u32, little-endian, above 0)  checksum (u64, little-endian)  length bytes

#include "gateway/journal.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

inline constexpr std::string_view kJournalMagic = "MRJRNL1\n";
inline constexpr size_t kRecordOverhead = 12;

/// Adds a record to bytes that will stand at `offset` of a file.
void append_record(std::string& bytes, size_t offset, std::string_view body);

/// The beginning of a journal file: its magic number and its head. Throws std::length_error if the head is
/// larger than a frame may be.
std::string encode_journal_head(const JournalHead& head);

struct JournalContents {
  JournalHead head;
  std::vector<std::string_view> events; // into the bytes that were read
  size_t good_bytes = 0;                // from the beginning; what follows is no record
};

/// Reads whatever is given; nullopt if it doesn't begin with a whole head of this version.
std::optional<JournalContents> read_journal(std::string_view bytes);

} // namespace millrace
