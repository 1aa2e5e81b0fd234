// The memory of one job on one host: its layout, how it is made, and how ranks find each other in
// it.
//
// A memfd without a name: it lives exactly as long as some process of the job, survives the death
// of any one of them, two jobs can never meet, and nothing is left behind (also after SIGKILL). The
// launcher makes it and its children inherit the descriptor.
//
//   [JobHeader][region of rank 0][region of rank 1]...          regions are sparse: untouched pages
//   cost nothing region = [RankPage][mailbox from rank 0]...[mailbox from rank size-1][heap:
//   landing blocks, arena tensors]
#ifndef COVEY_OPS_TRANSPORTS_SHM_JOB_H_
#define COVEY_OPS_TRANSPORTS_SHM_JOB_H_

#include <atomic>
#include <cstdint>

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/types.h"
#include "ops/transports/shm_watch.h"

namespace covey {

inline constexpr uint64_t kJobMagic = 0x31796576'6f437632;  // changes with the layout
inline constexpr size_t kPageBytes = 4096;
inline constexpr int kMaxRanksPerHost = 1024;

struct JobHeader {
  uint64_t magic;
  int32_t size;
  int32_t unused;
  uint64_t region_bytes;
};

// kGaveUp: left before every rank had joined.
enum class Presence : uint32_t { kAbsent = 0, kJoined = 1, kLeft = 2, kGaveUp = 3 };

// The words that a rank shows of itself. Each on its own cache line: all ranks read them.
struct RankPage {
  alignas(64) std::atomic<uint64_t> presence;  // incarnation << 32 | Presence
  std::atomic<Time> left_at;                   // kLeft and kGaveUp
  std::atomic<int32_t> pid;
  std::atomic<uint64_t> pid_namespace;  // see ProcessId
  std::atomic<uint64_t> heap_begin;  // set while tensors of an earlier incarnation are still in use
  std::atomic<uint64_t> probe_address;  // of a uint64_t that holds kJobMagic, in the rank's memory
  alignas(64) std::atomic<uint32_t> parked;  // Transport::Sleeper, to be rung for messages
  // The same, to be rung for ticks: kNobody for kMailOnly. Peers look at it with every tick, and so
  // small exchanges that follow one another leave it in their caches.
  alignas(64) std::atomic<uint32_t> parked_for_ticks;
  alignas(64) std::atomic<uint32_t> bells[3];  // by Sleeper; futex words
  alignas(64) std::atomic<uint64_t> mail;      // messages ever put into this rank's mailboxes
};
static_assert(sizeof(RankPage) <= kPageBytes);

// A single-producer single-consumer ring of bytes; lies in the receiver's region.
struct MailRing {
  static constexpr uint64_t kCapacityBytes = 256 * 1024;
  alignas(64) std::atomic<uint64_t> head;  // bytes ever taken; written by the receiver
  alignas(64) std::atomic<uint64_t> tail;  // bytes ever put; written by the sender
  alignas(64) std::byte bytes[kCapacityBytes];
};

class ShmJob {
 public:
  // A new memfd for `size` ranks with `heap_bytes` each, of a name of its own (covey- and 32
  // hexadecimal digits) and sealed: its length never changes. *fd is the caller's to close.
  static Status Create(int32_t size, uint64_t heap_bytes, int* fd);

  struct Identity {
    Rank rank = kNoRank;
    int32_t size = 0;
    bool reads_peers = false;  // may read others' private memory, and lets them read its own
  };
  // Maps the job and checks that it was made for identity.size ranks.
  static Status Open(int fd, Identity identity, ShmJob* job);

  // How a rank waits for the others: at most timeout_ns; after warn_after_ns `log` (may be null)
  // names the missing ranks.
  struct Patience {
    Time timeout_ns = 0;
    Time warn_after_ns = kNever;
    Log* log = nullptr;
  };
  // Waits until every rank has joined with this rank's next incarnation. On return the own region
  // is fresh, as are all others, and `watch` watches all ranks. Errors: kAborted with the peer when
  // a rank that had announced itself dies or gives up, within kLookInterval of it; kTimeout with
  // the ranks that never came. After an error this rank has given up; it may join again.
  static constexpr Time kLookInterval = 50 * kMillisecond;
  Status Join(const Patience& patience, ProcessWatch* watch);
  void Leave();

  RankPage* Page(Rank r) const { return reinterpret_cast<RankPage*>(Region(r)); }
  MailRing* MailboxOf(Rank to, Rank from) const;
  std::byte* Region(Rank r) const {
    return arena->base() + kPageBytes + region_bytes * static_cast<uint64_t>(ToInt(r));
  }
  Presence PresenceOf(Rank r) const;  // in this incarnation; kAbsent: still in an earlier one

  Arena* arena = nullptr;  // a reference owned by the holder of this job
  Identity identity;
  uint64_t region_bytes = 0;
  uint32_t incarnation = 0;

 private:
  // A state that every rank is awaited to reach, or to have gone beyond.
  struct Milestone {
    Presence presence;
    uint32_t incarnation;
  };
  uint64_t Shown(int32_t rank) const;  // its presence word
  ProcessId ProcessOf(int32_t rank) const;
  Status AwaitAll(Milestone wanted, const Patience& patience, ProcessWatch* watch) const;
  Status LookForLosses(Milestone wanted, ProcessWatch* watch) const;
  void ShowAs(Presence presence);
};

// Futex on memory shared between processes. Wait returns when woken, at the deadline, or on a
// signal.
void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, Time timeout_ns);
void FutexWake(std::atomic<uint32_t>* word);

}  // namespace covey
#endif  // COVEY_OPS_TRANSPORTS_SHM_JOB_H_
