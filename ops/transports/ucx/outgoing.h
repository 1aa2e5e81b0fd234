// The way to one peer: an endpoint of UCX and the sends under way on it.
//
//   closed -> open -> failed: what is sent afterwards goes nowhere
//
// A message is copied, a put is sent from where it lies.
//
// One thread at a time; outlives the worker's last progress.
#ifndef COVEY_OPS_TRANSPORTS_UCX_OUTGOING_H_
#define COVEY_OPS_TRANSPORTS_UCX_OUTGOING_H_

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>

#include "ops/transports/ucx/packet.h"

namespace covey::ucx {

class Outgoing {
 public:
  static constexpr int kMostOpen = 256;
  static constexpr size_t kMostCopied = size_t{4} << 20;  // or one message of any length

  // `address` is the peer's worker's. UCS_OK, or why not.
  ucs_status_t Open(ucp_worker_h worker, const void* address);
  bool is_open() const { return endpoint_ != nullptr; }
  // The sender of all packets.
  void Sign(int32_t from, uint64_t token) {
    from_ = from;
    token_ = token;
  }

  bool HasRoom() const { return open_ < kMostOpen && (open_ == 0 || copied_ < kMostCopied); }
  // REQUIRES: is_open, HasRoom.
  void SendMessage(const void* data, size_t length);
  void SendPut(uint64_t offset, const void* data, size_t length);
  void SendFence();
  void SendAnswer(uint64_t number);

  // The peer has answered a fence.
  void Answered(uint64_t number) { answered_ = number > answered_ ? number : answered_; }
  bool needs_fence() const { return number_ > fence_; }
  bool is_answered() const { return answered_ >= number_; }

  ucs_status_t failure() const { return failure_; }  // UCS_OK: none
  // Begins to end the endpoint; StepClose goes on. Once is_closed no memory of a put is read.
  void Close();
  void StepClose();
  bool is_closed() const { return endpoint_ == nullptr && ending_ == nullptr && open_ == 0; }

 private:
  struct Parcel;
  void Send(Kind kind, uint64_t number, uint64_t offset, const void* data, size_t length);
  static void Sent(void* request, ucs_status_t status, void* parcel);
  static void Failed(void* self, ucp_ep_h endpoint, ucs_status_t status);

  ucp_ep_h endpoint_ = nullptr;
  void* ending_ = nullptr;  // UCX's request
  ucs_status_t failure_ = UCS_OK;
  int32_t from_ = -1;
  uint64_t token_ = 0;
  uint64_t number_ = 0;    // of the last numbered packet
  uint64_t fence_ = 0;     // number of the last fence
  uint64_t answered_ = 0;  // number of the last fence that was answered
  int open_ = 0;
  size_t copied_ = 0;
};

}  // namespace covey::ucx
#endif  // COVEY_OPS_TRANSPORTS_UCX_OUTGOING_H_
