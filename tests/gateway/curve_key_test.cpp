#include "gateway/zeromq/curve_key.hpp"

#include "tests/gateway/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>
#include <system_error>

namespace millrace {
namespace {

using std::filesystem::path;

class CurveKeyTest : public testing::Test {
protected:
  std::string refusal() const {
    try {
      read_curve_key_pair(secret_);
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  static mode_t mode(const path& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
  }

  test::TemporaryFolder folder_;
  path secret_ = folder_.path / "server.key_secret";
  path public_ = folder_.path / "server.key";
};

TEST_F(CurveKeyTest, ReadsThePairThatWasWritten) {
  const CurveKeyPair keys = make_curve_key_pair();

  write_curve_key_pair(keys, secret_, public_);

  EXPECT_EQ(read_curve_key_pair(secret_).secret_key, keys.secret_key);
  EXPECT_EQ(read_curve_key_pair(secret_).public_key, keys.public_key); // worked out from the secret one
}

TEST_F(CurveKeyTest, ReadsAKeyThatBeginsLikeTheSignBeforeIt) {
  CurveKeyPair keys = make_curve_key_pair();
  keys.secret_key[0] = '='; // a digit of Z85

  write_curve_key_pair(keys, secret_, public_);

  EXPECT_EQ(read_curve_key_pair(secret_).secret_key, keys.secret_key);
}

TEST_F(CurveKeyTest, WritesTheSecretForItsOwnerAlone) {
  write_curve_key_pair(make_curve_key_pair(), secret_, public_);

  EXPECT_EQ(mode(secret_), 0600u);
  EXPECT_EQ(mode(public_) & ~umask(umask(0)), mode(public_));
  EXPECT_EQ(mode(public_) & 0600, 0600u);
  std::ifstream file(public_);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text.find("secret-key"), std::string::npos);
}

TEST_F(CurveKeyTest, OverwritesNothing) {
  std::ofstream(public_) << "precious";

  EXPECT_THROW(write_curve_key_pair(make_curve_key_pair(), secret_, public_), std::system_error);

  EXPECT_FALSE(exists(secret_)); // no half of a pair
  std::string word;
  std::ifstream(public_) >> word;
  EXPECT_EQ(word, "precious");
}

TEST_F(CurveKeyTest, RefusesASecretThatOthersCanRead) {
  write_curve_key_pair(make_curve_key_pair(), secret_, public_);
  for (const mode_t bad : {0640u, 0604u, 0644u, 0620u}) {
    chmod(secret_.c_str(), bad);

    EXPECT_NE(refusal().find("chmod 600"), std::string::npos) << bad;
    EXPECT_NE(refusal().find(secret_.string()), std::string::npos) << bad;
  }
}

TEST_F(CurveKeyTest, RefusesFilesWithoutASecretKey) {
  for (const char* text : {"", "secret-key", "secret-key = ", "secret-key = \"\"", "secret-key = \"short\"",
                           "public-key = \"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\"",
                           "secret-key = \"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7x\""}) {
    std::ofstream(secret_, std::ios::trunc) << text;
    chmod(secret_.c_str(), 0600);

    EXPECT_NE(refusal().find("no secret CURVE key"), std::string::npos) << text;
  }
}

TEST_F(CurveKeyTest, RefusesWhatIsNoFileWithoutWaiting) {
  EXPECT_NE(refusal(), "");
  ASSERT_EQ(mkfifo(secret_.c_str(), 0600), 0);
  EXPECT_NE(refusal().find("is not a file"), std::string::npos);
  std::filesystem::remove(secret_);
  create_directory(secret_);
  EXPECT_NE(refusal(), "");
}

TEST_F(CurveKeyTest, RefusesALargeFile) {
  std::ofstream(secret_) << std::string(1u << 20, '#');
  chmod(secret_.c_str(), 0600);

  EXPECT_NE(refusal().find("is larger than"), std::string::npos);
}

TEST(IsCurveKey, KnowsZ85) {
  EXPECT_TRUE(is_curve_key("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"));

  EXPECT_FALSE(is_curve_key(""));
  EXPECT_FALSE(is_curve_key("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf"));
  EXPECT_FALSE(is_curve_key("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf77"));
  EXPECT_FALSE(is_curve_key("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf "));
  EXPECT_FALSE(is_curve_key(std::string(40, '#'))); // digits, but more than 32 bits in five of them
  EXPECT_FALSE(is_curve_key(std::string(39, '0') + '\0'));
  EXPECT_FALSE(is_curve_key(std::string(40, '\xE9')));
}

} // namespace
} // namespace millrace
