#include "ops/transports/shm_job.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <ctime>
#include <vector>

#include "core/base/clock.h"

namespace covey {
namespace {

constexpr uint64_t kProbe = kJobMagic;  // the value that peers try to read

// The length stays: one process that cut the memory would end all others (SIGBUS).
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

bool HasSeals(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  // shm-M6: memory without these seals may be cut, which ends every process that touches it.
  return seals >= 0 && (seals & kSeals) == kSeals;
}

constexpr uint64_t Pages(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

uint64_t MailboxesBytes(int32_t size) {
  return Pages(sizeof(MailRing)) * static_cast<uint64_t>(size);
}

constexpr uint64_t Presented(uint32_t incarnation, Presence presence) {
  return uint64_t{incarnation} << 32 | static_cast<uint32_t>(presence);
}

std::string Seconds(Time time) {
  char text[32];
  std::snprintf(
      text, sizeof(text), "%g s",
      static_cast<double>(time / kMillisecond) / static_cast<double>(kSecond / kMillisecond));
  return text;
}

// "covey-" and 128 random bits: of what others say of the memory they check this name.
Status NewName(std::string* name) {
  uint64_t words[2];
  if (getrandom(words, sizeof(words), 0) != sizeof(words))
    return Status::Exhausted("the system gave no random bytes: " + ErrnoText(errno));
  char digits[33];
  std::snprintf(digits, sizeof(digits), "%016" PRIx64 "%016" PRIx64, words[0], words[1]);
  // shm-M6: the name is random, so no other process can offer memory under it.
  *name = std::string("covey-") + digits;
  return Status::Ok();
}

std::string RankList(const std::vector<int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, Time timeout_ns) {
  if (timeout_ns <= 0) return;
  const timespec timeout{.tv_sec = static_cast<time_t>(timeout_ns / kSecond),
                         .tv_nsec = static_cast<long>(timeout_ns % kSecond)};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Status ShmJob::Create(int32_t size, uint64_t heap_bytes, int* fd) {
  if (size < 1 || size > kMaxRanksPerHost)
    return Status::InvalidArgument("a job on one host has 1 to " +
                                   std::to_string(kMaxRanksPerHost) + " ranks, not " +
                                   std::to_string(size));
  std::string name;
  RETURN_IF_ERROR(NewName(&name));
  const int memory = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory < 0)
    return Status::Exhausted("cannot make shared memory (memfd_create): " + ErrnoText(errno));
  JobHeader header{kJobMagic, size, 0, kPageBytes + MailboxesBytes(size) + Pages(heap_bytes)};
  const auto length =
      static_cast<off_t>(kPageBytes + header.region_bytes * static_cast<uint64_t>(size));
  // shm-M6: sealed: no process can change the length any more.
  if (ftruncate(memory, length) != 0 ||
      pwrite(memory, &header, sizeof(header), 0) != sizeof(header) ||
      fcntl(memory, F_ADD_SEALS, kSeals) != 0) {
    const Status status = Status::Exhausted("cannot size shared memory: " + ErrnoText(errno));
    close(memory);
    return status;
  }
  *fd = memory;
  return Status::Ok();
}

Status ShmJob::Open(int fd, Identity identity, ShmJob* job) {
  JobHeader header{};
  struct stat info {};
  if (fstat(fd, &info) != 0 || pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
      header.magic != kJobMagic || !HasSeals(fd))
    return Status::InvalidArgument(
        "descriptor " + std::to_string(fd) +
        " (COVEY_SHM_FD) is not the shared memory of a Covey job of this version; was it "
        "closed on the way from coveyrun to this process?");
  if (header.size != identity.size)
    return Status::InvalidArgument(
        "this rank was told a job of size " + std::to_string(identity.size) +
        ", but its shared memory was made for " + std::to_string(header.size));
  job->identity = identity;
  job->region_bytes = header.region_bytes;
  const uint64_t region =
      kPageBytes + header.region_bytes * static_cast<uint64_t>(ToInt(identity.rank));
  uint64_t heap_begin = region + kPageBytes + MailboxesBytes(header.size);
  RankPage page{};
  if (pread(fd, static_cast<void*>(&page), sizeof(page), static_cast<off_t>(region)) !=
      sizeof(page))
    return Status::InvalidArgument("the job's shared memory is shorter than it says");
  if (page.heap_begin != 0) heap_begin = page.heap_begin;
  return Arena::Map(fd, static_cast<size_t>(info.st_size), heap_begin, region + header.region_bytes,
                    &job->arena);
}

MailRing* ShmJob::MailboxOf(Rank to, Rank from) const {
  return reinterpret_cast<MailRing*>(Region(to) + kPageBytes +
                                     Pages(sizeof(MailRing)) * static_cast<uint64_t>(ToInt(from)));
}

Presence ShmJob::PresenceOf(Rank r) const {
  const uint64_t word = Page(r)->presence.load(std::memory_order_acquire);
  if (static_cast<uint32_t>(word >> 32) < incarnation) return Presence::kAbsent;
  // A later incarnation means that this one was left.
  if (static_cast<uint32_t>(word >> 32) > incarnation) return Presence::kLeft;
  return static_cast<Presence>(static_cast<uint32_t>(word));
}

uint64_t ShmJob::Shown(int32_t rank) const {
  return Page(Rank{rank})->presence.load(std::memory_order_acquire);
}

ProcessId ShmJob::ProcessOf(int32_t rank) const {
  const RankPage* page = Page(Rank{rank});
  return {.pid = page->pid.load(), .name_space = page->pid_namespace.load()};
}

// An error when the milestone cannot be reached any more.
Status ShmJob::LookForLosses(Milestone wanted, ProcessWatch* watch) const {
  const uint64_t joined = Presented(wanted.incarnation, Presence::kJoined);
  for (int32_t r = 0; r < identity.size; ++r) {
    const bool gave_up = Shown(r) == Presented(wanted.incarnation, Presence::kGaveUp);
    // shm-M5: a rank that gave up never joins: init ends and names it.
    if (gave_up && wanted.presence == Presence::kJoined)
      return Status::Aborted("rank " + std::to_string(r) +
                                 " gave up before every rank had called init: its own error says "
                                 "why",
                             Rank{r});
    if (Shown(r) == joined) watch->Watch(r, ProcessOf(r));
  }
  // shm-M5: a rank that has died never joins: init ends and names it.
  for (const int32_t r : watch->Gone()) {
    if (Shown(r) != joined) continue;  // it had left, properly, before it ended
    return Status::Aborted("rank " + std::to_string(r) + " has died (process " +
                               std::to_string(ProcessOf(r).pid) +
                               " is gone), so init cannot finish",
                           Rank{r});
  }
  return Status::Ok();
}

Status ShmJob::AwaitAll(Milestone wanted, const Patience& patience, ProcessWatch* watch) const {
  std::atomic<uint32_t>* bell = &Page(identity.rank)->bells[0];
  const Time begin = MonotonicNow();
  const char* what =
      wanted.presence == Presence::kLeft ? "shut down its earlier runtime" : "call init";
  bool warned = patience.log == nullptr;
  for (Time next_look = begin;;) {
    std::vector<int32_t> missing;
    for (int32_t r = 0; r < identity.size; ++r)
      if (Shown(r) < Presented(wanted.incarnation, wanted.presence)) missing.push_back(r);
    const Time now = MonotonicNow();
    if (missing.empty() || now >= next_look) {
      next_look = now + kLookInterval;
      RETURN_IF_ERROR(LookForLosses(wanted, watch));
    }
    if (missing.empty()) return Status::Ok();
    if (now - begin >= patience.timeout_ns)
      return Status::Timeout(RankList(missing) + " did not " + what + " within " +
                             Seconds(patience.timeout_ns) +
                             " (COVEY_START_TIMEOUT); did it crash, or is it still loading?");
    if (!warned && now - begin >= patience.warn_after_ns) {
      warned = true;
      patience.log->Write(LogLevel::kWarn, "init: waiting for " + Seconds(now - begin) + " for " +
                                               RankList(missing) + " to " + what);
    }
    FutexWait(bell, bell->load(), kMillisecond);
  }
}

Status ShmJob::Join(const Patience& patience, ProcessWatch* watch) {
  RankPage* own = Page(identity.rank);
  const auto before = static_cast<uint32_t>(own->presence.load() >> 32);
  if (before > 0) RETURN_IF_ERROR(AwaitAll({Presence::kLeft, before}, patience, watch));
  incarnation = before + 1;
  for (int32_t r = 0; r < identity.size; ++r) {
    MailRing* mailbox = MailboxOf(identity.rank, Rank{r});
    mailbox->head.store(0);
    mailbox->tail.store(0);
  }
  own->parked.store(0);
  own->parked_for_ticks.store(0);
  own->mail.store(0);
  own->heap_begin.store(0);
  if (before > 0) arena->DropPages();
  const ProcessId process = OwnProcess();
  own->pid.store(process.pid);
  own->pid_namespace.store(process.name_space);
  own->probe_address.store(reinterpret_cast<uint64_t>(&kProbe));
  own->presence.store(Presented(incarnation, Presence::kJoined), std::memory_order_release);
  Status joined = AwaitAll({Presence::kJoined, incarnation}, patience, watch);
  if (!joined.ok()) ShowAs(Presence::kGaveUp);
  return joined;
}

void ShmJob::Leave() { ShowAs(Presence::kLeft); }

void ShmJob::ShowAs(Presence presence) {
  RankPage* own = Page(identity.rank);
  own->heap_begin.store(arena->NextHeapBegin());
  own->left_at.store(MonotonicNow());
  own->presence.store(Presented(incarnation, presence));  // seq_cst: before looking who is parked
}

}  // namespace covey
