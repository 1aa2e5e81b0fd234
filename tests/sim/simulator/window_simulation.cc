#include "tests/sim/simulator/window_simulation.h"

#include <functional>
#include <vector>

#include "core/base/rng.h"
#include "core/transport/private_atomics.h"
#include "core/transport/seqlock.h"

namespace covey {
namespace {

constexpr int kLooks = 40;

// Words that let another rank go on before each of them.
class LateWords final : public PrivateAtomics {
 public:
  std::function<void()> before;

  uint64_t Load(const uint64_t* word) override {
    if (before) before();
    return *word;
  }
};

// Writes `version` to every element, one in each step.
struct Owner {
  explicit Owner(Rng* rng, std::vector<uint64_t>* memory, SeqLock window)
      : rng(rng), memory(memory), window(window) {}

  void Step() {
    if (is_closed || is_stopped) return;
    if (at < 0) {
      if (rng->Below(400) == 0) {
        is_closed = true;
        return window.Close();
      }
      if (rng->Below(3) == 0) return;
      window.BeginChange();
      at = 0;
    } else if (at < static_cast<int>(memory->size())) {
      if (rng->Below(300) == 0) is_stopped = true;
      if (rng->Below(200) == 0) at = 0, window.BeginChange();  // a step that has failed: once more
      (*memory)[static_cast<size_t>(at++)] = version + 1;
    } else {
      window.EndChange(++version);
      at = -1;
    }
  }

  Rng* rng;
  std::vector<uint64_t>* memory;
  SeqLock window;
  uint64_t version = 0;
  int at = -1;  // the element that comes; -1: it changes nothing
  bool is_closed = false, is_stopped = false;
};

std::string Judge(SeqLock::Found found, uint64_t version, const std::vector<uint64_t>& copy,
                  uint64_t before, bool was_closed) {
  if (was_closed && found != SeqLock::Found::kClosed) return "what was closed is seen";
  if (found != SeqLock::Found::kWhole) return "";
  if (version < before) return "an older version than had ended";
  for (const uint64_t element : copy)
    if (element != version)
      return "version " + std::to_string(version) + " has an element of " + std::to_string(element);
  return "";
}

}  // namespace

WindowVerdict RunWindows(uint64_t seed) {
  Rng rng(seed);
  WindowVerdict verdict;
  const size_t elements = 1 + rng.Below(8), first = rng.Below(elements + 1);
  const uint64_t pace = 1 + rng.Below(12);
  verdict.swarm = std::to_string(elements) + " elements, pace " + std::to_string(pace);
  std::vector<uint64_t> words(7, 0), memory(elements), copy(elements);
  LateWords own, late;
  Owner owner(&rng, &memory, SeqLock(words.data(), &own));
  const SeqLock::Span spans[] = {{0, first * 8}, {first * 8, (elements - first) * 8}};
  owner.window.Open(spans);
  late.before = [&] {
    for (uint64_t steps = rng.Below(pace); steps > 0; --steps) owner.Step();
  };
  const SeqLock looker(words.data(), &late);
  for (int look = 0; look < kLooks && verdict.failure.empty(); ++look) {
    if (owner.is_stopped && rng.Below(4) == 0) owner.is_stopped = false, ++verdict.stopped;
    void* const to[] = {copy.data(), copy.data() + first};
    const uint64_t lengths[] = {spans[0].length_bytes, spans[1].length_bytes};
    const uint64_t before = owner.version;
    const bool was_closed = owner.is_closed;
    uint64_t version = 0;
    const SeqLock::Found found =
        looker.Peek(reinterpret_cast<const std::byte*>(memory.data()), to, lengths, &version);
    verdict.failure = Judge(found, version, copy, before, was_closed);
    verdict.whole += found == SeqLock::Found::kWhole ? 1 : 0;
    verdict.changing += found == SeqLock::Found::kChanging ? 1 : 0;
    verdict.nothing += found == SeqLock::Found::kNothing ? 1 : 0;
    verdict.closed += found == SeqLock::Found::kClosed ? 1 : 0;
    verdict.hash = verdict.hash * 31 + version * 7 + static_cast<uint64_t>(found);
  }
  return verdict;
}

}  // namespace covey
