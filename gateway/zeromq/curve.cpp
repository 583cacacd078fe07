#include "gateway/zeromq/curve.hpp"

#include <stdexcept>

namespace millrace {

CurveGuard::CurveGuard(zmq::context_t& context, const CurveOptions& options) {
  if (options.key_file.empty() != options.allow_file.empty())
    throw std::invalid_argument(options.key_file.empty()
                                    ? "a list of clients' CURVE keys needs the server's own key"
                                    : "CURVE needs a list of the clients' keys, or anybody could connect");
  if (options.key_file.empty())
    return;
  keys_ = read_curve_key_pair(options.key_file);
  handler_.emplace(context, CurveAllowList(options.allow_file));
}

SocketAccess CurveGuard::access(bool allow_remote) const {
  return {.secret_key = keys_ ? keys_->secret_key : "", .allow_remote = allow_remote};
}

} // namespace millrace
