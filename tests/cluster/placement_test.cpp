#include "cluster/placement.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace millrace {
namespace {

std::string refusal(std::string_view text) {
  try {
    parse_device(text);
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(ParseDevice, TakesTheProcessorWithOrWithoutItsNumber) {
  for (const char* text : {"cpu", "cpu:0"}) {
    const DeviceSpec device = parse_device(text);
    EXPECT_EQ(device.kind, "cpu");
    EXPECT_EQ(device.index, 0);
  }
}

TEST(ParseDevice, SaysThatThereAreNoCudaDevices) {
  for (const char* text : {"cuda", "cuda:0", "cuda:7"})
    EXPECT_NE(refusal(text).find("no CUDA"), std::string::npos) << text;
}

TEST(ParseDevice, RefusesOtherKindsAndSaysWhatIsKnown) {
  for (const char* text : {"", ":", ":0", "CPU", "cpu ", " cpu", "gpu:0", "tpu", "cpu0"}) {
    EXPECT_NE(refusal(text).find("known: cpu"), std::string::npos) << text;
    EXPECT_NE(refusal(text).find("\"" + std::string(text) + "\""), std::string::npos) << text;
  }
}

TEST(ParseDevice, RefusesAnIndexThatIsNoDevice) {
  for (const char* text :
       {"cpu:", "cpu:x", "cpu:0x", "cpu:0:1", "cpu:-1", "cpu:1", "cpu:99999999999", "cpu: 0", "cpu:+0"})
    EXPECT_NE(refusal(text), "") << text;
}

} // namespace
} // namespace millrace
