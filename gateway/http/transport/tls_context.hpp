#pragma once

#include <filesystem>
#include <memory>

typedef struct ssl_ctx_st SSL_CTX;

namespace millrace::http {

/// What a TLS server shows its clients: TLS 1.2 with forward secrecy and authenticated ciphers, or 1.3;
/// "http/1.1" by ALPN. Throws std::system_error naming the file that can't be used, or if the key may be read
/// by everybody.
std::shared_ptr<SSL_CTX> make_tls_context(const std::filesystem::path& certificate,
                                          const std::filesystem::path& private_key);

} // namespace millrace::http
