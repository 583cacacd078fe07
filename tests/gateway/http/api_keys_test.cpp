#include "gateway/http/transport/api_keys.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace millrace::http {
namespace {

constexpr const char* kKey = "sk-0123456789abcdef";

/// Why a text is refused; empty if it is not.
std::string complaint(std::string_view text) {
  try {
    ApiKeys::parse(text);
    return {};
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
}

TEST(ApiKeys, KnowWhoseKeyItIs) {
  const auto keys = ApiKeys::parse("# ours\n\n  alice\tsk-alice-0123456789  \r\nbob sk-bob-0123456789abc");

  EXPECT_EQ(keys.find("sk-alice-0123456789")->name, "http:alice");
  EXPECT_EQ(keys.find("sk-bob-0123456789abc")->name, "http:bob");
}

TEST(ApiKeys, KnowNoOther) {
  const auto keys = ApiKeys::parse("alice sk-alice-0123456789");

  for (const char* key : {"", "sk-alice-012345678", "sk-alice-01234567890", "SK-ALICE-0123456789", "alice",
                          "alice sk-alice-0123456789"})
    EXPECT_FALSE(keys.find(key)) << key;
}

TEST(ApiKeys, CallANamelessKeyByItsDigest) {
  const auto keys = ApiKeys::parse(kKey);

  const auto who = keys.find(kKey);

  ASSERT_TRUE(who);
  EXPECT_TRUE(who->name.starts_with("http:key-")) << who->name;
  EXPECT_EQ(who->name.find("0123456789abcdef"), std::string::npos);
}

TEST(ApiKeys, GiveANameSeveralKeys) {
  const auto keys = ApiKeys::parse("alice old-0123456789abcdef\nalice new-0123456789abcdef");

  EXPECT_EQ(keys.find("old-0123456789abcdef"), keys.find("new-0123456789abcdef"));
}

TEST(ApiKeys, TellTheLineThatIsWrongButNotTheKey) {
  EXPECT_NE(complaint("# x\nalice secret").find("line 2"), std::string::npos);
  EXPECT_EQ(complaint("# x\nalice secret").find("secret"), std::string::npos);
  EXPECT_EQ(complaint(std::string(59, 'n') + " sk-0123456789abcdef"), "");
  EXPECT_NE(complaint(std::string(60, 'n') + " sk-0123456789abcdef").find("59 characters"), std::string::npos);
  EXPECT_NE(complaint("a b sk-0123456789abcdef"), "");
  EXPECT_NE(complaint("alice sk-0123456789\xc3\xa9"
                      "abcdef"),
            "");
  EXPECT_NE(complaint("alice sk-0123456789abcdef\nbob sk-0123456789abcdef"), "");
}

TEST(ApiKeys, RefuseAFileWithoutAny) {
  EXPECT_NE(complaint(""), "");
  EXPECT_NE(complaint("# none\n\n"), "");
}

class ApiKeyFile : public testing::Test {
protected:
  ApiKeyFile() {
    std::string name = testing::TempDir() + "millrace_keys_XXXXXX";
    ::close(::mkstemp(name.data()));
    path_ = name;
    std::ofstream(path_) << "alice " << kKey << "\n";
  }
  ~ApiKeyFile() override { std::filesystem::remove(path_); }

  std::filesystem::path path_;
};

TEST_F(ApiKeyFile, IsReadIfOnlyItsOwnerMay) {
  ::chmod(path_.c_str(), 0600);

  EXPECT_EQ(ApiKeys::load(path_).find(kKey)->name, "http:alice");
}

TEST_F(ApiKeyFile, IsRefusedIfOthersMayUseIt) {
  for (const mode_t mode : {0640, 0604, 0660, 0602}) {
    ::chmod(path_.c_str(), mode);
    try {
      ApiKeys::load(path_);
      ADD_FAILURE() << std::oct << mode;
    } catch (const std::system_error& e) {
      EXPECT_NE(std::string(e.what()).find(path_.string()), std::string::npos) << e.what();
    }
  }
}

TEST_F(ApiKeyFile, IsNamedWhenItIsMalformed) {
  std::ofstream(path_) << "short\n";
  try {
    ApiKeys::load(path_);
    ADD_FAILURE();
  } catch (const std::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find(path_.string()), std::string::npos) << e.what();
  }
}

TEST(ApiKeyFiles, AreNamedWhenAbsentOrNoFiles) {
  EXPECT_THROW(ApiKeys::load("/nonexistent/keys"), std::system_error);
  EXPECT_THROW(ApiKeys::load(testing::TempDir()), std::system_error);
  EXPECT_THROW(ApiKeys::load("/dev/zero"), std::system_error);
}

} // namespace
} // namespace millrace::http
