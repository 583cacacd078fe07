#include "model/model.hpp"

#include "tests/model/gguf_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

namespace millrace {
namespace {

using testing::ExactBytes;
using testing::GgufWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Keys of a model with 2 layers, width 64, feed-forward 96, 4 heads and 2 KV heads of 16, 40 tokens.
GgufWriter keys(const std::string& architecture = "llama") {
  auto key = [&](const char* name) { return architecture + "." + name; };
  GgufWriter writer;
  writer.string("general.architecture", architecture)
      .string("general.name", "Tiny")
      .u32(key("block_count"), 2)
      .u32(key("embedding_length"), 64)
      .u32(key("feed_forward_length"), 96)
      .u32(key("context_length"), 128)
      .u32(key("attention.head_count"), 4)
      .u32(key("attention.head_count_kv"), 2)
      .f32(key("attention.layer_norm_rms_epsilon"), 1e-5f);
  return writer;
}

struct Shape {
  uint64_t head_dim = 16;
  bool qkv_bias = false;
  bool tied = false;
};

GgufWriter& add_tensors(GgufWriter& writer, Shape shape = {}) {
  const uint64_t q = 4 * shape.head_dim, kv = 2 * shape.head_dim;
  writer.tensor("token_embd.weight", {64, 40}, DType::q8_0).tensor("output_norm.weight", {64});
  if (!shape.tied) writer.tensor("output.weight", {64, 40}, DType::f16);
  for (int i = 0; i < 2; ++i) {
    auto layer = "blk." + std::to_string(i) + ".";
    writer.tensor(layer + "attn_norm.weight", {64})
        .tensor(layer + "attn_q.weight", {64, q}, DType::q8_0)
        .tensor(layer + "attn_k.weight", {64, kv}, DType::q8_0)
        .tensor(layer + "attn_v.weight", {64, kv}, DType::q8_0)
        .tensor(layer + "attn_output.weight", {q, 64}, DType::q8_0)
        .tensor(layer + "ffn_norm.weight", {64})
        .tensor(layer + "ffn_gate.weight", {64, 96}, DType::q8_0)
        .tensor(layer + "ffn_up.weight", {64, 96}, DType::q8_0)
        .tensor(layer + "ffn_down.weight", {96, 64}, DType::q8_0);
    if (shape.qkv_bias)
      writer.tensor(layer + "attn_q.bias", {q}).tensor(layer + "attn_k.bias", {kv}).tensor(layer + "attn_v.bias", {kv});
  }
  return writer;
}

/// A model and the bytes it lies in.
struct OpenModel {
  explicit OpenModel(const GgufWriter& writer)
      : bytes(writer.file()), model(std::make_unique<GgufFile>(bytes.span())) {}
  ExactBytes bytes;
  Model model;
};

std::string error_of(const GgufWriter& writer) {
  try {
    OpenModel open(writer);
  } catch (const FormatError& error) {
    return error.what();
  }
  return "";
}

/// The error of a model whose key has another value.
std::string error_with(const std::string& name, uint32_t value) {
  auto writer = keys().drop_key(name).u32(name, value);
  return error_of(add_tensors(writer));
}

TEST(Model, ReadsALlama) {
  auto writer = keys();
  OpenModel open(add_tensors(writer));
  const Model& model = open.model;

  EXPECT_EQ(model.config().architecture, "llama");
  EXPECT_EQ(model.config().name, "Tiny");
  EXPECT_EQ(model.config().n_layers, 2);
  EXPECT_EQ(model.config().hidden_size, 64);
  EXPECT_EQ(model.config().intermediate_size, 96);
  EXPECT_EQ(model.config().n_heads, 4);
  EXPECT_EQ(model.config().n_kv_heads, 2);
  EXPECT_EQ(model.config().head_dim, 16);
  EXPECT_EQ(model.config().rope_dim, 16);
  EXPECT_EQ(model.config().rope_theta, 10000);
  EXPECT_EQ(model.config().vocab_size, 40);
  EXPECT_EQ(model.config().context_length, 128);
  EXPECT_EQ(model.config().norm_eps, 1e-5f);
  EXPECT_EQ(model.config().rope_style, RopeStyle::interleaved);
  EXPECT_FALSE(model.tied_output);
  EXPECT_EQ(model.output.type, DType::f16);
  EXPECT_EQ(model.layers.size(), 2u);
  EXPECT_TRUE(model.layers[0].q_bias.empty());
  EXPECT_TRUE(model.rope_factors.empty());
  const int64_t layer = 64 * (64 + 32 + 32 + 64) + 3 * 64 * 96 + 2 * 64;
  EXPECT_EQ(model.parameters(), 2 * layer + 2 * 40 * 64 + 64);
  EXPECT_EQ(model.bytes_per_token(), 2 * ((layer - 128) / 32 * 34 + 128 * 4) + 40 * 64 * 2 + 64 * 4u);
}

TEST(Model, ReadsAQwen2) {
  auto writer = keys("qwen2");
  OpenModel open(add_tensors(writer, {.qkv_bias = true, .tied = true}));

  EXPECT_EQ(open.model.config().rope_style, RopeStyle::halves);
  EXPECT_TRUE(open.model.tied_output);
  EXPECT_EQ(open.model.output.data, open.model.embedding.data);
  EXPECT_EQ(open.model.layers[1].q_bias.size(), 64u);
  EXPECT_EQ(open.model.layers[1].v_bias.size(), 32u);
  EXPECT_GT(open.model.bytes_per_token(), open.model.embedding.rows * row_bytes(DType::q8_0, 64)) << "the tied embedding counts";
}

TEST(Model, TakesOptionalBiasesOfALlama) {
  auto writer = keys();
  add_tensors(writer, {.qkv_bias = true}).tensor("blk.0.attn_output.bias", {64});
  OpenModel open(writer);

  EXPECT_EQ(open.model.layers[0].k_bias.size(), 32u);
  EXPECT_EQ(open.model.layers[0].o_bias.size(), 64u);
  EXPECT_TRUE(open.model.layers[1].o_bias.empty());
}

TEST(Model, RequiresTheBiasesOfAQwen2) {
  auto writer = keys("qwen2");
  EXPECT_EQ(error_of(add_tensors(writer)), "tensor 'blk.0.attn_q.bias' is missing");
}

TEST(Model, TakesHeadsThatAreNotWidthOverHeads) {
  auto writer = keys().u32("llama.attention.key_length", 32).u32("llama.attention.value_length", 32);
  OpenModel open(add_tensors(writer, {.head_dim = 32}));

  EXPECT_EQ(open.model.config().head_dim, 32);
  EXPECT_EQ(open.model.config().rope_dim, 32);
  EXPECT_EQ(open.model.layers[0].q.rows, 128);
  EXPECT_EQ(open.model.layers[0].o.cols, 128);
}

TEST(Model, FoldsLinearScalingIntoTheRopeFactors) {
  auto writer = keys().string("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4);
  OpenModel open(add_tensors(writer));

  EXPECT_EQ(open.model.rope_factors, std::vector<float>(8, 4.0f));
}

TEST(Model, ReadsTheFactorsOfLlama3) {
  auto writer = keys();
  add_tensors(writer).tensor("rope_freqs.weight", {8});
  EXPECT_THAT(error_of(writer), HasSubstr("'rope_freqs.weight' holds 0.0"));

  auto wrong = keys();
  add_tensors(wrong).tensor("rope_freqs.weight", {16});
  EXPECT_EQ(error_of(wrong), "tensor 'rope_freqs.weight': expected [8], found [16]");
}

TEST(Model, EndsTheContextWhereASlidingWindowWouldBegin) {
  auto writer = keys().u32("llama.attention.sliding_window", 100);
  EXPECT_EQ(OpenModel(add_tensors(writer)).model.config().context_length, 100);
}

TEST(Model, RefusesOtherKindsOfModels) {
  EXPECT_EQ(error_of(GgufWriter()), "metadata key 'general.architecture' is missing");
  EXPECT_EQ(error_of(GgufWriter().string("general.architecture", "mamba\x1b")),
            "architecture 'mamba\\x1b' is not supported (llama, qwen2 are)");
  EXPECT_THAT(error_of(keys().u32("llama.expert_count", 8)), HasSubstr("mixtures of experts are not supported"));
  EXPECT_THAT(error_of(keys().string("general.type", "adapter")), HasSubstr("only 'model' is supported"));
  EXPECT_THAT(error_of(keys().key("split.count", 2, GgufWriter::number<uint16_t>(3))), HasSubstr("split files"));
  EXPECT_THAT(error_of(keys().boolean("llama.attention.causal", false)), HasSubstr("only decoders"));
  EXPECT_THAT(error_of(keys().string("llama.rope.scaling.type", "yarn")), HasSubstr("'llama.rope.scaling.type' is 'yarn'"));
  EXPECT_THAT(error_of(keys().string("llama.rope.scaling.type", "linear")), HasSubstr("'llama.rope.scaling.factor' is missing"));
  EXPECT_THAT(error_of(keys()), HasSubstr("the file has no tensors"));
}

TEST(Model, RefusesHyperparametersOutOfRange) {
  struct Case {
    const char* key;
    std::vector<uint32_t> values;
  };
  for (auto& [key, values] : std::vector<Case>{
         {"llama.block_count", {0, 1025, INT32_MAX, UINT32_MAX}},
         {"llama.embedding_length", {0, (1 << 20) + 1, INT32_MAX, UINT32_MAX}},
         {"llama.feed_forward_length", {0, (1 << 22) + 1, INT32_MAX, UINT32_MAX}},
         {"llama.context_length", {0, (1 << 24) + 1, INT32_MAX, UINT32_MAX}},
         {"llama.attention.head_count", {0, 6, 66, 128, 4097, UINT32_MAX}},
         {"llama.attention.head_count_kv", {0, 3, 5, UINT32_MAX}},
         {"llama.attention.key_length", {0, 4097, UINT32_MAX}},
         {"llama.attention.value_length", {0, 8, UINT32_MAX}},
         {"llama.rope.dimension_count", {0, 1, 3, 17, UINT32_MAX}},
         {"llama.attention.sliding_window", {UINT32_MAX}},
         {"llama.expert_count", {1, UINT32_MAX}},
       })
    for (auto value : values)
      EXPECT_THAT(error_with(key, value), HasSubstr(std::string("'") + key + "'")) << value;
  // Within its range, but not what the tensors say.
  EXPECT_EQ(error_with("llama.block_count", 3), "tensor 'blk.2.attn_norm.weight' is missing");
  EXPECT_EQ(error_with("llama.block_count", 1), "tensor 'blk.1.attn_norm.weight' has no place in a llama model");
  EXPECT_EQ(error_with("llama.embedding_length", 128), "tensor 'token_embd.weight': expected [40, 128], found [40, 64]");
}

TEST(Model, RefusesFloatsOutOfRange) {
  for (auto key : {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base", "llama.rope.scale_linear"})
    for (float value : {0.0f, -1.0f, -INFINITY, INFINITY, NAN, 2e16f}) {
      auto writer = keys().drop_key(key).f32(key, value);
      EXPECT_THAT(error_of(add_tensors(writer)), StartsWith("metadata key '" + std::string(key) + "' is ")) << value;
    }
}

TEST(Model, RefusesKeysThatAreMissing) {
  for (auto key : {"llama.block_count", "llama.embedding_length", "llama.feed_forward_length", "llama.context_length",
                   "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    auto writer = keys().drop_key(key);
    EXPECT_EQ(error_of(add_tensors(writer)), "metadata key '" + std::string(key) + "' is missing");
  }
}

TEST(Model, RefusesTensorsThatAreMissingOrMisshapen) {
  for (std::string name : {"token_embd.weight", "output_norm.weight", "blk.1.attn_norm.weight", "blk.1.attn_q.weight",
                           "blk.1.attn_k.weight", "blk.1.attn_v.weight", "blk.1.attn_output.weight", "blk.1.ffn_norm.weight",
                           "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight", "blk.1.ffn_down.weight"}) {
    auto writer = keys();
    add_tensors(writer).drop_tensor(name);
    EXPECT_EQ(error_of(writer), "tensor '" + name + "' is missing");

    writer.tensor(name, {192, 7});
    EXPECT_THAT(error_of(writer), StartsWith("tensor '" + name + "': expected ["));
    writer.drop_tensor(name).tensor(name, {64, 40, 2});
    EXPECT_THAT(error_of(writer), StartsWith("tensor '" + name + "': expected "));
  }
  auto writer = keys();
  add_tensors(writer).drop_tensor("blk.1.ffn_down.weight").tensor("blk.1.ffn_down.weight", {64, 96});
  EXPECT_EQ(error_of(writer), "tensor 'blk.1.ffn_down.weight': expected [64, 96], found [96, 64]");
  writer.drop_tensor("blk.1.ffn_down.weight").tensor("blk.1.ffn_down.weight", {96, 65});
  EXPECT_EQ(error_of(writer), "tensor 'blk.1.ffn_down.weight': expected [64, 96], found [65, 96]");
}

TEST(Model, RefusesQuantisedVectorsAndTensorsWithoutARole) {
  auto writer = keys();
  add_tensors(writer).drop_tensor("output_norm.weight").tensor("output_norm.weight", {64}, DType::q8_0);
  EXPECT_EQ(error_of(writer), "tensor 'output_norm.weight': expected F32, F16 or BF16, found Q8_0");

  auto more = keys();
  add_tensors(more).tensor("blk.0.attn_q_norm.weight", {16});
  EXPECT_EQ(error_of(more), "tensor 'blk.0.attn_q_norm.weight' has no place in a llama model");
}

TEST(Model, RefusesMoreTokensThanLogits) {
  auto with_tokens = [](size_t n) {
    auto writer = keys().key("tokenizer.ggml.tokens", 9, GgufWriter::text_array(std::vector<std::string>(n, "x")));
    return error_of(add_tensors(writer));
  };
  EXPECT_EQ(with_tokens(39), "") << "logits may be padded";
  EXPECT_EQ(with_tokens(40), "");
  EXPECT_THAT(with_tokens(41), HasSubstr("'tokenizer.ggml.tokens' has 41 elements, but 'token_embd.weight' only 40 rows"));
}

TEST(Model, HashesTheWholeFile) {
  auto writer = keys();
  auto other = keys().string("general.description", "x");
  OpenModel a(add_tensors(writer)), again(writer), b(add_tensors(other));

  EXPECT_EQ(a.model.hash(), again.model.hash());
  EXPECT_NE(a.model.hash(), b.model.hash());
}

TEST(Model, CarriesOneInTheBinary) {
  auto model = Model::built_in();

  EXPECT_EQ(model->config().name, "Millrace Tales");
  EXPECT_EQ(model->config().vocab_size, 4096);
  EXPECT_EQ(model->parameters(), 5770496);
  EXPECT_EQ(model->file().bytes().size(), 6273504u);
  EXPECT_TRUE(model->tied_output);
}

// What the fuzzer once found, and its seeds.
TEST(Model, ReadsOrRefusesTheFuzzCorpus) {
  int accepted = 0;
  for (auto& entry : std::filesystem::directory_iterator(MILLRACE_FUZZ_CORPUS)) {
    try {
      Model::open(entry.path().string());
      ++accepted;
    } catch (const FormatError&) {
    }
  }
  EXPECT_EQ(accepted, 3) << "llama-spm, llama-q8_0-v2, qwen2-bpe";
}

// The golden checkpoints of the supported architectures, in every type we read.
TEST(Model, OpensTheGoldenCheckpoints) {
  const std::filesystem::path folder = MILLRACE_SHARED_DATA "/golden_tiny";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  for (auto architecture : {"llama", "llama3-rope", "mistral", "qwen2"})
    for (auto& entry : std::filesystem::directory_iterator(folder / architecture)) {
      if (entry.path().extension() != ".gguf") continue;
      auto model = Model::open(entry.path().string());
      EXPECT_EQ(model->config().vocab_size, 512) << entry.path();
      EXPECT_EQ(model->config().head_dim, std::string(architecture) == "mistral" ? 32 : 16) << entry.path();
      EXPECT_EQ(model->rope_factors.size(), std::string(architecture) == "llama3-rope" ? 8u : 0u) << entry.path();
      EXPECT_EQ(model->layers[0].q_bias.empty(), std::string(architecture) != "qwen2") << entry.path();
    }
  for (auto architecture : {"mixtral", "gpt2", "gemma3", "phi3", "qwen3", "qwen3-moe"})
    EXPECT_THROW(Model::open((folder / architecture / (std::string(architecture) + "-Q8_0.gguf")).string()), FormatError)
        << architecture;
}

} // namespace
} // namespace millrace
