// keygen: a pair of CURVE keys, for a server or for a client.

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/output.hpp"
#include "gateway/zeromq/curve_key.hpp"

#include <cstdio>
#include <filesystem>

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
  millrace keygen server                 server.key_secret (keep it) and server.key (for clients)
  millrace keygen alice >> allow.txt     and the server's list of clients gets a line
  millrace serve --curve-key server.key_secret --curve-allow allow.txt

Prints the public key and the name. The files are certificates as czmq and pyzmq (zmq.auth) know them.)";

int keygen(const std::filesystem::path& path) {
  if (!path.has_filename())
    throw UsageError("keygen needs the name of a file, not of a folder");
  const CurveKeyPair keys = make_curve_key_pair();
  const std::string secret = path.string() + ".key_secret", open = path.string() + ".key";
  write_curve_key_pair(keys, secret, open);
  std::fprintf(stderr, "wrote %s and %s\n", quote(secret).c_str(), quote(open).c_str());
  print_line(keys.public_key + ' ' + path.filename().string());
  return 0;
}

} // namespace

void add_keygen(CLI::App& program, Action& chosen) {
  auto path = std::make_shared<std::string>();
  auto& command = *program.add_subcommand("keygen", "Make a pair of keys for ZeroMQ's CURVE");
  command.add_option("name", *path, "Where to: NAME.key_secret and NAME.key")->required()->option_text("NAME");
  command.footer(kExamples);
  command.callback([path, &chosen] { chosen = [path] { return keygen(*path); }; });
}

} // namespace millrace
