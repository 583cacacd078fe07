#include "messages/codec.hpp"
#include "messages/msgpack_reader.hpp"

#include <gtest/gtest.h>
#include <msgpack.hpp>

#include <cmath>
#include <limits>
#include <sstream>

namespace millrace {
namespace {

StreamId some_id() {
  return *stream_id_from_hex("000102030405060708090a0b0c0d0e0f");
}

// A value of each type that no default has, so that a field which does not travel shows.
template <class T> void fill(std::optional<T>& value);
template <class T> void fill(std::vector<T>& values);
void fill(std::map<TokenId, float>& entries);
void fill(Fields auto& message);
void fill(bool& value) {
  value = !value;
}
template <std::integral T> void fill(T& value) {
  value = std::numeric_limits<T>::max() - 1;
}
void fill(float& value) {
  value = 0.1f;
}
void fill(double& value) {
  value = 0.1;
}
void fill(std::string& value) {
  value = "gr\xC3\xBC\xC3\x9F" + std::string(1, '\0') + "e";
}
void fill(Bytes& value) {
  value.data = "\xFF\xFE\x00 raw";
}
void fill(StreamId& value) {
  value = some_id();
}
template <class T> void fill(std::optional<T>& value) {
  fill(value.emplace());
}
template <class T> void fill(std::vector<T>& values) {
  values.resize(3);
  for (T& value : values)
    fill(value);
}
void fill(std::map<TokenId, float>& entries) {
  entries = {{0, -1.5f}, {151935, 100.0f}, {7, 1e-30f}};
}
void fill(Fields auto& message) {
  message.visit_fields([](std::string_view, auto& value) { fill(value); });
}

template <class M> M decoded(std::string_view frame) {
  auto result = decode<M>(frame);
  if (const auto* failure = std::get_if<Failure>(&result))
    throw std::runtime_error(failure->field + ": " + failure->message);
  return std::get<M>(std::move(result));
}

Failure failure_of(std::string_view frame) {
  auto result = decode<Generate>(frame);
  const auto* failure = std::get_if<Failure>(&result);
  return failure ? *failure : Failure{};
}

/// A frame of a Generate whose fields are written by hand.
class FrameBuilder {
public:
  explicit FrameBuilder(uint32_t extra_fields) {
    pack.pack_map(3 + extra_fields);
    pack.pack("type");
    pack.pack("generate");
    pack.pack("request");
    bin(16);
    pack.pack("prompt");
    pack.pack("Once");
  }
  void bin(uint32_t size) {
    pack.pack_bin(size);
    pack.pack_bin_body(std::string(size, 'r').data(), size);
  }
  std::string frame() const { return out.str(); }

  std::ostringstream out;
  msgpack::packer<std::ostringstream> pack{out};
};

template <class Write> std::string generate_with(std::string_view field, Write write) {
  FrameBuilder builder(1);
  builder.pack.pack(std::string(field));
  write(builder.pack);
  return builder.frame();
}

template <class Write> std::string sampling_with(std::string_view field, Write write) {
  return generate_with("sampling", [&](auto& pack) {
    pack.pack_map(1);
    pack.pack(std::string(field));
    write(pack);
  });
}

template <class M> class EveryMessage : public testing::Test {};
template <class T> struct AsTypes;
template <class... M> struct AsTypes<std::tuple<M...>> { using type = testing::Types<M...>; };
TYPED_TEST_SUITE(EveryMessage, AsTypes<Messages>::type);

TYPED_TEST(EveryMessage, SurvivesTheWireWithEveryFieldSet) {
  TypeParam message;
  fill(message);

  const std::string frame = encode(message);

  EXPECT_EQ(encode(decoded<TypeParam>(frame)), frame);
  EXPECT_NE(encode(TypeParam{}), frame);
}

TYPED_TEST(EveryMessage, SurvivesTheWireWithItsDefaults) {
  const std::string frame = encode(TypeParam{});

  EXPECT_EQ(encode(decoded<TypeParam>(frame)), frame);
}

TYPED_TEST(EveryMessage, BeginsWithItsType) {
  const std::string frame = encode(TypeParam{});

  const auto handle = msgpack::unpack(frame.data(), frame.size());

  ASSERT_EQ(handle.get().type, msgpack::type::MAP);
  EXPECT_EQ(handle.get().via.map.ptr[0].key.as<std::string>(), "type");
  EXPECT_EQ(handle.get().via.map.ptr[0].val.as<std::string>(), TypeParam::kType);
}

TYPED_TEST(EveryMessage, IsRefusedWhereverItIsCut) {
  TypeParam message;
  fill(message);
  const std::string frame = encode(message);

  for (size_t length = 0; length < frame.size(); ++length) {
    const auto result = decode<TypeParam>(std::string_view(frame).substr(0, length));
    ASSERT_TRUE(std::holds_alternative<Failure>(result)) << length;
    EXPECT_EQ(std::get<Failure>(result).code, Error::malformed);
  }
}

TYPED_TEST(EveryMessage, NeverCrashesOnAChangedByte) {
  TypeParam message;
  fill(message);
  const std::string frame = encode(message);

  // Headers of nil, of nothing, and of the longest strings, arrays and maps; other values are the fuzzer's
  // business.
  static constexpr unsigned char kBytes[] = {0x00, 0xC0, 0xC1, 0xC6, 0xDB, 0xDD, 0xDF, 0xFF};
  for (size_t i = 0; i < frame.size(); ++i)
    for (const unsigned char byte : kBytes) {
      std::string changed = frame;
      changed[i] = static_cast<char>(byte);
      const auto result = decode<TypeParam>(changed);
      if (const auto* read = std::get_if<TypeParam>(&result))
        encode(*read);
    }
}

TYPED_TEST(EveryMessage, RefusesBytesAfterIt) {
  const auto result = decode<TypeParam>(encode(TypeParam{}) + '\0');

  ASSERT_TRUE(std::holds_alternative<Failure>(result));
  EXPECT_EQ(std::get<Failure>(result).code, Error::malformed);
}

TYPED_TEST(EveryMessage, RefusesAnotherType) {
  std::string frame = encode(TypeParam{});
  frame[frame.find(TypeParam::kType)] = '?';

  const auto result = decode<TypeParam>(frame);

  ASSERT_TRUE(std::holds_alternative<Failure>(result));
  EXPECT_EQ(std::get<Failure>(result).code, Error::malformed);
  EXPECT_EQ(std::get<Failure>(result).field, "type");
}

TEST(Codec, KeepsEveryBitOfFloats) {
  const std::vector<float> floats = {-0.0f,    0.0f,   1.0f,          -2.0f,      0.1f,
                                     -9999.0f, 1e-45f, 3.4028235e38f, 16777217.0f};
  for (const float value : floats) {
    Token token;
    token.logprob = value;
    EXPECT_EQ(std::bit_cast<uint32_t>(decoded<Token>(encode(token)).logprob), std::bit_cast<uint32_t>(value))
        << value;
  }
  for (const double value : {-0.0, 0.1, 1.0, 5e-324, 1.7976931348623157e308, 1234.5678901234567}) {
    Done done;
    done.queue_ms = value;
    EXPECT_EQ(std::bit_cast<uint64_t>(decoded<Done>(encode(done)).queue_ms), std::bit_cast<uint64_t>(value))
        << value;
  }
}

TEST(Codec, WritesFloatsInTheirOwnWidth) {
  Token token;
  token.logprob = 1;
  Done done;
  done.queue_ms = 1;

  EXPECT_NE(encode(token).find("logprob\xCA\x3F\x80"), std::string::npos);
  EXPECT_NE(encode(done).find("queue_ms\xCB\x3F\xF0"), std::string::npos);
}

TEST(Codec, TakesTheTypeAtAnyPlace) {
  std::ostringstream out;
  msgpack::packer pack(out);
  pack.pack_map(2);
  pack.pack("request");
  pack.pack_bin(16);
  pack.pack_bin_body("0123456789abcdef", 16);
  pack.pack("type");
  pack.pack("cancel");

  const auto message = decode_client_message(out.str());

  ASSERT_TRUE(std::holds_alternative<ClientMessage>(message));
  EXPECT_TRUE(std::holds_alternative<Cancel>(std::get<ClientMessage>(message)));
}

TEST(Codec, TakesNilAndAbsenceAsNoValue) {
  EXPECT_FALSE(decoded<Generate>(generate_with("max_tokens", [](auto& p) { p.pack_nil(); })).max_tokens);
  EXPECT_FALSE(decoded<Generate>(FrameBuilder(0).frame()).max_tokens);
  EXPECT_EQ(decoded<Generate>(generate_with("max_tokens", [](auto& p) { p.pack(5); })).max_tokens, 5);
}

TEST(Codec, TakesIntegersAndBothWidthsForFloats) {
  const auto temperature = [](auto write) {
    return decoded<Generate>(sampling_with("temperature", write)).sampling.temperature;
  };

  EXPECT_EQ(temperature([](auto& p) { p.pack(2); }), 2.0f);
  EXPECT_EQ(temperature([](auto& p) { p.pack(-2); }), -2.0f);
  EXPECT_EQ(temperature([](auto& p) { p.pack(0.7); }), 0.7f);
  EXPECT_EQ(temperature([](auto& p) { p.pack(0.7f); }), 0.7f);
}

TEST(Codec, TakesSignedEncodingsOfPositiveIntegers) {
  const std::string frame = generate_with("n", [](auto& p) { p.pack_fix_int64(3); });

  EXPECT_EQ(decoded<Generate>(frame).n, 3);
}

TEST(Codec, SkipsUnknownFieldsOfAnyShape) {
  const std::string frame = generate_with("from_the_future", [](auto& pack) {
    pack.pack_map(2);
    pack.pack_array(2); // a container as key
    pack.pack(1);
    pack.pack_map(0);
    pack.pack_ext(3, 7);
    pack.pack_ext_body("abc", 3);
    pack.pack_nil();
    pack.pack(std::vector<double>{1, std::numeric_limits<double>::quiet_NaN()});
  });

  EXPECT_EQ(decoded<Generate>(frame).prompt, "Once");
}

TEST(Codec, NamesTheFieldAndTheKindOfABadValue) {
  struct Case {
    std::string frame, field, message;
  };
  const auto text = [](auto& p) { p.pack("secret"); };
  const auto real = [](auto& p) { p.pack(1.5); };
  const auto nil = [](auto& p) { p.pack_nil(); };
  const auto yes = [](auto& p) { p.pack(true); };
  const auto big = [](auto& p) { p.pack(uint64_t{1} << 40); };
  const auto list = [](auto& p) { p.pack(std::vector<int>{1}); };
  const auto infinite = [](auto& p) { p.pack(std::numeric_limits<float>::infinity()); };
  const auto nan = [](auto& p) { p.pack(std::numeric_limits<double>::quiet_NaN()); };
  const auto huge = [](auto& p) { p.pack(1e39); };
  const std::vector<Case> cases = {
      {generate_with("n", text), "n", "must be an integer of 32 bits, is a string"},
      {generate_with("n", real), "n", "must be an integer of 32 bits, is a float"},
      {generate_with("n", nil), "n", "must be an integer of 32 bits, is nil"},
      {generate_with("n", yes), "n", "must be an integer of 32 bits, is a boolean"},
      {generate_with("n", big), "n", "must be an integer of 32 bits, is an integer"},
      {generate_with("n", list), "n", "must be an integer of 32 bits, is an array"},
      {generate_with("max_tokens", text), "max_tokens", "must be an integer of 32 bits, is a string"},
      {generate_with("max_tokens", list), "max_tokens", "must be an integer of 32 bits, is an array"},
      {generate_with("priority", real), "priority", "must be an integer of 32 bits, is a float"},
      {generate_with("priority", big), "priority", "must be an integer of 32 bits, is an integer"},
      {generate_with("deadline_ms", text), "deadline_ms", "must be an integer of 64 bits, is a string"},
      {generate_with("expires_at", yes), "expires_at", "must be an integer of 64 bits, is a boolean"},
      {generate_with("tenant", nil), "tenant", "must be a string, is nil"},
      {generate_with("cache_salt", list), "cache_salt", "must be a string, is an array"},
      {generate_with("cache_salt", [](auto& p) { p.pack("\xC4\xE3"); }), "cache_salt",
       "must be a string, is a string that is not UTF-8"},
      {generate_with("add_bos", [](auto& p) { p.pack("true"); }), "add_bos",
       "must be a boolean, is a string"},
      {generate_with("add_bos", [](auto& p) { p.pack(1); }), "add_bos", "must be a boolean, is an integer"},
      {generate_with("stop", nil), "stop", "must be an array, is nil"},
      {generate_with("stop", text), "stop", "must be an array, is a string"},
      {generate_with("stop", list), "stop[0]", "must be a string, is an integer"},
      {generate_with("stop",
                     [](auto& p) {
                       p.pack(std::vector<std::string>{"a", "\xC4\xE3"});
                     }),
       "stop[1]", "must be a string, is a string that is not UTF-8"},
      {generate_with("prompt_ids",
                     [](auto& p) {
                       p.pack(std::vector<int64_t>{1, 2, int64_t{1} << 31});
                     }),
       "prompt_ids[2]", "must be an integer of 32 bits, is an integer"},
      {generate_with("sampling", list), "sampling", "must be a map, is an array"},
      {sampling_with("top_k", real), "sampling.top_k", "must be an integer of 32 bits, is a float"},
      {sampling_with("top_p", text), "sampling.top_p", "must be a finite number, is a string"},
      {sampling_with("top_p", infinite), "sampling.top_p", "must be a finite number, is a float"},
      {sampling_with("top_p", nan), "sampling.top_p", "must be a finite number, is a float"},
      {sampling_with("top_p", huge), "sampling.top_p", "must be a finite number, is a float"},
      {sampling_with("seed", [](auto& p) { p.pack(-1); }), "sampling.seed",
       "must be an unsigned integer of 64 bits, is an integer"},
      {sampling_with("logit_bias",
                     [](auto& p) {
                       p.pack(std::map<std::string, int>{{"AI", 1}});
                     }),
       "sampling.logit_bias", "a key must be a token id"},
      {sampling_with("logit_bias",
                     [](auto& p) {
                       p.pack(std::map<int, std::string>{{191222, "x"}});
                     }),
       "sampling.logit_bias[191222]", "must be a finite number, is a string"},
      {sampling_with("logit_bias",
                     [](auto& p) {
                       p.pack(std::map<int, double>{{-5, 1e39}});
                     }),
       "sampling.logit_bias[-5]", "must be a finite number, is a float"},
  };
  for (const Case& c : cases) {
    const Failure failure = failure_of(c.frame);
    EXPECT_EQ(failure.code, Error::invalid_field) << c.field;
    EXPECT_EQ(failure.field, c.field);
    EXPECT_EQ(failure.message, c.message);
  }
}

TEST(Codec, RefusesFieldsAndIdsGivenTwice) {
  FrameBuilder fields(2);
  for (const int n : {1, 2}) {
    fields.pack.pack("n");
    fields.pack.pack(n);
  }
  const std::string ids = sampling_with("logit_bias", [](auto& pack) {
    pack.pack_map(2);
    for (const float bias : {1.5f, 2.5f}) {
      pack.pack(7);
      pack.pack(bias);
    }
  });

  EXPECT_EQ(failure_of(fields.frame()).field, "n");
  EXPECT_EQ(failure_of(fields.frame()).message, "is given twice");
  EXPECT_EQ(failure_of(ids).field, "sampling.logit_bias[7]");
}

TEST(Codec, RefusesARequestIdThatIsMissingOrOfAnotherLength) {
  std::ostringstream out;
  msgpack::packer pack(out);
  pack.pack(std::map<std::string, std::string>{{"type", "generate"}, {"prompt", "Once"}});
  EXPECT_EQ(failure_of(out.str()).field, "request");
  EXPECT_EQ(failure_of(out.str()).message, "is missing");

  std::string frame = FrameBuilder(0).frame();
  const size_t bin = frame.find("\xC4\x10");
  frame.replace(bin, 18, std::string("\xC4\x0F", 2) + std::string(15, 'r'));
  EXPECT_EQ(failure_of(frame).field, "request");
  EXPECT_EQ(failure_of(frame).message, "must be 16 bytes (bin), is bytes (bin)");
}

TEST(Codec, RequiresTheIdsInsideNestedFields) {
  std::ostringstream out;
  msgpack::packer pack(out);
  pack.pack_map(2);
  pack.pack("type");
  pack.pack("sampled_token");
  pack.pack("sequence");
  pack.pack_map(0);

  const auto result = decode<SampledToken>(out.str());

  ASSERT_TRUE(std::holds_alternative<Failure>(result));
  EXPECT_EQ(std::get<Failure>(result).field, "sequence.request");
}

TEST(Codec, RefusesFramesThatAreNoMessage) {
  const std::vector<std::string> frames = {
      "",
      "\xC1",
      "\x80",
      "\x90",
      "\xC0",
      "\xA4type",
      "\x81\xA4type",
      std::string("\x81\xA4type\x01", 7),
      "\xDF\xFF\xFF\xFF\xFF",
      "\xDD\x7F\xFF\xFF\xFF",
      "\x81\x01\x02",
      "\x81\x90\x02",
      "\x82\xA4type\xA6"
      "cancel\xA1\xFF\x01",
  };
  for (const std::string& frame : frames) {
    const auto message = decode_client_message(frame);
    ASSERT_TRUE(std::holds_alternative<Failure>(message));
    EXPECT_EQ(std::get<Failure>(message).code, Error::malformed) << testing::PrintToString(frame);
    EXPECT_TRUE(std::holds_alternative<Failure>(decode_event(frame)));
  }
}

TEST(Codec, RefusesTypesThatAClientMayNotSend) {
  for (const std::string& frame :
       {encode(Started{}), encode(Prompt{}), encode(Sequence{}), encode(SampledToken{})}) {
    const auto message = decode_client_message(frame);
    ASSERT_TRUE(std::holds_alternative<Failure>(message));
    EXPECT_EQ(std::get<Failure>(message).code, Error::malformed);
    EXPECT_EQ(std::get<Failure>(message).field, "type");
  }
}

std::string nested(size_t depth) {
  return generate_with("unknown", [&](auto& pack) {
    for (size_t i = 0; i < depth; ++i)
      pack.pack_array(1);
    pack.pack(1);
  });
}

TEST(Codec, LimitsDepth) {
  EXPECT_EQ(failure_of(nested(kMaxDepth - 1)).code, Error::none);
  for (const size_t depth : {kMaxDepth, kMaxDepth + 1, size_t{1'000'000}})
    EXPECT_EQ(failure_of(nested(depth)).code, Error::malformed) << depth;
}

TEST(Codec, LimitsTheFrame) {
  const std::string frame =
      generate_with("unknown", [](auto& pack) { pack.pack(std::string(kMaxFrameBytes, 'x')); });

  EXPECT_EQ(failure_of(frame).code, Error::malformed);
  Finished finished;
  finished.text.assign(kMaxFrameBytes, 'x');
  EXPECT_THROW(encode(finished), std::length_error);
}

TEST(Codec, LimitsArraysWhoseElementsTakeMuchRoom) {
  const auto with_turns = [](uint32_t count) {
    return generate_with("messages", [count](auto& pack) {
      pack.pack_array(count);
      for (uint32_t i = 0; i < count; ++i)
        pack.pack_map(0); // a byte of the frame, 200 of memory
    });
  };

  EXPECT_EQ(failure_of(with_turns(65'536)).code, Error::none);
  const Failure failure = failure_of(with_turns(65'537));
  EXPECT_EQ(failure.code, Error::invalid_field);
  EXPECT_EQ(failure.field, "messages[65536]");
}

TEST(Codec, ReadsTheEnvelopeOfAFrameThatDoesNotDecode) {
  const std::string frame = generate_with("n", [](auto& pack) { pack.pack("x"); });

  const Envelope envelope = read_envelope(frame.substr(0, frame.size() - 1));

  EXPECT_EQ(envelope.type, "generate");
  EXPECT_TRUE(envelope.request);
}

TEST(Codec, LeavesNoIdInTheEnvelopeWhereItIsUnreadable) {
  std::ostringstream out;
  msgpack::packer pack(out);
  pack.pack(std::map<std::string, std::string>{{"type", "generate"}, {"request", "0123456789abcdef"}});

  EXPECT_FALSE(read_envelope(out.str()).request);
}

} // namespace
} // namespace millrace
