#include "gateway/zeromq/zap.hpp"

#include "gateway/zeromq/curve_key.hpp"
#include "messages/report.hpp"

#include <array>
#include <csignal>
#include <exception>

namespace millrace {
namespace {

constexpr const char* kEndpoint = "inproc://zeromq.zap.01";
constexpr std::string_view kVersion = "1.0";
constexpr size_t kMaxFrames = 16; // more are read and not kept
constexpr size_t kKeyBytes = 32;

// Where things stand in a request, behind the empty frame that a REP socket takes off.
enum Frame : size_t { version, request_id, domain, address, routing_id, mechanism, credentials, kFrames };

} // namespace

ZapReply answer_zap(std::span<const std::string> frames, CurveAllowList& allowed) {
  ZapReply reply;
  reply.request_id = frames.size() > request_id ? frames[request_id] : "";
  const auto refuse = [&reply](const char* status, const char* text) {
    reply.status = status;
    reply.text = text;
    return reply;
  };
  if (frames.size() < credentials || frames[version] != kVersion)
    return refuse("500", "the request is not of ZAP 1.0");
  if (frames[domain] != kZapDomain)
    return refuse("400", "the domain is unknown");
  if (frames[mechanism] != "CURVE")
    return refuse("400", "only CURVE is allowed");
  if (frames.size() != kFrames || frames[credentials].size() != kKeyBytes)
    return refuse("400", "the credentials are no CURVE key");
  std::string key = to_z85(frames[credentials]);
  if (!allowed.allows(key))
    return refuse("400", "the key is not on the list");
  reply.status = "200";
  reply.text = "OK";
  reply.user_id = std::move(key);
  return reply;
}

ZapHandler::ZapHandler(zmq::context_t& context, CurveAllowList allowed)
    : allowed_(std::move(allowed)), socket_(context, zmq::socket_type::rep) {
  socket_.set(zmq::sockopt::linger, 0);
  socket_.bind(kEndpoint);
  thread_ = std::thread([this] { run(); });
}

ZapHandler::~ZapHandler() {
  stop_.signal();
  thread_.join();
}

void ZapHandler::run() {
  sigset_t all; // signals are the business of the main thread
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);

  for (;;) {
    std::array<zmq::pollitem_t, 2> items{
        {{nullptr, stop_.descriptor(), ZMQ_POLLIN, 0}, {socket_.handle(), 0, ZMQ_POLLIN, 0}}};
    try {
      zmq::poll(items, std::chrono::milliseconds(-1));
      if (items[0].revents)
        return;
      if (items[1].revents)
        answer_one();
    } catch (const zmq::error_t& error) {
      if (error.num() == ETERM)
        return;
      if (error.num() != EINTR)
        report("gateway", std::string("a client's key can't be checked: ") + error.what());
    }
  }
}

void ZapHandler::answer_one() {
  std::vector<std::string> frames;
  zmq::message_t part;
  bool more = true;
  while (more) {
    (void)socket_.recv(part); // the parts of a message arrive together
    more = part.more();
    if (frames.size() < kMaxFrames)
      frames.push_back(part.to_string());
  }
  ZapReply reply;
  try {
    reply = answer_zap(frames, allowed_);
  } catch (const std::exception&) { // out of memory, say: refuse rather than not answer
    reply = {.request_id = frames.size() > request_id ? frames[request_id] : "",
             .status = "500",
             .text = "internal error",
             .user_id = ""};
  }
  constexpr auto kMore = zmq::send_flags::sndmore;
  for (const std::string_view frame :
       {kVersion, std::string_view(reply.request_id), std::string_view(reply.status),
        std::string_view(reply.text), std::string_view(reply.user_id)})
    socket_.send(zmq::buffer(frame), kMore);
  socket_.send(zmq::message_t(), zmq::send_flags::none); // no metadata
}

} // namespace millrace
