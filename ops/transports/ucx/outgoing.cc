#include "ops/transports/ucx/outgoing.h"

#include <utility>
#include <vector>

namespace covey::ucx {

// Lives until UCX has sent it.
struct Outgoing::Parcel {
  Packet packet;
  std::vector<std::byte> copy;
  Outgoing* of;
};

ucs_status_t Outgoing::Open(ucp_worker_h worker, const void* address) {
  ucp_ep_params_t wanted{};
  wanted.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  wanted.address = static_cast<const ucp_address_t*>(address);
  wanted.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  wanted.err_handler.cb = Failed;
  wanted.err_handler.arg = this;
  failure_ = ucp_ep_create(worker, &wanted, &endpoint_);
  if (failure_ != UCS_OK) endpoint_ = nullptr;
  return failure_;
}

void Outgoing::Failed(void* self, ucp_ep_h, ucs_status_t status) {
  auto* outgoing = static_cast<Outgoing*>(self);
  if (outgoing->failure_ == UCS_OK) outgoing->failure_ = status;
}

void Outgoing::Send(Kind kind, uint64_t number, uint64_t offset, const void* data, size_t length) {
  if (failure_ != UCS_OK || endpoint_ == nullptr) return;
  auto* parcel = new Parcel{{token_, number, offset, from_, kind}, {}, this};
  const void* body = data;
  if (kind == Kind::kMessage) {
    const auto* bytes = static_cast<const std::byte*>(data);
    parcel->copy.assign(bytes, bytes + length);
    body = parcel->copy.data();
  }
  ucp_request_param_t how{};
  how.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  how.cb.send = Sent;
  how.user_data = parcel;
  how.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t begun = ucp_am_send_nbx(endpoint_, Packet::kId, &parcel->packet,
                                                 sizeof(parcel->packet), body, length, &how);
  if (UCS_PTR_IS_PTR(begun)) {
    ++open_;
    copied_ += parcel->copy.size();
    return;
  }
  if (UCS_PTR_IS_ERR(begun)) Failed(this, endpoint_, UCS_PTR_STATUS(begun));
  delete parcel;
}

void Outgoing::Sent(void* request, ucs_status_t status, void* user_data) {
  auto* parcel = static_cast<Parcel*>(user_data);
  Outgoing* outgoing = parcel->of;
  --outgoing->open_;
  outgoing->copied_ -= parcel->copy.size();
  if (status != UCS_OK) Failed(outgoing, outgoing->endpoint_, status);
  delete parcel;
  ucp_request_free(request);
}

void Outgoing::SendMessage(const void* data, size_t length) {
  Send(Kind::kMessage, ++number_, 0, data, length);
}

void Outgoing::SendPut(uint64_t offset, const void* data, size_t length) {
  Send(Kind::kPut, ++number_, offset, data, length);
}

void Outgoing::SendFence() {
  fence_ = ++number_;
  Send(Kind::kFence, fence_, 0, nullptr, 0);
}

void Outgoing::SendAnswer(uint64_t number) { Send(Kind::kAnswer, number, 0, nullptr, 0); }

void Outgoing::Close() {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  how.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t begun = ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &how);
  if (UCS_PTR_IS_PTR(begun)) ending_ = begun;
}

void Outgoing::StepClose() {
  if (ending_ == nullptr || ucp_request_check_status(ending_) == UCS_INPROGRESS) return;
  ucp_request_free(std::exchange(ending_, nullptr));
}

}  // namespace covey::ucx
