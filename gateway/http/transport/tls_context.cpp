#include "gateway/http/transport/tls_context.hpp"

#include <cerrno>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string>
#include <sys/stat.h>
#include <system_error>

namespace millrace::http {
namespace {

[[noreturn]] void throw_tls_error(const std::string& what) {
  const unsigned long error = ERR_get_error();
  const char* reason = error ? ERR_reason_error_string(error) : nullptr;
  throw std::system_error(EINVAL, std::generic_category(),
                          what + (reason ? std::string(" (") + reason + ")" : ""));
}

void check_readable(const std::filesystem::path& path, bool secret) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0)
    throw std::system_error(errno, std::generic_category(), path.string());
  if (secret && about.st_mode & S_IROTH)
    throw std::system_error(EACCES, std::generic_category(),
                            path.string() + ": everybody may read this private key; chmod 600 it");
}

/// A client that speaks only h2 is refused in the handshake, rather than misunderstood after it.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
                    unsigned int offered_size, void*) {
  static constexpr unsigned char kHttp11[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, size, kHttp11, sizeof kHttp11, offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

} // namespace

std::shared_ptr<SSL_CTX> make_tls_context(const std::filesystem::path& certificate,
                                          const std::filesystem::path& private_key) {
  check_readable(certificate, false);
  check_readable(private_key, true);
  ERR_clear_error();
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (!context)
    throw_tls_error("TLS");
  SSL_CTX* c = context.get();
  SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
  SSL_CTX_set_options(c, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // A peer may leave without a close_notify: HTTP tells its lengths, so nothing can be cut unseen.
  SSL_CTX_set_options(c, SSL_OP_IGNORE_UNEXPECTED_EOF);
  // Release: an idle connection keeps no buffers. The others: SSL_write takes what fits, from a buffer that
  // may move.
  SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                          SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF); // tickets need no memory here
  SSL_CTX_set_num_tickets(c, 1);
  if (SSL_CTX_set_cipher_list(c, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1)
    throw_tls_error("TLS ciphers");
  SSL_CTX_set_alpn_select_cb(c, choose_protocol, nullptr);
  // An encrypted key fails: OpenSSL would ask the terminal for its passphrase.
  SSL_CTX_set_default_passwd_cb(c, [](char*, int, int, void*) { return -1; });
  if (SSL_CTX_use_certificate_chain_file(c, certificate.c_str()) != 1)
    throw_tls_error(certificate.string() + ": no usable certificate");
  if (SSL_CTX_use_PrivateKey_file(c, private_key.c_str(), SSL_FILETYPE_PEM) != 1)
    throw_tls_error(private_key.string() + ": no usable private key for this certificate");
  if (SSL_CTX_check_private_key(c) != 1)
    throw_tls_error(private_key.string() + ": not the private key of " + certificate.string());
  return context;
}

} // namespace millrace::http
