#include "gateway/request_log.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace millrace::test {
namespace {

class RequestLogTest : public testing::Test {
protected:
  RequestLogTest() {
    start(false);
    request_.request.bytes.fill(0xab);
    request_.prompt = "A secret between us";
  }
  ~RequestLogTest() override { ::close(file_); }

  void start(bool prompts) {
    log_ = std::make_shared<Log>(LogOptions{.descriptor = file_});
    requests_ = std::make_unique<RequestLog>(log_, prompts);
  }
  /// Everything that was written, once the log is closed.
  std::string text() {
    requests_.reset();
    log_.reset();
    std::string text(1 << 20, '\0');
    text.resize(static_cast<size_t>(::pread(file_, text.data(), text.size(), 0)));
    return text;
  }
  static int count(const std::string& text, const std::string& word) {
    int found = 0;
    for (size_t at = 0; (at = text.find(word, at)) != text.npos; at += word.size())
      ++found;
    return found;
  }
  void refuse() {
    requests_->refused(request_.request, who_, origin_,
                       {.code = Error::invalid_field, .field = "sampling.top_p", .message = "is at most 1"});
  }

  const int file_ = ::memfd_create("log", MFD_CLOEXEC);
  std::shared_ptr<Log> log_;
  std::unique_ptr<RequestLog> requests_;
  Generate request_;
  const Principal who_{"http:alice"};
  const Origin origin_{.door = "http", .request_id = "r-1"};
  RequestTrail trail_;
};

TEST_F(RequestLogTest, TellsTheLifeOfARequest) {
  requests_->opened(request_, who_, origin_, trail_);
  Finished finished;
  finished.reason = "length";
  requests_->event(finished, trail_);
  finished.reason = "stop";
  requests_->event(finished, trail_);
  Done done;
  done.prompt_tokens = 7;
  done.generated_tokens = 9;
  done.decode_ms = 1.5;
  requests_->event(done, trail_);
  const std::string text = this->text();

  EXPECT_NE(
      text.find("info opened stream=abababab request_id=r-1 door=http principal=http:alice choices=1\n"),
      text.npos)
      << text;
  EXPECT_NE(text.find("info finished stream=abababab request_id=r-1 door=http principal=http:alice "
                      "reason=length,stop prompt_tokens=7 generated_tokens=9 queue_ms=0.0 prefill_ms=0.0 "
                      "decode_ms=1.5\n"),
            text.npos)
      << text;
}

TEST_F(RequestLogTest, TellsNeitherThePromptNorTheWholeId) {
  requests_->opened(request_, who_, origin_, trail_);
  Token token;
  token.text = "a secret answer";
  requests_->event(token, trail_);
  requests_->event(Done{}, trail_);
  const std::string text = this->text();

  EXPECT_EQ(text.find("secret"), text.npos);
  EXPECT_EQ(text.find("ababababab"), text.npos);
}

TEST_F(RequestLogTest, TellsThePromptWhenAsked) {
  start(true);
  requests_->opened(request_, who_, origin_, trail_);
  request_.prompt.reset();
  request_.messages.emplace().emplace_back().role = "user";
  request_.messages->back().content = "line\nbreak";
  requests_->opened(request_, who_, origin_, trail_);
  const std::string text = this->text();

  EXPECT_NE(text.find("prompt=\"A secret between us\"\n"), text.npos) << text;
  EXPECT_NE(text.find("prompt=\"user: line\\nbreak\"\n"), text.npos) << text;
}

TEST_F(RequestLogTest, TellsAFailureAsAnError) {
  requests_->opened(request_, who_, origin_, trail_);
  Finished finished;
  finished.reason = "error";
  finished.error = "device_lost";
  requests_->event(finished, trail_);
  requests_->event(Done{}, trail_);

  EXPECT_NE(text().find("error finished stream=abababab request_id=r-1 door=http principal=http:alice "
                        "reason=error code=device_lost"),
            std::string::npos);
}

TEST_F(RequestLogTest, TellsWhatWasRefusedBeforeAndAfterItWasAdmitted) {
  refuse();
  requests_->opened(request_, who_, origin_, trail_);
  Rejected rejected;
  rejected.error = "prompt_too_long";
  rejected.message = "of us";
  requests_->event(rejected, trail_);
  const std::string text = this->text();

  EXPECT_NE(
      text.find("refused stream=abababab request_id=r-1 door=http principal=http:alice code=invalid_field "
                "field=sampling.top_p\n"),
      text.npos)
      << text;
  EXPECT_NE(text.find("principal=http:alice code=prompt_too_long\n"), text.npos);
}

TEST_F(RequestLogTest, IsNotFilledByRefusals) {
  for (int i = 0; i < 50 * RequestLog::kRefusalsPerSecond; ++i)
    refuse();
  const std::string text = this->text();

  EXPECT_GE(count(text, " refused "), RequestLog::kRefusalsPerSecond);
  EXPECT_LT(count(text, " refused "), 10 * RequestLog::kRefusalsPerSecond);
}

} // namespace
} // namespace millrace::test
