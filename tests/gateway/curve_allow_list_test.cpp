#include "gateway/zeromq/curve_allow_list.hpp"

#include "gateway/zeromq/curve_key.hpp"
#include "tests/gateway/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>

namespace millrace {
namespace {

class CurveAllowListTest : public testing::Test {
protected:
  void write(const std::string& text) const { std::ofstream(file_, std::ios::trunc) << text; }
  std::string refusal() const {
    try {
      CurveAllowList list(file_);
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  test::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path / "allow";
  std::string a_ = make_curve_key_pair().public_key, b_ = make_curve_key_pair().public_key;
};

TEST_F(CurveAllowListTest, AllowsTheKeysOfTheFileAndNoOther) {
  write("# who may come in\n\n" + a_ + "\n  " + b_ + "\tBob, of the night shift\r\n#\n#comment\n");
  CurveAllowList list(file_);

  EXPECT_TRUE(list.allows(a_));
  EXPECT_TRUE(list.allows(b_));
  EXPECT_FALSE(list.allows(make_curve_key_pair().public_key));
  EXPECT_FALSE(list.allows(""));
  EXPECT_FALSE(list.allows(a_.substr(0, 39)));
}

TEST_F(CurveAllowListTest, CannotMistakeAKeyForAComment) {
  EXPECT_TRUE(is_curve_key("%" + std::string(39, '0')));
  EXPECT_FALSE(is_curve_key("#" + std::string(39, '0')));
}

TEST_F(CurveAllowListTest, FollowsTheFile) {
  write(a_ + "\n");
  CurveAllowList list(file_);
  ASSERT_FALSE(list.allows(b_));

  write(a_ + "\n" + b_ + "\n");
  EXPECT_TRUE(list.allows(a_));
  EXPECT_TRUE(list.allows(b_));

  write(b_ + "\n");
  EXPECT_FALSE(list.allows(a_));
  EXPECT_TRUE(list.allows(b_));
}

TEST_F(CurveAllowListTest, LetsNobodyInOnceTheFileIsGoneAndAgainWhenItIsBack) {
  write(a_ + "\n");
  CurveAllowList list(file_);

  std::filesystem::remove(file_);
  EXPECT_FALSE(list.allows(a_));
  write("");
  EXPECT_FALSE(list.allows(a_));
  write(a_ + "\n");
  EXPECT_TRUE(list.allows(a_));
}

TEST_F(CurveAllowListTest, LetsNobodyInWhileALineIsWrong) {
  write(a_ + "\n");
  CurveAllowList list(file_);

  write(a_ + "\nnonsense\n");

  EXPECT_FALSE(list.allows(a_));
}

TEST_F(CurveAllowListTest, LetsNobodyInWhileOthersMayWriteTheFile) {
  write(a_ + "\n");
  CurveAllowList list(file_);

  chmod(file_.c_str(), 0666);
  EXPECT_FALSE(list.allows(a_));
  chmod(file_.c_str(), 0644);
  EXPECT_TRUE(list.allows(a_));
}

TEST_F(CurveAllowListTest, RefusesAtTheStartWhatCouldLetNobodyIn) {
  EXPECT_NE(refusal().find(file_.string()), std::string::npos);
  write("# nobody yet\n");
  EXPECT_NE(refusal().find("holds no key"), std::string::npos);
  write(a_ + "\n" + a_ + a_ + "\n");
  EXPECT_NE(refusal().find("line 2"), std::string::npos);
  write(a_ + "\n");
  chmod(file_.c_str(), 0664);
  EXPECT_NE(refusal().find("chmod go-w"), std::string::npos);
}

TEST_F(CurveAllowListTest, DoesNotRepeatWhatStandsInAWrongLine) {
  write("a secret that was pasted here\n");

  EXPECT_EQ(refusal().find("secret"), std::string::npos);
}

TEST_F(CurveAllowListTest, RefusesAHugeFile) {
  write(std::string(5u << 20, '\n'));

  EXPECT_NE(refusal().find("is larger than"), std::string::npos);
}

} // namespace
} // namespace millrace
