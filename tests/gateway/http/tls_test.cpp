#include "tests/gateway/http/server_test.hpp"
#include "tests/gateway/temporary_folder.hpp"

#include <filesystem>
#include <fstream>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <system_error>

namespace millrace::http::test {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Key make_key() {
  return {EVP_EC_gen("P-256"), EVP_PKEY_free};
}

/// A certificate for localhost that its own key has signed, valid for an hour.
void write_certificate(const std::filesystem::path& path, EVP_PKEY* key) {
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  X509* c = certificate.get();
  X509_set_version(c, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(c), 1);
  X509_gmtime_adj(X509_getm_notBefore(c), -60);
  X509_gmtime_adj(X509_getm_notAfter(c), 3'600);
  X509_NAME* name = X509_get_subject_name(c);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"),
                             -1, -1, 0);
  X509_set_issuer_name(c, name);
  X509_set_pubkey(c, key);
  X509_sign(c, key, EVP_sha256());
  const std::unique_ptr<FILE, decltype(&std::fclose)> file(std::fopen(path.c_str(), "w"), std::fclose);
  PEM_write_X509(file.get(), c);
}

void write_key(const std::filesystem::path& path, EVP_PKEY* key) {
  const std::unique_ptr<FILE, decltype(&std::fclose)> file(std::fopen(path.c_str(), "w"), std::fclose);
  PEM_write_PrivateKey(file.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  ::chmod(path.c_str(), 0600);
}

class TlsServer : public ServerTest {
protected:
  TlsServer() {
    options_.certificate = folder_ / "certificate.pem";
    options_.private_key = folder_ / "key.pem";
    const auto key = make_key();
    write_certificate(options_.certificate, key.get());
    write_key(options_.private_key, key.get());
  }
  /// Why the server does not start.
  std::string complaint() const {
    try {
      const Server server(options_, {}, [](auto) {});
      return "";
    } catch (const std::system_error& e) {
      return e.what();
    }
  }

  const millrace::test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path;
};

/// A TLS client over a peer's socket that trusts the server's certificate alone.
class TlsPeer {
public:
  TlsPeer(Peer peer, const std::filesystem::path& trusted,
          const std::function<void(SSL_CTX*)>& configure = {})
      : peer_(std::move(peer)), context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free),
        tls_(nullptr, SSL_free) {
    SSL_CTX_load_verify_locations(context_.get(), trusted.c_str(), nullptr);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    if (configure)
      configure(context_.get());
    tls_.reset(SSL_new(context_.get()));
    SSL_set_fd(tls_.get(), peer_.descriptor());
    connected_ = SSL_connect(tls_.get()) == 1;
  }
  bool connected() const { return connected_; }
  SSL* get() { return tls_.get(); }
  Peer& socket() { return peer_; }

  void send(std::string_view text) { SSL_write(tls_.get(), text.data(), int(text.size())); }
  /// Until a text has come; all that was read.
  std::string receive_until(std::string_view text) {
    std::string got;
    char bytes[16 << 10];
    while (got.find(text) == got.npos) {
      const int n = SSL_read(tls_.get(), bytes, sizeof bytes);
      if (n <= 0)
        break;
      got.append(bytes, size_t(n));
    }
    return got;
  }

private:
  Peer peer_;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> tls_;
  bool connected_ = false;
};

constexpr std::string_view kGet = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST_F(TlsServer, AnswersOverTls13) {
  start_echo();
  TlsPeer client(peer(), options_.certificate);

  ASSERT_TRUE(client.connected());
  EXPECT_TRUE(server_->endpoint().starts_with("https://127.0.0.1:"));
  EXPECT_EQ(SSL_version(client.get()), TLS1_3_VERSION);
  for (int i = 0; i < 3; ++i) {
    client.send(kGet);
    EXPECT_NE(client.receive_until("/a").find("200 OK"), std::string::npos);
  }
}

TEST_F(TlsServer, AnswersOverTls12ButNothingOlder) {
  start_echo();
  const auto at_most = [](int version) {
    return [version](SSL_CTX* c) { SSL_CTX_set_max_proto_version(c, version); };
  };

  TlsPeer good(peer(), options_.certificate, at_most(TLS1_2_VERSION));
  ASSERT_TRUE(good.connected());
  good.send(kGet);
  EXPECT_NE(good.receive_until("/a").find("200 OK"), std::string::npos);
  EXPECT_FALSE(TlsPeer(peer(), options_.certificate, [](SSL_CTX* c) {
                 SSL_CTX_set_security_level(c, 0);
                 SSL_CTX_set_min_proto_version(c, TLS1_VERSION);
                 SSL_CTX_set_max_proto_version(c, TLS1_1_VERSION);
               }).connected());
}

TEST_F(TlsServer, SpeaksHttp11ByAlpnOrNotAtAll) {
  start_echo();
  const auto offering = [](const std::string& protocols) {
    return [protocols](SSL_CTX* c) {
      SSL_CTX_set_alpn_protos(c, reinterpret_cast<const unsigned char*>(protocols.data()),
                              unsigned(protocols.size()));
    };
  };

  TlsPeer both(peer(), options_.certificate, offering("\x02h2\x08http/1.1"));
  ASSERT_TRUE(both.connected());
  const unsigned char* chosen = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(both.get(), &chosen, &size);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(chosen), size), "http/1.1");
  EXPECT_FALSE(TlsPeer(peer(), options_.certificate, offering("\x02h2")).connected());
}

TEST_F(TlsServer, StreamsAndNoticesThatAPeerLeft) {
  Signal closed;
  start_held();
  auto client = std::make_optional<TlsPeer>(peer(), options_.certificate);
  client->send(kGet);
  const auto exchange = held_.take();
  on_loop(*exchange, [&](Exchange& e) {
    e.on_close([&] { closed.give(); });
    e.begin({});
    e.write("token");
  });
  EXPECT_NE(client->receive_until("token").find("chunked"), std::string::npos);

  client.reset();

  EXPECT_TRUE(closed.wait());
}

TEST_F(TlsServer, NoticesACloseNotify) {
  Signal closed;
  start_held();
  TlsPeer client(peer(), options_.certificate);
  client.send(kGet);
  const auto exchange = held_.take();
  on_loop(*exchange, [&](Exchange& e) { e.on_close([&] { closed.give(); }); });

  SSL_shutdown(client.get());

  EXPECT_TRUE(closed.wait());
}

TEST_F(TlsServer, SendsALargeAnswerToASlowReaderWhole) {
  const std::string large(4u << 20, 'x');
  start([&](auto exchange) { exchange->respond({.body = large + "end"}); });
  TlsPeer client(peer(4'096), options_.certificate);

  client.send(kGet);

  EXPECT_GT(client.receive_until("end").size(), large.size());
}

TEST_F(TlsServer, TakesALargeBody) {
  start([](auto exchange) {
    exchange->respond({.body = std::to_string(exchange->request().body.size()) + "."});
  });
  TlsPeer client(peer(), options_.certificate);

  client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" +
              std::string(1'000'000, 'x'));

  EXPECT_NE(client.receive_until("1000000.").find("200 OK"), std::string::npos);
}

TEST_F(TlsServer, EndsAHandshakeThatDoesNotCome) {
  options_.handshake_timeout = std::chrono::milliseconds(20);
  start_echo();
  auto silent = peer();

  EXPECT_TRUE(silent.at_end());
  EXPECT_EQ(server_->stats().timeouts, 1u);
}

TEST_F(TlsServer, SurvivesPeersThatBreakTheRules) {
  start_echo();
  peer().send(kGet).rest(); // plain HTTP
  peer().send(std::string(2'000, '\x16')).rest();
  {
    TlsPeer client(peer(), options_.certificate);
    client.socket().send("garbage in the midst of records");
    client.socket().rest();
  }
  for (int i = 0; i < 20; ++i) { // leaves without a word, with an answer on its way
    TlsPeer client(peer(), options_.certificate);
    client.send(kGet);
    client.socket().reset();
  }

  TlsPeer client(peer(), options_.certificate);
  client.send(kGet);
  EXPECT_NE(client.receive_until("/a").find("200 OK"), std::string::npos);
}

TEST_F(TlsServer, NamesTheFileThatItCannotUse) {
  const auto certificate = options_.certificate, key = options_.private_key;

  options_.certificate = folder_ / "absent.pem";
  EXPECT_NE(complaint().find("absent.pem"), std::string::npos) << complaint();
  options_.certificate = key;
  EXPECT_NE(complaint().find("key.pem: no usable certificate"), std::string::npos) << complaint();
  options_.certificate = certificate;
  write_key(folder_ / "other.pem", make_key().get());
  options_.private_key = folder_ / "other.pem";
  EXPECT_NE(complaint().find("other.pem"), std::string::npos) << complaint();
}

TEST_F(TlsServer, RefusesAKeyThatEverybodyMayRead) {
  ::chmod(options_.private_key.c_str(), 0644);

  EXPECT_NE(complaint().find("key.pem"), std::string::npos) << complaint();
}

TEST_F(TlsServer, MayListenBeyondLoopbackWithKeys) {
  std::ofstream(folder_ / "keys") << "alice sk-alice-0123456789\n";
  ::chmod((folder_ / "keys").c_str(), 0600);
  options_.address = "0.0.0.0";
  options_.allow_remote = true;
  options_.api_keys = folder_ / "keys";

  EXPECT_EQ(complaint(), "");
}

} // namespace
} // namespace millrace::http::test
