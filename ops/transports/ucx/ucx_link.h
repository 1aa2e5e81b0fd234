// A link (core/transport/covey_link.h) over UCX: active messages to peers whose addresses somebody
// else has exchanged, with a token for each of a pair's two directions.
//
//   unknown -> expected: its packets are taken -> connected: packets go to it -> lost
//
// Invariants:
//  1. A packet without the token that its sender was given is let go unseen: UCX does not know who
//     sends.
//  2. A peer is flushed once it has answered a fence behind all that it was sent, or has not for a
//     lease. Its UCX may hold what was sent, and would lose it with the endpoint.
//  3. Receive returns 0 only with the worker armed, or with its descriptor readable.
//
// One thread at a time. Only Drop blocks: until UCX lets go of the peer's memory, for a lease at
// most.
#ifndef COVEY_OPS_TRANSPORTS_UCX_UCX_LINK_H_
#define COVEY_OPS_TRANSPORTS_UCX_UCX_LINK_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "ops/transports/ucx/incoming.h"
#include "ops/transports/ucx/outgoing.h"
#include "ops/transports/ucx/worker.h"

namespace covey::ucx {

class UcxLink {
 public:
  struct Options {
    int32_t rank = -1;
    int32_t size = 0;
    int64_t lease_ns = 0;
  };
  // Empty: done; else one sentence.
  static std::string Open(const Options& options, const Fabric& fabric,
                          std::unique_ptr<UcxLink>* link);
  ~UcxLink();

  const Worker& worker() const { return *worker_; }

  // As of covey_link.
  void Expect(int32_t peer, uint64_t token);
  void Connect(int32_t peer, const void* address, uint64_t token);
  bool Send(int32_t to, const void* message, size_t length);
  bool Put(int32_t to, uint64_t offset, const void* data, size_t length);
  void Land(int32_t from, void* memory, size_t length);
  bool Receive(int32_t* from, const void** message, size_t* length);
  bool Flushed();
  void Drop(int32_t peer);
  bool Lost(int32_t* peer, const char** how);

 private:
  struct Peer {
    Incoming incoming;
    Outgoing outgoing;
    uint64_t token = 0;  // that its packets bear
    bool is_expected = false;
    bool is_lost = false;    // Lost has told it, or Drop was called
    bool is_listed = false;  // in ready_
    bool is_malformed = false;
    int64_t fenced = 0;  // when it was sent the last fence
  };
  // Of progress without an end to the news, in one Receive.
  static constexpr int kMostPasses = 64;

  explicit UcxLink(const Options& options);
  static ucs_status_t Arrive(void* self, const void* header, size_t header_length, void* data,
                             size_t length, const ucp_am_recv_param_t* param);
  ucs_status_t Take(const Packet& packet, void* data, size_t length, bool is_here);
  bool Progress();
  void List(int32_t peer);
  bool Next(int32_t* from, const void** message, size_t* length);

  const Options options_;
  std::vector<Peer> peers_;         // by rank; stays where it is
  std::vector<int32_t> begin_;      // peers that have announced something
  std::deque<int32_t> ready_;       // peers whose next packet is here, or under way
  std::vector<std::byte> message_;  // that Receive has given out
  std::string how_;
  std::unique_ptr<Worker> worker_;  // ends first: until then it may call peers
};

}  // namespace covey::ucx
#endif  // COVEY_OPS_TRANSPORTS_UCX_UCX_LINK_H_
