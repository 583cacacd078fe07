// Our writer against the packer of msgpack-c, which takes the shortest form of each value as well.

#include "messages/msgpack_writer.hpp"

#include <gtest/gtest.h>
#include <msgpack.hpp>

#include <cstdint>
#include <limits>

namespace millrace {
namespace {

using namespace std::string_literals;
using Packer = msgpack::packer<msgpack::sbuffer>;

template <class T> struct Box {
  static constexpr std::string_view kType = "box";
  T value;
  MILLRACE_FIELDS(value)
};

template <class T> std::string written(const T& value) {
  MsgpackWriter writer;
  writer.write_frame(Box<T>{value});
  return writer.take();
}

template <class Pack> std::string packed(Pack pack) {
  msgpack::sbuffer buffer;
  Packer packer(buffer);
  packer.pack_map(2);
  packer.pack("type");
  packer.pack("box");
  packer.pack("value");
  pack(packer);
  return {buffer.data(), buffer.size()};
}

template <class T> class MsgpackWriterInteger : public testing::Test {};
using Integers = testing::Types<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t>;
TYPED_TEST_SUITE(MsgpackWriterInteger, Integers);

TYPED_TEST(MsgpackWriterInteger, TakesTheShortestFormOnBothSidesOfEachLimit) {
  using T = TypeParam;
  std::vector<T> values{0, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
  for (int bit = 0; bit < 64; ++bit)
    for (int64_t offset : {-1, 0, 1})
      for (int sign : {-1, 1}) {
        const uint64_t magnitude = (uint64_t{1} << bit) + static_cast<uint64_t>(offset);
        values.push_back(static_cast<T>(sign < 0 ? 0 - magnitude : magnitude));
      }
  for (T value : {-32, -33})
    values.push_back(value);
  for (const T value : values)
    EXPECT_EQ(written(value), packed([&](Packer& packer) { packer.pack(value); })) << +value;
}

TEST(MsgpackWriter, TakesTheShortestHeaderOfAString) {
  for (size_t size : {0, 1, 31, 32, 255, 256, 65'535, 65'536}) {
    const std::string text(size, 'x');
    EXPECT_EQ(written(text), packed([&](Packer& packer) { packer.pack(text); })) << size;
  }
}

TEST(MsgpackWriter, TakesTheShortestHeaderOfBytes) {
  for (size_t size : {0, 1, 255, 256, 65'535, 65'536}) {
    const Bytes bytes{std::string(size, '\xff')};
    EXPECT_EQ(written(bytes), packed([&](Packer& packer) {
                packer.pack_bin(static_cast<uint32_t>(size));
                packer.pack_bin_body(bytes.data.data(), static_cast<uint32_t>(size));
              }))
        << size;
  }
}

TEST(MsgpackWriter, TakesTheShortestHeaderOfAnArray) {
  for (size_t size : {0, 1, 15, 16, 65'535, 65'536}) {
    const std::vector<int32_t> values(size, -129);
    EXPECT_EQ(written(values), packed([&](Packer& packer) { packer.pack(values); })) << size;
  }
}

TEST(MsgpackWriter, TakesTheShortestHeaderOfAMap) {
  for (size_t size : {0, 1, 15, 16, 65'535, 65'536}) {
    std::map<TokenId, int32_t> entries;
    for (size_t i = 0; i < size; ++i)
      entries[static_cast<TokenId>(i)] = -1;
    EXPECT_EQ(written(entries), packed([&](Packer& packer) { packer.pack(entries); })) << size;
  }
}

TEST(MsgpackWriter, KeepsFloatsAsTheyAre) {
  EXPECT_TRUE(written(2.0f).ends_with("\xca\x40\0\0\0"s));
  EXPECT_TRUE(written(-0.0f).ends_with("\xca\x80\0\0\0"s));
  EXPECT_TRUE(written(-2.0).ends_with("\xcb\xc0\0\0\0\0\0\0\0"s));
}

TEST(MsgpackWriter, AppendsOneFrameToAnother) {
  MsgpackWriter writer;
  writer.write_frame(Box<std::string>{std::string(1'000, 'a')});
  writer.write_frame(Box<bool>{true});
  EXPECT_EQ(writer.view(), written(std::string(1'000, 'a')) + written(true));
  writer.clear(100);
  writer.write_frame(Box<bool>{false});
  EXPECT_EQ(writer.take(), written(false));
  EXPECT_EQ(writer.take(), "");
}

} // namespace
} // namespace millrace
