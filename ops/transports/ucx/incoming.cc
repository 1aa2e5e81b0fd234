#include "ops/transports/ucx/incoming.h"

#include <cstring>
#include <utility>

namespace covey::ucx {

// Null: the number has come before or is out of reach, or the bytes do not fit.
Incoming::Arrival* Incoming::Place(const Packet& packet, size_t length) {
  const bool fits = packet.kind == Kind::kPut ? packet.offset <= memory_length_ &&
                                                    length <= memory_length_ - packet.offset
                                              : length <= kMostMessage;
  if (!fits || packet.number < next_ || packet.number - next_ >= kMostAhead) return nullptr;
  const size_t index = packet.number - next_;
  while (arrivals_.size() <= index) arrivals_.emplace_back();  // moves no arrival
  Arrival& arrival = arrivals_[index];
  if (arrival.stage != Arrival::Stage::kMissing) return nullptr;
  arrival.packet = packet;
  arrival.length = length;
  arrival.of = this;
  return &arrival;
}

std::byte* Incoming::Target(Arrival* arrival) {
  if (arrival->packet.kind == Kind::kPut) return memory_ + arrival->packet.offset;
  arrival->body.resize(arrival->length);
  return arrival->body.data();
}

bool Incoming::Take(const Packet& packet, const void* data, size_t length) {
  Arrival* arrival = Place(packet, length);
  if (arrival == nullptr) return false;
  if (length > 0) std::memcpy(Target(arrival), data, length);
  arrival->stage = Arrival::Stage::kWhole;
  return true;
}

bool Incoming::Announce(const Packet& packet, void* descriptor, size_t length) {
  Arrival* arrival = Place(packet, length);
  if (arrival == nullptr) return false;
  arrival->announced = descriptor;
  arrival->stage = Arrival::Stage::kAnnounced;
  announced_.push_back(arrival);
  return true;
}

bool Incoming::Begin(ucp_worker_h worker) {
  for (Arrival* arrival : std::exchange(announced_, {})) {
    ucp_request_param_t how{};
    how.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    how.cb.recv_am = Received;
    how.user_data = arrival;
    how.memory_type = UCS_MEMORY_TYPE_HOST;
    const ucs_status_ptr_t begun = ucp_am_recv_data_nbx(
        worker, std::exchange(arrival->announced, nullptr), Target(arrival), arrival->length, &how);
    if (UCS_PTR_IS_ERR(begun)) {
      has_failed_ = true;
    } else if (begun == nullptr) {
      arrival->stage = Arrival::Stage::kWhole;
    } else {
      arrival->stage = Arrival::Stage::kUnderWay;
      ++under_way_;
    }
  }
  return !has_failed_;
}

void Incoming::Received(void* request, ucs_status_t status, size_t length, void* user_data) {
  auto* arrival = static_cast<Arrival*>(user_data);
  Incoming* incoming = arrival->of;
  --incoming->under_way_;
  if (status == UCS_OK && length == arrival->length)
    arrival->stage = Arrival::Stage::kWhole;
  else
    incoming->has_failed_ = true;
  ucp_request_free(request);
}

Incoming::Arrival Incoming::Next() {
  Arrival first = std::move(arrivals_.front());
  arrivals_.pop_front();
  ++next_;
  return first;
}

void Incoming::Drop(ucp_worker_h worker) {
  for (Arrival* arrival : std::exchange(announced_, {}))
    ucp_am_data_release(worker, std::exchange(arrival->announced, nullptr));
  memory_length_ = 0;
}

}  // namespace covey::ucx
