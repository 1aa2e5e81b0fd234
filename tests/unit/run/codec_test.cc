// Goal: what a user writes for a codec is read, and what is wrong with it said in words.
// Method: codecs of this file only; each mistake and its sentence.
#include "core/run/codec.h"

#include <gtest/gtest.h>

namespace covey {
namespace {

EncodedLayout Form(const CodecValues& values) {
  return {.block_elems = static_cast<uint32_t>(values[0]), .header_bytes = 4, .elem_bits = 8};
}
EncodedLayout Plain(const CodecValues&) { return {.block_elems = 64, .elem_bits = 16}; }

constexpr CodecParameter kParameters[] = {{"block", 256, 16, 1024, 16}, {"bits", 8, 1, 8, 1}};
constexpr Codec kTame{"tame", "", {}, Plain, nullptr, nullptr, nullptr};
constexpr Codec kTune{"tune", "", kParameters, Form, nullptr, nullptr, nullptr};
const CodecRegistration kTuneRegistration(kTune);
const CodecRegistration kTameRegistration(kTame);

TEST(CodecTest, CatalogueIsSortedByName) {
  ASSERT_EQ(Codecs().size(), 2u);
  EXPECT_EQ(Codecs()[0], &kTame);
  EXPECT_EQ(FindCodec("tune"), &kTune);
  EXPECT_EQ(FindCodec("tun"), nullptr);
}

TEST(CodecTest, ReadsParametersAndTextIsTheSameForEqualCodecs) {
  for (const char* text : {"tune", "tune@", "tune@bits=8", "tune@bits=8,block=256"}) {
    ChosenCodec chosen;
    const Status status = ParseCodec(text, &chosen);
    if (std::string(text) == "tune@") {
      EXPECT_FALSE(status.ok());
      continue;
    }
    ASSERT_TRUE(status.ok()) << text << ": " << status.message();
    EXPECT_EQ(chosen.text, "tune@block=256,bits=8");
  }
  ChosenCodec chosen;
  ASSERT_TRUE(ParseCodec("tune@block=32", &chosen).ok());
  EXPECT_EQ(chosen.form.block_elems, 32u);
  EXPECT_EQ(chosen.text, "tune@block=32,bits=8");
  ASSERT_TRUE(ParseCodec("tame", &chosen).ok());
  EXPECT_EQ(chosen.text, "tame");
}

TEST(CodecTest, SaysWhatIsWrongWhatThereIsAndWhatIsNearest) {
  const struct {
    const char* text;
    const char* message;
  } kWrongs[] = {
      {"tone", "there is no codec 'tone'; there are tame, tune; the nearest is tune"},
      {"", "there is no codec ''; there are tame, tune; the nearest is tame"},
      {"tune@blocks=32",
       "codec tune has no parameter 'blocks'; there are block, bits; the nearest "
       "is block"},
      {"tune@", "codec tune has no parameter ''"},
      {"tame@block=32", "codec tame has no parameter 'block'; there are none"},
      {"tune@block=8", "codec tune: block 8 is not a multiple of 16 from 16 to 1024"},
      {"tune@block=33", "codec tune: block 33 is not a multiple of 16 from 16 to 1024"},
      {"tune@block=32x", "codec tune: block 32x is not"},
      {"tune@block", "codec tune: block  is not"},
      {"tune@bits=1,bits=2", "codec tune: bits is given twice"},
      {"tune@bits=99999999999999999999", "codec tune: bits 99999999999999999999 is not"},
  };
  for (const auto& wrong : kWrongs) {
    ChosenCodec chosen;
    const Status status = ParseCodec(wrong.text, &chosen);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << wrong.text;
    EXPECT_NE(status.message().find(wrong.message), std::string::npos) << status.message();
  }
}

TEST(EncodedLayoutTest, EverySegmentFitsAndIsTheMostThatDoes) {
  for (const EncodedLayout form :
       {EncodedLayout{256, 4, 8}, EncodedLayout{64, 0, 16}, EncodedLayout{16, 4, 3}}) {
    ASSERT_TRUE(form.Possible());
    for (uint64_t slot_bytes = 64; slot_bytes < 4096; slot_bytes += 4) {
      const uint64_t elems = form.ElemsIn(slot_bytes);
      EXPECT_LE(form.EncodedBytes(elems), slot_bytes);
      const uint64_t more = elems < form.block_elems ? elems + 1 : elems + form.block_elems;
      EXPECT_GT(form.EncodedBytes(more), slot_bytes) << elems << " in " << slot_bytes;
    }
  }
}

}  // namespace
}  // namespace covey
