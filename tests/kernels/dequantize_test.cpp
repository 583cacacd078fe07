#include "kernels/dequantize.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <cmath>
#include <fstream>
#include <set>
#include <vector>

namespace millrace {
namespace {

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes.push_back(std::byte(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST(Dequantize, GivesGgmlsBitsForEveryType) {
  const auto golden = nlohmann::json::parse(std::ifstream(MILLRACE_TEST_DATA "/quant_vectors.json"));
  std::set<DType> seen;
  for (const auto& c : golden["cases"]) {
    const auto type = dtype_from_id(c["ggml_type"]);
    ASSERT_TRUE(type) << c["type"];
    seen.insert(*type);
    auto bytes = from_hex(c["bytes"]);
    bytes.insert(bytes.begin(), std::byte{0}); // an odd address
    std::vector<float> actual(c["n"].get<size_t>());

    dequantize(actual.data(), bytes.data() + 1, int64_t(actual.size()), *type);

    for (size_t i = 0; i < actual.size(); ++i) {
      const auto& value = c["values"][i];
      if (value.is_null()) {
        EXPECT_FALSE(std::isfinite(actual[i]));
        continue;
      }
      EXPECT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(value.get<float>()))
        << c["type"] << " " << c["kind"] << " " << i;
    }
  }
  EXPECT_GE(seen.size(), 13u);
}

TEST(DType, RefusesIdsThatAreNotOurs) {
  for (uint32_t id : {4u, 5u, 9u, 15u, 16u, 22u, 24u, 29u, 31u, 1000u, 0xffffffffu}) EXPECT_FALSE(dtype_from_id(id)) << id;
}

TEST(DType, CountsTheBytesOfARow) {
  EXPECT_EQ(row_bytes(DType::f32, 7), 28u);
  EXPECT_EQ(row_bytes(DType::q8_0, 64), 68u);
  EXPECT_EQ(row_bytes(DType::q4_k, 512), 288u);
}

} // namespace
} // namespace millrace
