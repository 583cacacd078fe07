#pragma once

// CURVE keys and the files that hold them, in the form that ZeroMQ's own tools write and read (czmq's
// certificates, pyzmq's zmq.auth.load_certificate).

#include <filesystem>
#include <string>
#include <string_view>

namespace millrace {

/// Both in Z85: 40 characters each.
struct CurveKeyPair {
  std::string public_key;
  std::string secret_key;
};

/// A new pair. Throws std::runtime_error if the libzmq that was loaded has no CURVE.
CurveKeyPair make_curve_key_pair();

/// Whether it is 32 bytes in Z85.
bool is_curve_key(std::string_view text);
/// 32 bytes in Z85.
std::string to_z85(std::string_view key);

/// Writes the pair for its owner alone (mode 0600) and the public key for everybody (0644). Neither file may
/// exist. Throws std::system_error naming the file; then none is left behind.
void write_curve_key_pair(const CurveKeyPair& keys, const std::filesystem::path& secret_file,
                          const std::filesystem::path& public_file);

/// The pair of a file with a secret key. Throws std::system_error if it can't be read or if anybody else can,
/// std::runtime_error if there is no such key in it; both name the file.
CurveKeyPair read_curve_key_pair(const std::filesystem::path& secret_file);

/// The bytes of a file of at most `max_bytes` that nobody but its user or root could have written, and of
/// whose permissions none of `forbidden` is given. Throws std::system_error naming the file.
std::string read_trusted_file(const std::filesystem::path& file, size_t max_bytes, unsigned forbidden);

} // namespace millrace
