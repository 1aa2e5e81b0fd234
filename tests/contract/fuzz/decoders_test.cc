// Goal: whatever bytes come from outside, each decoder takes them or refuses them: no crash, no
// endless loop, no memory beyond what has come; what it takes is written and read the same again.
// Method: valid bytes, changed at random from a seed that is printed. FUZZ_SEED repeats a run,
// FUZZ_ROUNDS=100000000 makes a long one. The largest allocation is seen by this program's own new.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include "core/agree/message.h"
#include "core/base/rng.h"
#include "core/hosts/courier.h"
#include "core/hosts/letter.h"

namespace {

std::atomic<size_t> largest_bytes{0};

uint64_t Number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

void* operator new(size_t bytes) {
  size_t seen = largest_bytes.load();
  while (bytes > seen && !largest_bytes.compare_exchange_weak(seen, bytes)) continue;
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace covey {
namespace {

constexpr size_t kMostBytes = 4096;  // of what comes at once

class DecodersTest : public testing::Test {
 protected:
  DecodersTest() : seed_(Number("FUZZ_SEED", 20261124)), rng_(seed_) {
    RecordProperty("seed", std::to_string(seed_));
    std::printf("FUZZ_SEED=%llu\n", static_cast<unsigned long long>(seed_));
  }

  Bytes Change(Bytes bytes) {
    for (uint64_t changes = 1 + rng_.Below(4); changes > 0; --changes) {
      const size_t at = bytes.empty() ? 0 : rng_.Below(bytes.size());
      switch (rng_.Below(6)) {
        case 0:
          if (!bytes.empty()) bytes[at] ^= static_cast<std::byte>(1u << rng_.Below(8));
          break;
        case 1:
          bytes.resize(at);
          break;
        case 2:
          bytes.resize(std::min(bytes.size() + rng_.Below(64), kMostBytes), std::byte{0xff});
          break;
        case 3:  // a length, or a count
          for (size_t i = at; i < std::min(bytes.size(), at + 8); ++i)
            bytes[i] = static_cast<std::byte>(rng_.Percent(50) ? 0xff : rng_.Next());
          break;
        case 4:
          std::rotate(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(at), bytes.end());
          break;
        default:
          if (!bytes.empty()) bytes[at] = static_cast<std::byte>(rng_.Below(16));
      }
    }
    return bytes;
  }

  // `one` gets bytes that are nearly valid. No allocation is larger than a few times the input.
  void Run(const Bytes& valid, const std::function<void(const Bytes&)>& one) {
    largest_bytes = 0;
    const uint64_t rounds = Number("FUZZ_ROUNDS", 100'000);
    Bytes last = valid;
    for (uint64_t round = 0; round < rounds && !HasFailure(); ++round) {
      last = Change(rng_.Percent(50) ? valid : std::move(last));
      one(last);
      ASSERT_LE(largest_bytes.load(), 32 * kMostBytes) << "round " << round;
    }
  }

  const uint64_t seed_;
  Rng rng_;
};

TEST_F(DecodersTest, Letters) {
  Letter letter{.kind = LetterKind::kEntry, .attempt = 7, .executed = 8, .version = 9};
  letter.list = {1, 2, 3};
  letter.missing = {3};
  letter.hypers = {0.5, -1};
  letter.body.resize(100);
  Run(letter.Encode(), [](const Bytes& bytes) {
    Letter read, again;
    if (!Letter::Decode(bytes, &read)) return;
    const Bytes written = read.Encode();
    ASSERT_TRUE(Letter::Decode(written, &again));
    EXPECT_EQ(again.Encode(), written);
  });
}

TEST_F(DecodersTest, Messages) {
  Message message;
  message.type = MessageType::kAgreed;
  message.text = "why";
  Run(EncodeMessage(message), [](const Bytes& bytes) {
    Message read, again;
    if (!DecodeMessage(bytes, &read)) return;
    const Bytes written = EncodeMessage(read);
    ASSERT_TRUE(DecodeMessage(written, &again));
    EXPECT_EQ(EncodeMessage(again), written);
  });
}

TEST_F(DecodersTest, Frames) {
  constexpr size_t kFrameBytes = 128, kLongest = 1000;
  Courier writer(9, 2, kFrameBytes);
  Bytes frame;
  for (int letter = 0; letter < 3; ++letter) writer.Post(1, Bytes(300));
  frame.assign(writer.Next(1).begin(), writer.Next(1).end());
  Courier reader(9, 2, kFrameBytes);
  Run(frame, [&](const Bytes& bytes) {
    if (!Courier::IsFrame(bytes)) return;
    Courier::ChannelOf(bytes);
    Bytes letter;
    const size_t longest = rng_.Percent(50) ? kLongest : ~size_t{0};
    reader.OnFrame(0, bytes, longest, &letter);
    EXPECT_LE(letter.size(), 32 * kMostBytes);
    // A letter that never ends takes as much as was sent; a peer's end forgets it.
    if (rng_.Percent(5)) reader.OnLoss(0);
    if (rng_.Percent(5)) reader = Courier(9, 2, kFrameBytes);
    while (!reader.Next(0).empty()) reader.OnSent(0);
  });
}

}  // namespace
}  // namespace covey
