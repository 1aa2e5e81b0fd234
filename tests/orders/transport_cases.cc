#include <unistd.h>

#include <array>
#include <cstring>

#include "core/transport/seqlock.h"
#include "ops/transports/shm.h"
#include "ops/transports/shm_words.h"
#include "tests/orders/cases.h"

namespace covey {
namespace {

constexpr size_t kCells = 4;  // of 8 bytes: a window

// An owner changes a window twice; a reader looks twice. A whole copy is of one version, and is the
// version that the look names.
class WindowCase final : public OrdersCase {
 public:
  int threads() const override { return 2; }

  void Begin(Execution* execution) override {
    execution_ = execution;
    mappings_ = std::make_unique<Mappings>(execution, threads(), kWindow + kBytes);
    execution->Watch(kWindow, kBytes);
    const SeqLock::Span span{.offset = kWindow, .length_bytes = kBytes};
    SeqLock lock = Lock(threads());
    lock.Open({&span, 1});
    Change(&lock, threads(), 1);
  }

  void Run(int thread) override {
    SeqLock lock = Lock(thread);
    if (thread == 0)
      for (uint64_t version = 2; version <= 3; ++version) Change(&lock, thread, version);
    else
      for (int look = 0; look < 2; ++look) Look(lock, thread);
  }

 private:
  static constexpr size_t kWindow = 64;
  static constexpr size_t kBytes = kCells * sizeof(uint64_t);

  SeqLock Lock(int thread) { return {reinterpret_cast<uint64_t*>((*mappings_)[thread]), &words_}; }

  void Change(SeqLock* lock, int thread, uint64_t version) {
    lock->BeginChange();
    auto* cells = reinterpret_cast<uint64_t*>((*mappings_)[thread] + kWindow);
    for (size_t i = 0; i < kCells; ++i) cells[i] = version;
    lock->EndChange(version);
  }

  void Look(const SeqLock& lock, int thread) {
    uint64_t copy[kCells] = {};
    void* const to[] = {copy};
    const uint64_t lengths[] = {kBytes};
    uint64_t version = 0;
    if (lock.Peek((*mappings_)[thread], to, lengths, &version) != SeqLock::Found::kWhole) return;
    for (const uint64_t cell : copy)
      execution_->Expect(cell == version, "transport-L1: a whole copy of version " +
                                              std::to_string(version) + " has bytes of " +
                                              std::to_string(cell));
    execution_->Expect(version >= seen_, "transport-L2: a window goes back");
    seen_ = version;
  }

  Execution* execution_ = nullptr;
  std::unique_ptr<Mappings> mappings_;
  ShmWords words_;
  uint64_t seen_ = 0;
};

// Ranks 0 and 1 of a job of shared memory, which each have a mapping of their own.
class JobCase : public OrdersCase {
 public:
  int threads() const override { return kRanks; }

  void Begin(Execution* execution) override {
    execution_ = execution;
    std::vector<std::byte*> mappings;
    for (const int thread : {0, 1, 2}) {
      ShmJob job;
      const ShmJob::Identity identity{.rank = Rank{thread % kRanks}, .size = kRanks};
      execution->Expect(ShmJob::Open(Memory(thread), identity, &job).ok(), "no memory");
      mappings.push_back(job.arena->base());
      ranks_[static_cast<size_t>(thread)] = std::make_unique<ShmTransport>(job, nullptr);
      mailbox_ = reinterpret_cast<std::byte*>(job.MailboxOf(Rank{0}, Rank{1})) - mappings.back();
      page_ = reinterpret_cast<std::byte*>(job.Page(Rank{0})) - mappings.back();
      length_bytes_ = kPageBytes + job.region_bytes * kRanks;
    }
    execution->Share(mappings, length_bytes_);
    execution->Watch(static_cast<size_t>(mailbox_) + offsetof(MailRing, bytes), kMailBytes);
    execution->Watch(static_cast<size_t>(page_) + kData, kDataBytes);
  }

 protected:
  static constexpr int kRanks = 2;
  static constexpr size_t kMailBytes = 64;
  // Behind the words of a page, which are all of it that is used.
  static constexpr size_t kData = 2048, kDataBytes = 32, kTick = kData + 64;

  ShmTransport& rank(int thread) { return *ranks_[static_cast<size_t>(thread)]; }
  // Of rank 0, as `thread` has it mapped.
  uint64_t* InPage(int thread, size_t offset) {
    return reinterpret_cast<uint64_t*>(rank(thread).Base(Rank{0}) + offset);
  }

  Execution* execution_ = nullptr;

 private:
  // As many jobs as mappings; they last as long as the process.
  static int Memory(int thread) {
    static const std::array<int, kRanks + 1> all = [] {
      std::array<int, kRanks + 1> fds{};
      for (int& fd : fds) (void)ShmJob::Create(kRanks, kPageBytes, &fd).ok();
      return fds;
    }();
    return all[static_cast<size_t>(thread)];
  }

  std::unique_ptr<ShmTransport> ranks_[kRanks + 1];
  std::ptrdiff_t mailbox_ = 0, page_ = 0;
  size_t length_bytes_ = 0;
};

// Rank 1 sends two messages; rank 0 sleeps as the engine thread does, until it has both. They come
// whole and in order (transport-T1), and no wake-up is lost (transport-T3).
class MailCase final : public JobCase {
 public:
  void Run(int thread) override {
    ShmTransport& transport = rank(thread);
    if (thread == 1) {
      for (uint64_t number = 1; number <= kMessages; ++number) {
        const std::vector<uint64_t> content(number, number);
        const auto bytes = std::as_bytes(std::span(content));
        execution_->Expect(transport.TrySend(Rank{0}, bytes), "a mailbox is full");
      }
      return;
    }
    for (uint64_t number = 1; number <= kMessages; ++number) Receive(&transport, number);
  }

 private:
  static constexpr uint64_t kMessages = 2;

  void Receive(ShmTransport* transport, uint64_t number) {
    Rank from{};
    Bytes message;
    while (!transport->TryReceive(&from, &message)) {
      const uint32_t ticket = transport->Ticket(Parking::Sleeper::kEngine);
      transport->SetParked(Parking::Sleeper::kEngine);
      if (!transport->HasMail()) transport->Park(Parking::Sleeper::kEngine, ticket, kNever);
      transport->SetParked(Parking::Sleeper::kNobody);
    }
    const std::vector<uint64_t> expected(number, number);
    const auto bytes = std::as_bytes(std::span(expected));
    execution_->Expect(std::equal(message.begin(), message.end(), bytes.begin(), bytes.end()),
                       "transport-T1: message " + std::to_string(number) + " is not whole");
  }
};

// Rank 1 writes bytes, raises a tick and wakes rank 0, which sleeps as a waiter does: it sees the
// bytes (transport-T2), and no wake-up is lost (transport-T3).
class TickCase final : public JobCase {
 public:
  void Run(int thread) override {
    ShmTransport& transport = rank(thread);
    uint64_t* tick = InPage(thread, kTick);
    uint64_t* data = InPage(thread, kData);
    if (thread == 1) {
      for (size_t i = 0; i < kDataBytes / sizeof(uint64_t); ++i) data[i] = kContent;
      transport.StoreRelease(tick, 1);
      const Rank peers[] = {Rank{0}};
      return transport.Wake(peers);
    }
    while (transport.LoadAcquire(tick) == 0) {
      const uint32_t ticket = transport.Ticket(Parking::Sleeper::kWaiter);
      transport.SetParked(Parking::Sleeper::kWaiter);
      if (transport.LoadAcquire(tick) == 0)
        transport.Park(Parking::Sleeper::kWaiter, ticket, kNever);
      transport.SetParked(Parking::Sleeper::kNobody);
    }
    for (size_t i = 0; i < kDataBytes / sizeof(uint64_t); ++i)
      execution_->Expect(data[i] == kContent, "transport-T2: bytes come after their tick");
  }

 private:
  static constexpr uint64_t kContent = 7;
};

template <typename Case>
std::unique_ptr<OrdersCase> Make() {
  return std::make_unique<Case>();
}

}  // namespace

std::vector<NamedCase> TransportCases() {
  const OrdersBounds bounds{.deviations = 3, .most_searched = 20000, .drawn = 3000};
  return {{"window", Make<WindowCase>, bounds},
          {"mail", Make<MailCase>, bounds},
          {"tick", Make<TickCase>, bounds}};
}

}  // namespace covey
