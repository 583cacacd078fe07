#pragma once

// CURVE at the ZeroMQ door: who has none of the keys on the list gets nothing.

#include "gateway/zeromq/curve_key.hpp"
#include "gateway/zeromq/socket.hpp"
#include "gateway/zeromq/zap.hpp"

#include <filesystem>
#include <optional>

namespace millrace {

struct CurveOptions {
  std::filesystem::path key_file;   // the server's secret key (mode 0600); empty: no keys, loopback only
  std::filesystem::path allow_file; // of the clients' public keys, see gateway/zeromq/curve_allow_list.hpp
};

/// The keys of a door and the thread that checks those of its clients. Stands between the context and the
/// sockets, see ZapHandler.
class CurveGuard {
public:
  /// Nothing at all without a key file. Throws std::invalid_argument if only one of the files is given, or
  /// what is wrong with one of them.
  CurveGuard(zmq::context_t& context, const CurveOptions& options);

  /// What the sockets of the door are to be bound with.
  SocketAccess access(bool allow_remote) const;

private:
  std::optional<CurveKeyPair> keys_;
  std::optional<ZapHandler> handler_;
};

} // namespace millrace
