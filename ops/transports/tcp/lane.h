// A further connection of a pair, for parts of large puts, each way. A worker (worker.h) moves
// them, while the thread that drives the link gives parts and asks how many have landed.
//
// Bounds: kMostParcels of Stream wait. One call of the worker moves about kStep bytes each way.
#ifndef COVEY_OPS_TRANSPORTS_TCP_LANE_H_
#define COVEY_OPS_TRANSPORTS_TCP_LANE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "ops/transports/tcp/stream.h"

namespace covey::tcp {

class Lane {
 public:
  enum class End { kNone, kCut, kMalformed };

  // Parts are written into `memory`.
  Lane(std::unique_ptr<Wire> wire, std::span<std::byte> memory);

  // The link's thread. A part is read where it lies; what is given after the end goes nowhere.
  bool HasRoom();
  void Put(uint64_t offset, std::span<const std::byte> data);
  void Land(std::span<std::byte> memory);
  // Whether the first `count` parts of the peer have been written; their bytes are visible then.
  // False: the worker tells once they have.
  bool HasLanded(uint64_t count);
  End end() const { return end_.load(); }
  int error() const { return error_.load(); }  // as Stream's
  // As of Stream.
  bool IsConfirmed();
  bool IsSilent(Time lease) const { return stream_.IsSilent(lease); }

  // The worker. True: the link's thread has something to look at: what it waits for has landed,
  // there is room again, or this is the end.
  bool Send();
  bool Receive();
  int fd() const { return stream_.fd(); }
  bool HasUnsent() const { return stream_.HasUnsent(); }
  bool& watches_room() { return stream_.watches_room; }

 private:
  static constexpr size_t kStep = size_t{256} << 10;
  using Part = std::pair<uint64_t, std::span<const std::byte>>;

  Stream stream_;  // the worker's
  std::atomic<uint64_t> landed_{0};
  std::atomic<uint64_t> awaited_{0};
  std::atomic<End> end_{End::kNone};
  std::atomic<int> error_{0};

  std::mutex mutex_;             // of what follows; held for moments
  std::vector<Part> given_;      // not yet the stream's
  size_t unsent_ = 0;            // parts of the stream
  bool waits_for_room_ = false;  // the link's thread
  std::span<std::byte> memory_;
};

}  // namespace covey::tcp
#endif  // COVEY_OPS_TRANSPORTS_TCP_LANE_H_
