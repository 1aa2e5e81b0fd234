// What seats write to each other, as data, and as bytes.
//
//   letter   from, to            says
//   kAsk     candidate, all      may I lead this attempt? I know `executed`, and keep `kept`
//   kYes     seat, candidate     yes, and nobody else
//   kBeat    leader, seat        I lead; so many versions are decided; how the others stand
//   kState   seat, leader        what it knows and keeps, and how it stands; answers kBeat, kEntry
//   kPiece   seat, leader        a contribution
//   kHeld    leader, seat        that lies here as one piece; up to `consumed` it is in versions
//   kEntry   leader, seat        a version: keep it; decided when version <= executed
//   kSkip    leader, seat        you are too late for the log: go on after version `executed`
//   kGift    seat, seat          a snapshot of my trainer after `version`, for who asked
//   kWord    seat, all           I leave: I hear and say nothing more
//
// A letter of an attempt that is over is dropped, but for kGift, kWord and what is `known`; its
// writer is told which one runs (replicated-W7). All fields of all kinds stand in one struct:
// letters are few and small but for `body`.
#ifndef COVEY_CORE_REPLICATED_LETTER_H_
#define COVEY_CORE_REPLICATED_LETTER_H_

#include <span>
#include <vector>

#include "core/base/types.h"
#include "core/base/wire.h"
#include "core/partial/memory.h"

namespace covey {

enum class LetterKind : uint8_t {
  kAsk = 1,
  kYes,
  kBeat,
  kState,
  kPiece,
  kHeld,
  kEntry,
  kSkip,
  kGift,
  kWord,
};

// The standing (core/partial/memory.h) of a seat that has left or is dead: it has finished for
// good.
inline constexpr uint64_t kHasLeft = (uint64_t{1} << 62) + 1;

struct Letter {
  LetterKind kind = LetterKind::kState;
  uint64_t attempt = 0;
  uint64_t executed = 0;  // versions that are decided, as the writer has them;
  uint64_t known = 0;     // as anybody has told it, whether or not it has them
  uint64_t version = 0;   // kEntry: which; kAsk, kState: the one that is kept, undecided; 0: none
  uint64_t kept = 0;      // kAsk, kState: the attempt in which what the writer keeps was proposed
  uint64_t number = 0;    // of beats; kState: of the last one that has come

  // kState: how its trainer stands.
  uint64_t standing = 0, applied = 0, tries = 0;
  Time max_wait = kNever;
  bool left = false;
  uint64_t met = 0;   // how often it has met the others after finishing
  uint64_t need = 0;  // the lowest version of which a snapshot would do; 0: it needs none

  // kBeat: no version is under way and no slot sealed; the receiver has waited for max_wait since
  // the try of its finish() of that number; nothing is kept that was proposed.
  bool quiet = false;
  uint64_t over = 0;
  bool is_void = false;
  // What is decided beyond `executed`, nobody who lives has: no version comes any more.
  bool is_cut_off = false;
  uint64_t ask = 0, ask_version = 0;  // 1 + the seat that it may give a snapshot, from that version
  // By member: whether it needs a snapshot, how often it has met the others, and for how long the
  // leader has not heard of it, in nanoseconds; 0 for the leader and for who is dead.
  std::vector<uint64_t> needs, mets, silences;

  Contribution content;   // kPiece, kHeld
  uint64_t consumed = 0;  // kHeld
  std::vector<uint64_t>
      list;  // kBeat: standings; kEntry, kSkip: the last step that is in a version
  std::vector<uint64_t> missing;  // kEntry, kSkip: Attendance::missing, by member
  std::vector<double> hypers;     // kPiece
  Bytes body;                     // kPiece: the sum; kEntry: record, sum; kGift: the state

  Bytes Encode() const;
  // False: it is none.
  static bool Decode(std::span<const std::byte> bytes, Letter* letter);
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_LETTER_H_
