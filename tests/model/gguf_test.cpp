#include "model/gguf.hpp"

#include "tests/model/gguf_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>

namespace millrace {
namespace {

using testing::ExactBytes;
using testing::GgufWriter;
using ::testing::HasSubstr;
using ::testing::Not;

/// The text of the FormatError that reading these bytes gives; "" if they are accepted.
std::string error_of(const std::string& bytes) {
  ExactBytes exact(bytes);
  try {
    GgufFile file(exact.span());
  } catch (const FormatError& error) {
    return error.what();
  }
  return "";
}

GgufWriter small_file() {
  GgufWriter writer;
  writer.string("general.architecture", "llama")
      .u32("a.u32", 7)
      .key("a.i8", 1, GgufWriter::number<int8_t>(-3))
      .f32("a.f32", 0.5f)
      .boolean("a.bool", true)
      .key("a.u64", 10, GgufWriter::number<uint64_t>(UINT64_MAX))
      .key("a.strings", 9, GgufWriter::text_array({"x", "", "yz"}))
      .key("a.floats", 9, GgufWriter::array<float>(6, {1, 2.5f}))
      .key("a.bytes", 9, GgufWriter::array<uint8_t>(0, {1, 255}))
      .key("a.ints", 9, GgufWriter::array<int32_t>(5, {-1, 5}))
      .tensor("w", {64, 3}, DType::q8_0)
      .tensor("b", {5});
  return writer;
}

TEST(GgufFile, ReadsWhatWasWritten) {
  ExactBytes bytes(small_file().file());

  GgufFile file(bytes.span());

  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.metadata().size(), 10u);
  EXPECT_EQ(file.get_string("general.architecture"), "llama");
  EXPECT_EQ(file.get_int("a.u32", 0, 10), 7);
  EXPECT_EQ(file.get_int("a.i8", -10, 10), -3);
  EXPECT_EQ(file.get_float("a.f32"), 0.5);
  EXPECT_EQ(file.get_bool("a.bool"), true);
  EXPECT_EQ(*file.get_strings("a.strings", 3), (std::vector<std::string_view>{"x", "", "yz"}));
  EXPECT_EQ(*file.get_floats("a.floats"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(*file.get_ints("a.bytes"), (std::vector<int64_t>{1, 255}));
  EXPECT_EQ(*file.get_ints("a.ints"), (std::vector<int64_t>{-1, 5}));
  EXPECT_EQ(file.get_int("absent", 0, 1), std::nullopt);
  ASSERT_EQ(file.tensors().size(), 2u);
  auto matrix = file.find_tensor("w")->matrix();
  EXPECT_EQ(matrix.rows, 3);
  EXPECT_EQ(matrix.cols, 64);
  EXPECT_EQ(file.find_tensor("w")->bytes, 3u * 2 * 34);
  EXPECT_EQ(file.find_tensor("b")->matrix().rows, 1);
  EXPECT_EQ(file.find_tensor("b")->data - file.find_tensor("w")->data, 224) << "aligned to 32";
  EXPECT_EQ(file.find_tensor("absent"), nullptr);
}

TEST(GgufFile, ReadsVersion2) {
  auto writer = small_file();
  writer.version = 2;
  EXPECT_EQ(error_of(writer.file()), "");
}

TEST(GgufFile, RefusesEveryTruncation) {
  auto bytes = small_file().file();
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_NE(error_of(bytes.substr(0, length)), "") << "cut to " << length << " of " << bytes.size() << " bytes";
  EXPECT_EQ(error_of(bytes), "");
}

TEST(GgufFile, SurvivesEveryChangedByteOfTheHeader) {
  auto writer = small_file();
  auto bytes = writer.file();
  for (size_t i = 0; i < writer.header().size(); ++i)
    for (unsigned flip : {0x01, 0x80, 0xff}) {
      auto changed = bytes;
      changed[i] = char(changed[i] ^ flip);
      error_of(changed); // accepted or refused, but nothing else
    }
}

TEST(GgufFile, SaysWhatIsNoGguf) {
  EXPECT_THAT(error_of("GGML" + std::string(100, '\0')), HasSubstr("not a GGUF file"));
  auto writer = small_file();
  writer.version = 1;
  EXPECT_THAT(error_of(writer.file()), HasSubstr("version 1 is not supported"));
  writer.version = 4;
  EXPECT_THAT(error_of(writer.file()), HasSubstr("version 4 is not supported"));
  writer.version = __builtin_bswap32(3);
  EXPECT_THAT(error_of(writer.file()), HasSubstr("big-endian"));
}

// The values at which 32-bit, signed and wrapping arithmetic break.
constexpr uint64_t kExtremes[] = {uint64_t(1) << 31, UINT32_MAX, uint64_t(1) << 62, (uint64_t(1) << 63) - 1,
                                  uint64_t(1) << 63, UINT64_MAX - 1, UINT64_MAX};

TEST(GgufFile, RefusesExtremeCounts) {
  for (uint64_t extreme : kExtremes) {
    SCOPED_TRACE(extreme);
    // The counts themselves, after magic and version.
    auto bytes = small_file().file();
    EXPECT_THAT(error_of(bytes.substr(0, 8) + GgufWriter::number(extreme) + bytes.substr(16)), HasSubstr("number of tensors"));
    EXPECT_THAT(error_of(bytes.substr(0, 16) + GgufWriter::number(extreme) + bytes.substr(24)), HasSubstr("number of metadata keys"));
  }
  for (auto limit : {gguf_limits::kTensors, gguf_limits::kTensors - 1}) {
    GgufWriter writer;
    writer.claimed_tensors = int64_t(limit);
    EXPECT_THAT(error_of(writer.header()), HasSubstr("the file ends"));
  }
  GgufWriter writer;
  writer.claimed_tensors = gguf_limits::kTensors + 1;
  EXPECT_THAT(error_of(writer.file()), HasSubstr("the limit is 65536"));
  writer.claimed_tensors = 0;
  writer.claimed_keys = gguf_limits::kKeys + 1;
  EXPECT_THAT(error_of(writer.file()), HasSubstr("the limit is 65536"));
}

TEST(GgufFile, RefusesExtremeLengths) {
  auto header = [](uint64_t tensors, uint64_t keys) {
    return "GGUF" + GgufWriter::number<uint32_t>(3) + GgufWriter::number(tensors) + GgufWriter::number(keys);
  };
  auto key = GgufWriter::text("k");
  for (uint64_t extreme : kExtremes) {
    SCOPED_TRACE(extreme);
    auto n = GgufWriter::number(extreme);
    auto padding = std::string(64, '\0');
    EXPECT_THAT(error_of(header(0, 1) + n + padding), HasSubstr("key length"));
    EXPECT_THAT(error_of(header(1, 0) + n + padding), HasSubstr("name length"));
    EXPECT_THAT(error_of(header(0, 1) + key + GgufWriter::number<uint32_t>(8) + n + padding), HasSubstr("string length"));
    EXPECT_THAT(error_of(header(0, 1) + key + GgufWriter::number<uint32_t>(9) + GgufWriter::number<uint32_t>(8) +
                         GgufWriter::number<uint64_t>(1) + n + padding),
                HasSubstr("string length"));
    for (uint32_t type : {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12})
      EXPECT_THAT(error_of(header(0, 1) + key + GgufWriter::number<uint32_t>(9) + GgufWriter::number(type) + n + padding),
                  HasSubstr("'k': array length"));
  }
  // Allowed by the limit, but not by the bytes that are there.
  for (uint32_t type : {0, 4, 8, 7, 12})
    EXPECT_THAT(error_of(header(0, 1) + key + GgufWriter::number<uint32_t>(9) + GgufWriter::number(type) +
                         GgufWriter::number<uint64_t>(gguf_limits::kArrayElements)),
                HasSubstr("the file ends"));
}

TEST(GgufFile, CountsTheElementsOfAllArraysTogether) {
  std::vector<uint8_t> half(gguf_limits::kArrayElements / 2 + 1);
  GgufWriter writer;
  writer.key("a", 9, GgufWriter::array(0, half));
  EXPECT_EQ(error_of(writer.file()), "");
  writer.key("b", 9, GgufWriter::array(0, half));
  EXPECT_THAT(error_of(writer.file()), HasSubstr("'b': array length (with the arrays before)"));
}

TEST(GgufFile, RefusesWrongValues) {
  EXPECT_THAT(error_of(GgufWriter().key("k", 13, std::string(8, 0)).file()), HasSubstr("'k': unknown type 13"));
  EXPECT_THAT(error_of(GgufWriter().key("k", UINT32_MAX, std::string(8, 0)).file()), HasSubstr("unknown type"));
  EXPECT_THAT(error_of(GgufWriter().key("k", 7, std::string(1, 2)).file()), HasSubstr("not 0 or 1"));
  EXPECT_THAT(error_of(GgufWriter().key("k", 9, GgufWriter::array<uint8_t>(7, {1, 3})).file()), HasSubstr("not 0 or 1"));
  EXPECT_THAT(error_of(GgufWriter().key("k", 9, GgufWriter::array<uint32_t>(9, {0, 0, 0})).file()),
              HasSubstr("arrays of arrays"));
  EXPECT_THAT(error_of(GgufWriter().key("k", 9, GgufWriter::array<uint32_t>(99, {0, 0, 0})).file()),
              HasSubstr("unknown type 99 of array elements"));
  EXPECT_THAT(error_of(GgufWriter().u32("", 1).file()), HasSubstr("empty"));
  EXPECT_THAT(error_of(GgufWriter().u32("twice", 1).u32("twice", 1).file()), HasSubstr("'twice': appears twice"));
}

TEST(GgufFile, RefusesWrongAlignments) {
  for (uint32_t align : {8u, 16u, 64u, 65536u}) {
    auto writer = GgufWriter().u32("general.alignment", align);
    writer.alignment = align;
    writer.tensor("a", {3}).tensor("b", {3});
    EXPECT_EQ(error_of(writer.file()), "") << align;
  }
  for (uint32_t align : {0u, 1u, 4u, 12u, 48u, 131072u, 1u << 31, UINT32_MAX})
    EXPECT_THAT(error_of(GgufWriter().u32("general.alignment", align).file()), HasSubstr("'general.alignment' is")) << align;
  EXPECT_THAT(error_of(GgufWriter().key("general.alignment", 10, GgufWriter::number(uint64_t(1) << 63)).file()),
              HasSubstr("'general.alignment' is"));
  EXPECT_THAT(error_of(GgufWriter().string("general.alignment", "32").file()), HasSubstr("expected an unsigned integer"));
}

TEST(GgufFile, RefusesWrongTensors) {
  auto error = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    auto writer = GgufWriter().tensor("first", {8});
    return error_of(writer.raw_tensor("t", dims, type, offset).file() + std::string(64, '\0'));
  };
  EXPECT_EQ(error({8}, 0, 32), "");
  EXPECT_THAT(error({}, 0, 32), HasSubstr("'t': number of dims is 0"));
  EXPECT_THAT(error({1, 1, 1, 1, 1}, 0, 32), HasSubstr("number of dims is 5, the limit is 4"));
  EXPECT_THAT(error({0}, 0, 32), HasSubstr("at least 1"));
  EXPECT_THAT(error({8, 0}, 0, 32), HasSubstr("at least 1"));
  EXPECT_THAT(error({16}, 8, 32), HasSubstr("a multiple of 32 (Q8_0)"));
  EXPECT_THAT(error({8}, 16, 32), HasSubstr("type IQ2_XXS (16) is not supported"));
  EXPECT_THAT(error({8}, 4, 32), HasSubstr("type 4 is not supported"));
  EXPECT_THAT(error({8}, UINT32_MAX, 32), HasSubstr("is not supported"));
  EXPECT_THAT(error({8}, 0, 33), HasSubstr("not a multiple of the alignment 32"));
  EXPECT_THAT(error({8}, 0, 0), HasSubstr("overlaps tensor"));
  EXPECT_THAT(error({8}, 0, 96), HasSubstr("of the data section, which has only 96 bytes"));
  EXPECT_THAT(error({17}, 0, 32), HasSubstr("has only 96 bytes"));
  for (uint64_t extreme : kExtremes) {
    SCOPED_TRACE(extreme);
    EXPECT_NE(error({extreme}, 0, 32), "");
    EXPECT_NE(error({extreme}, 8, 32), "");
    EXPECT_NE(error({2, extreme}, 0, 32), "");
    EXPECT_NE(error({extreme, extreme}, 0, 32), "");
    EXPECT_NE(error({1, 1, 1, extreme}, 0, 32), "");
    EXPECT_NE(error({extreme, extreme, extreme, extreme}, 1, 32), "");
    EXPECT_THAT(error({8}, 0, extreme / 32 * 32), HasSubstr("has only 96 bytes"));
  }
  EXPECT_THAT(error_of(GgufWriter().tensor("t", {1}).tensor("t", {1}).file()), HasSubstr("'t': appears twice"));
  EXPECT_THAT(error_of(GgufWriter().tensor("", {1}).file()), HasSubstr("the name is empty"));
  EXPECT_THAT(error_of(GgufWriter().tensor(std::string(65, 'n'), {1}).file()), HasSubstr("the limit is 64"));
}

TEST(GgufFile, RefusesPartialOverlap) {
  auto writer = GgufWriter().raw_tensor("b", {16}, 0, 32).raw_tensor("a", {9}, 0, 0);
  EXPECT_THAT(error_of(writer.file() + std::string(96, '\0')), HasSubstr("tensor 'b': overlaps tensor 'a'"));
}

TEST(GgufFile, GettersNameTheKeyWhenTypeOrRangeIsWrong) {
  ExactBytes bytes(small_file().key("a.u64s", 9, GgufWriter::array<uint64_t>(10, {1, uint64_t(1) << 63})).file());
  GgufFile file(bytes.span());
  auto error = [](auto&& get) -> std::string {
    try {
      get();
    } catch (const FormatError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error([&] { file.get_int("a.u32", 8, 9); }), "metadata key 'a.u32' is 7, must be from 8 to 9");
  EXPECT_EQ(error([&] { file.get_int("a.i8", 0, 9); }), "metadata key 'a.i8' is -3, must be from 0 to 9");
  EXPECT_THAT(error([&] { file.get_int("a.u64", INT64_MIN, INT64_MAX); }), HasSubstr("is 18446744073709551615, must"));
  EXPECT_THAT(error([&] { file.get_int("a.f32", 0, 9); }), HasSubstr("'a.f32': expected an integer, found a float"));
  EXPECT_THAT(error([&] { file.get_float("a.u32"); }), HasSubstr("expected a float, found an unsigned integer"));
  EXPECT_THAT(error([&] { file.get_bool("a.i8"); }), HasSubstr("expected a bool, found an integer"));
  EXPECT_THAT(error([&] { file.get_string("a.bool"); }), HasSubstr("expected a string, found a bool"));
  EXPECT_THAT(error([&] { file.get_strings("a.ints"); }), HasSubstr("an array of strings, found an array of integers"));
  EXPECT_THAT(error([&] { file.get_strings("a.strings", 4); }), HasSubstr("'a.strings': expected 4 elements, found 3"));
  EXPECT_THAT(error([&] { file.get_floats("a.bytes"); }), HasSubstr("floats, found an array of unsigned integers"));
  EXPECT_THAT(error([&] { file.get_ints("a.u64s"); }), HasSubstr("'a.u64s': an element is 9223372036854775808"));
  EXPECT_THAT(error([&] { file.get_ints("a.floats"); }), HasSubstr("integers, found an array of floats"));
  EXPECT_THAT(error([&] { file.get_ints("a.u32"); }), HasSubstr("an array of integers, found an unsigned integer"));
}

TEST(GgufFile, KeepsForeignBytesOutOfErrorTexts) {
  auto error = error_of(GgufWriter().key("\x1b[2J\n\xff" + std::string(1000, 'k'), 77, "").file());

  EXPECT_THAT(error, HasSubstr("\\x1b[2J\\x0a\\xff"));
  EXPECT_LT(error.size(), 200u);
  EXPECT_EQ(printable("a\\b\"'\x7f"), "a\\x5cb\"'\\x7f");
}

TEST(GgufFile, OpensAndRefusesPaths) {
  auto folder = std::filesystem::temp_directory_path() / ("millrace-gguf-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  auto path = (folder / "model.gguf").string();
  std::ofstream(path, std::ios::binary) << small_file().file();
  auto pipe = (folder / "pipe").string(), empty = (folder / "empty").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::ofstream(empty, std::ios::binary).flush();

  EXPECT_EQ(GgufFile(path).get_string("general.architecture"), "llama");
  EXPECT_THROW(GgufFile((folder / "absent").string()), std::system_error);
  EXPECT_THROW(GgufFile(folder.string()), std::system_error);
  EXPECT_THROW(GgufFile{pipe}, FormatError) << "and without waiting for a writer";
  EXPECT_THROW(GgufFile{empty}, FormatError);

  std::filesystem::remove_all(folder);
}

TEST(TensorBytes, EqualWideArithmeticOrSayThatTheyOverflow) {
  constexpr DType kTypes[] = {DType::f32, DType::f16, DType::q4_0, DType::q5_1, DType::q8_0, DType::q2_k, DType::q6_k};
  constexpr unsigned __int128 kLimit = INT64_MAX;
  std::mt19937_64 random(1);
  int fitting = 0;
  for (int i = 0; i < 100000; ++i) {
    DType type = kTypes[random() % std::size(kTypes)];
    std::vector<uint64_t> dims(1 + random() % 4);
    for (auto& dim : dims) dim = random() >> random() % 64; // of every magnitude
    if (random() % 4 > 0) dims[0] = dims[0] / 256 * 256;

    // Held at kLimit + 1 = 2^63 once it is passed, so that the product with a 64-bit factor fits in 128 bits.
    unsigned __int128 elements = 1;
    bool fits = dims[0] % uint64_t(traits(type).values) == 0;
    for (auto dim : dims) {
      elements = std::min(elements, kLimit + 1) * dim;
      fits = fits && dim > 0 && elements <= kLimit;
    }
    auto bytes = elements / unsigned(traits(type).values) * unsigned(traits(type).bytes);
    fits = fits && bytes <= kLimit;

    auto found = tensor_bytes(type, dims);

    ASSERT_EQ(found.has_value(), fits) << i;
    ASSERT_EQ(found.value_or(0), fits ? uint64_t(bytes) : 0) << i;
    fitting += fits;
  }
  EXPECT_GT(fitting, 10000);
  EXPECT_LT(fitting, 90000);
}

} // namespace
} // namespace millrace
