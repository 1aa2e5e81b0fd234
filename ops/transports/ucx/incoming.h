// The packets of one peer, in order: short packets are copied on arrival, long ones announce
// themselves and are received where they go.
//
// A packet is ready once it and all before it are there.
//
// One thread at a time; outlives the worker's last progress.
#ifndef COVEY_OPS_TRANSPORTS_UCX_INCOMING_H_
#define COVEY_OPS_TRANSPORTS_UCX_INCOMING_H_

#include <ucp/api/ucp.h>

#include <cstddef>
#include <deque>
#include <vector>

#include "ops/transports/ucx/packet.h"

namespace covey::ucx {

class Incoming {
 public:
  static constexpr size_t kMostMessage = size_t{1} << 30;
  static constexpr size_t kMostAhead = size_t{1} << 20;  // packets before one that is missing

  struct Arrival {
    enum class Stage { kMissing, kAnnounced, kUnderWay, kWhole };
    Stage stage = Stage::kMissing;
    Packet packet{};
    std::vector<std::byte> body;  // of a message
    size_t length = 0;
    void* announced = nullptr;  // UCX's descriptor
    Incoming* of = nullptr;
  };

  void Land(std::byte* memory, size_t length) {
    memory_ = memory;
    memory_length_ = length;
  }
  // A packet that is here in full. False: no rank sends this.
  bool Take(const Packet& packet, const void* data, size_t length);
  // A packet whose `length` bytes are to be asked for. False: likewise.
  bool Announce(const Packet& packet, void* descriptor, size_t length);
  // Asks for what has been announced. False: UCX refuses.
  bool Begin(ucp_worker_h worker);

  bool IsReady() const {
    return !arrivals_.empty() && arrivals_.front().stage == Arrival::Stage::kWhole;
  }
  // REQUIRES: IsReady.
  Arrival Next();

  // Nothing more is received; what has been announced is let go.
  void Drop(ucp_worker_h worker);
  // Receives that UCX has not ended: their memory may still be written.
  int under_way() const { return under_way_; }
  bool has_failed() const { return has_failed_; }

 private:
  Arrival* Place(const Packet& packet, size_t length);
  std::byte* Target(Arrival* arrival);
  static void Received(void* request, ucs_status_t status, size_t length, void* arrival);

  std::byte* memory_ = nullptr;
  size_t memory_length_ = 0;
  uint64_t next_ = 1;             // the number of the first of arrivals_
  std::deque<Arrival> arrivals_;  // by number
  std::vector<Arrival*> announced_;
  int under_way_ = 0;
  bool has_failed_ = false;
};

}  // namespace covey::ucx
#endif  // COVEY_OPS_TRANSPORTS_UCX_INCOMING_H_
