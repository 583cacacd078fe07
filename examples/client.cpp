// Read a stream of a running server, from the first token to the last, whatever happens on the way:
//
//   millrace serve &
//   example_client "Once upon a time" 40

#include "gateway/client.hpp"

#include <cstdio>
#include <cstdlib>

using namespace millrace;

int main(int argc, char** argv) {
  ClientOptions options;
  if (const char* endpoint = std::getenv("MILLRACE_REQUESTS"))
    options.requests = endpoint;
  if (const char* endpoint = std::getenv("MILLRACE_EVENTS"))
    options.events = endpoint;
  Client client(options);

  Generate request;
  request.prompt = argc > 1 ? argv[1] : "Once upon a time";
  request.max_tokens = argc > 2 ? std::atoi(argv[2]) : 40;
  Client::Stream stream = client.generate(std::move(request));

  while (const auto event = stream.next()) {
    if (const auto* token = std::get_if<Token>(&*event))
      std::printf("%s", token->text.c_str());
    else if (const auto* finished = std::get_if<Finished>(&*event))
      std::printf("%s\n[%s]\n", finished->text.c_str(), finished->reason.c_str());
    else if (const auto* lost = std::get_if<Lagging>(&*event))
      std::fprintf(stderr, "events %lld to %lld are gone\n", static_cast<long long>(lost->wanted_seq),
                   static_cast<long long>(lost->held_seq - 1));
    else if (const auto* rejected = std::get_if<Rejected>(&*event))
      return std::fprintf(stderr, "%s: %s\n", rejected->error.c_str(), rejected->message.c_str()), 1;
    std::fflush(stdout);
  }
}
