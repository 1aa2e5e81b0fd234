// What tests that feed changed bytes to decoders share: a seed that is printed, so many rounds or
// seconds, changes at random, and the largest allocation of the program. One file of a test
// includes it: it brings the program's operator new.
//
// FUZZ_SEED repeats a run, FUZZ_SECONDS makes one as long as one likes (tools/fuzz).
#ifndef COVEY_TESTS_CONTRACT_FUZZ_FUZZ_H_
#define COVEY_TESTS_CONTRACT_FUZZ_FUZZ_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>

#include "core/base/rng.h"
#include "core/base/wire.h"

namespace covey {

inline std::atomic<size_t> largest_bytes{0};

inline uint64_t FuzzNumber(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace covey

void* operator new(size_t bytes) {
  size_t seen = covey::largest_bytes.load();
  while (bytes > seen && !covey::largest_bytes.compare_exchange_weak(seen, bytes)) continue;
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace covey {

inline Bytes BytesOf(std::string_view text) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}
inline std::string TextOf(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class FuzzTest : public testing::Test {
 protected:
  static constexpr size_t kMostBytes = 4096;  // of what comes at once

  FuzzTest() : seed_(FuzzNumber("FUZZ_SEED", 20261124)), rng_(seed_) {
    RecordProperty("seed", std::to_string(seed_));
    std::printf("FUZZ_SEED=%llu\n", static_cast<unsigned long long>(seed_));
  }

  Bytes Change(Bytes bytes) {
    for (uint64_t changes = 1 + rng_.Below(4); changes > 0; --changes) {
      const size_t at = bytes.empty() ? 0 : rng_.Below(bytes.size());
      switch (rng_.Below(7)) {
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
        case 5: {  // a part of it once more
          const Bytes part(
              bytes.begin() + static_cast<ptrdiff_t>(at),
              bytes.begin() + static_cast<ptrdiff_t>(std::min(bytes.size(), at + 100)));
          bytes.insert(bytes.end(), part.begin(), part.end());
          bytes.resize(std::min(bytes.size(), kMostBytes));
          break;
        }
        default:
          if (!bytes.empty()) bytes[at] = static_cast<std::byte>(rng_.Below(16));
      }
    }
    return bytes;
  }

  // `one` gets bytes that are nearly one of `valid`: so many rounds in all, or for FUZZ_SECONDS. No
  // allocation is larger than `most_bytes`.
  void Run(const std::vector<Bytes>& valid, uint64_t rounds,
           const std::function<void(const Bytes&)>& one, size_t most_bytes = 32 * kMostBytes) {
    constexpr uint64_t kBetweenLooks = 256;
    const uint64_t seconds = FuzzNumber("FUZZ_SECONDS", 0);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    largest_bytes = 0;
    Bytes last = valid.front();
    for (uint64_t round = 0; !HasFailure(); ++round) {
      if (seconds == 0 && round >= rounds) break;
      if (seconds > 0 && round % kBetweenLooks == 0 && std::chrono::steady_clock::now() >= until)
        break;
      last = Change(rng_.Percent(50) ? valid[rng_.Below(valid.size())] : std::move(last));
      one(last);
      if (HasFailure()) std::printf("fed: %s\n", testing::PrintToString(last).c_str());
      ASSERT_LE(largest_bytes.load(), most_bytes) << "round " << round;
    }
  }

  const uint64_t seed_;
  Rng rng_;
};

}  // namespace covey
#endif  // COVEY_TESTS_CONTRACT_FUZZ_FUZZ_H_
