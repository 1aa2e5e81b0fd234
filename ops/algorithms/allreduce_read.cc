// allreduce/read: ordinary tensors are read where they are, with one system call per piece.
//
// Rank i fetches its own piece of all inputs into a landing slot, reduces it into its
// output, and then fetches the other pieces of the result from their owners' outputs. Nothing is
// staged for others. Per rank, n ranks, m bytes: 3 ticks; 2(n-1)/n * m bytes fetched, m/n reduced.
// Pays where a system call (process_vm_readv) per piece costs less than copying through landing
// slots; see SelectorSettings::read_bytes.
//
// Worked example, 2 ranks, in place:
//   rank 0: fetch input[1]+0 (the first half), output+0 = x0+x1, signal 2
//   rank 1: fetch input[0]+m/2, output+m/2 = x0+x1, signal 2
//   rank 0: wait 1 >= 2; fetch output[1]+m/2; signal 3; wait all >= 3
//
// In place is right because the piece of rank j is read by rank j only before tick 2, and is
// overwritten here only after waiting for j's tick 2. The last wait is plan-S4: peers read my
// output until their tick 3.
#include <algorithm>

#include "core/plan/algorithm.h"

namespace covey {
namespace {

constexpr uint64_t kAlign = 64;
// A step is the unit in which the executor changes between exchanges.
constexpr uint64_t kStepBytes = 512 * 1024;
// Below this a piece is not worth its system call.
constexpr uint64_t kMinChunkBytes = 4096;

// A landing slot takes one chunk of each peer.
uint64_t ChunkBytes(const Problem& p) {
  return p.slot_bytes / static_cast<uint64_t>(p.size - 1) / kAlign * kAlign;
}

bool Fits(const Problem& p) {
  return p.all_readable && p.size > 1 && p.length_bytes > 0 && ChunkBytes(p) >= kMinChunkBytes;
}

uint64_t PieceBegin(const Problem& p, int32_t index) {
  const uint64_t lines = (p.length_bytes + kAlign - 1) / kAlign;
  return std::min(p.length_bytes,
                  lines * static_cast<uint64_t>(index) / static_cast<uint64_t>(p.size) * kAlign);
}

void ReduceOwnPiece(const Problem& p, Schedule* s) {
  const auto me = static_cast<int16_t>(p.me);
  const uint64_t chunk = ChunkBytes(p);
  const uint64_t end = PieceBegin(p, p.me + 1);
  for (uint64_t at = PieceBegin(p, p.me); at < end; at += chunk) {
    const uint64_t length = std::min(chunk, end - at);
    uint64_t place = 0;
    for (int32_t j = 0; j < p.size; ++j) {
      if (j == p.me) continue;
      s->steps.push_back({.kind = StepKind::kFetch,
                          .dst = {Place::kLanding, me, 0, place},
                          .src = {Place::kInput, static_cast<int16_t>(j), 0, at},
                          .length_bytes = length});
      place += chunk;
    }
    s->steps.push_back({.kind = StepKind::kReduceFetched,
                        .streaming = p.length_bytes > p.cache_bytes,
                        .dst = {Place::kOutput, me, 0, at},
                        .stride = chunk,
                        .length_bytes = length});
  }
}

Schedule Build(const Problem& p) {
  const auto me = static_cast<int16_t>(p.me);
  Schedule s{.algorithm = "read",
             .steps = {},
             .ticks = 3,
             .slots = 1,
             .touches_peers = true,
             .reads_begin = false};
  ReduceOwnPiece(p, &s);
  s.steps.push_back({.kind = StepKind::kSignal, .tick = 2});
  for (int32_t step = 1; step < p.size; ++step) {
    const auto j =
        static_cast<int16_t>((p.me + step) % p.size);  // not all from the same rank at once
    s.steps.push_back({.kind = StepKind::kWait, .peer = j, .tick = 2});
    const uint64_t end = PieceBegin(p, j + 1);
    for (uint64_t at = PieceBegin(p, j); at < end; at += kStepBytes)
      s.steps.push_back({.kind = StepKind::kFetch,
                         .dst = {Place::kOutput, me, 0, at},
                         .src = {Place::kOutput, j, 0, at},
                         .length_bytes = std::min(kStepBytes, end - at)});
  }
  s.steps.push_back({.kind = StepKind::kSignal, .tick = 3});
  s.steps.push_back({.kind = StepKind::kWait, .tick = 3});
  return s;
}

constexpr Algorithm kAlgorithm{
    .name = "read",
    .kind = Kind::kAllreduce,
    .fits = Fits,
    .build = Build,
    .prefer = {
        .priority = 2, .min_size = 2, .readable = true, .above = &SelectorSettings::read_bytes}};
const AlgorithmRegistration kRegistration(kAlgorithm);

}  // namespace
}  // namespace covey
