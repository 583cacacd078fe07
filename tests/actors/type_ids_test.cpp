#include "actors/type_ids.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <gtest/gtest.h>

#include <limits>

namespace millrace {
namespace {

/// A message as another process would get it.
class TypeIdsTest : public testing::Test {
protected:
  template <class M> M sent(M message) {
    std::vector<char> bytes;
    caf::binary_serializer sink{system, bytes};
    EXPECT_FALSE(sink(message));
    M received;
    caf::binary_deserializer source{system, bytes};
    EXPECT_FALSE(source(received));
    return received;
  }

  caf::actor_system_config config;
  caf::actor_system system{config};
};

TEST_F(TypeIdsTest, CarriesEveryFloatUnchanged) {
  for (float value : {-0.0f, 1e-45f, std::numeric_limits<float>::max(), 0.1f}) {
    Sequence sequence;
    sequence.sampling.temperature = value;
    sequence.sampling.logit_bias = {{3, value}};
    sequence.emitted_ids = {1, 2};

    const Sequence received = sent(sequence);

    EXPECT_EQ(std::bit_cast<uint32_t>(received.sampling.temperature), std::bit_cast<uint32_t>(value));
    EXPECT_EQ(std::bit_cast<uint32_t>(received.sampling.logit_bias.at(3)), std::bit_cast<uint32_t>(value));
    EXPECT_EQ(received.emitted_ids, sequence.emitted_ids);
  }
}

TEST_F(TypeIdsTest, CarriesTheOutcomeOfAPass) {
  SampledBatch batch;
  batch.sequences.resize(2);
  batch.sequences[1].reason = "stop";
  batch.sequences[1].sequence.epoch = 7;
  batch.sequences[1].tokens.resize(1);
  batch.sequences[1].tokens[0].bytes.data = std::string("\xff\0x", 3);
  batch.sequences[1].tokens[0].top.resize(3);

  const SampledBatch received = sent(batch);

  ASSERT_EQ(received.sequences.size(), 2u);
  EXPECT_EQ(received.sequences[1].sequence, batch.sequences[1].sequence);
  EXPECT_EQ(received.sequences[1].tokens.at(0).bytes, batch.sequences[1].tokens[0].bytes);
  EXPECT_EQ(received.sequences[1].tokens[0].top.size(), 3u);
}

TEST_F(TypeIdsTest, RefusesBytesOfAnotherMessage) {
  std::vector<char> bytes;
  caf::binary_serializer sink{system, bytes};
  SequenceStarted started;
  EXPECT_FALSE(sink(started));

  CancelSequence received;
  caf::binary_deserializer source{system, bytes};
  EXPECT_TRUE(source(received));
}

} // namespace
} // namespace millrace
