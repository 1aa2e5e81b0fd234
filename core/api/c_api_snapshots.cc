// The C API over the snapshots of core/partial/rounds_port.h: checks, translates, and finds room.
#include <vector>

#include "core/api/c_api_rounds.h"
#include "core/api/session.h"

namespace covey {
namespace {

void Free(const Use& use, uint64_t offset) {
  if (offset != Transport::kNoOffset) use->FreeBlock(offset);
}

Status Serve(RoundsPort* port, int64_t version, int64_t applied, Time deadline,
             covey_round_event* event) {
  if (event == nullptr || applied < 0 || version < COVEY_ROUNDS_MEET)
    return Status::InvalidArgument("event is NULL, or version or applied is negative");
  RoundsPort::Event what = RoundsPort::Event::kDone;
  const auto known = static_cast<uint64_t>(applied);
  Status status;
  if (version == COVEY_ROUNDS_FINISH)
    status = port->FinishServing(known, deadline, &what);
  else if (version == COVEY_ROUNDS_MEET)
    status = port->MeetServing(known, deadline, &what);
  else
    status = port->WaitServing(static_cast<uint64_t>(version), known, deadline, &what);
  *event = static_cast<covey_round_event>(what);
  return status;
}

Status Give(const Use& use, RoundsPort* port, int64_t applied,
            std::span<const Snapshots::Part> parts) {
  uint64_t length_bytes = 0;
  for (const Snapshots::Part& part : parts) length_bytes += part.length_bytes;
  if (applied < 1 || length_bytes == 0)
    return Status::InvalidArgument("a snapshot is of version 1 or later and not empty");
  // The old one stays until the new one stands: a peer may be reading it.
  const uint64_t offset =
      port->GivesInBlocks() ? use->AllocBlock(length_bytes) : Transport::kNoOffset;
  uint64_t unused = Transport::kNoOffset;
  port->Give(static_cast<uint64_t>(applied), offset, parts, &unused);
  Free(use, unused);
  return Status::Ok();
}

Status Seek(RoundsPort* port, int64_t applied, Time deadline, covey_snapshot* snapshot) {
  if (snapshot == nullptr || snapshot->struct_size != sizeof(*snapshot) || applied < 0)
    return Status::InvalidArgument(
        "snapshot is NULL, struct_size is not that of covey_snapshot, or applied is negative");
  Offer offer;
  RETURN_IF_ERROR(port->Seek(static_cast<uint64_t>(applied), deadline, &offer));
  snapshot->rank = -1;
  if (offer.member < 0) return Status::Ok();
  snapshot->rank = ToInt(port->group().members[static_cast<size_t>(offer.member)]);
  snapshot->version = static_cast<int64_t>(offer.version);
  snapshot->length_bytes = static_cast<int64_t>(offer.length_bytes);
  snapshot->place[0] = static_cast<uint64_t>(offer.member);
  snapshot->place[1] = offer.distance;
  return Status::Ok();
}

Status Take(RoundsPort* port, const covey_snapshot* snapshot, void* to, int32_t* taken) {
  if (snapshot == nullptr || snapshot->struct_size != sizeof(*snapshot) || to == nullptr ||
      taken == nullptr || snapshot->rank < 0 || snapshot->place[0] >= port->group().members.size())
    return Status::InvalidArgument(
        "snapshot is none that covey_rounds_seek has given, or an "
        "address is NULL");
  const Offer offer{.member = static_cast<int32_t>(snapshot->place[0]),
                    .version = static_cast<uint64_t>(snapshot->version),
                    .distance = snapshot->place[1],
                    .length_bytes = static_cast<uint64_t>(snapshot->length_bytes)};
  *taken = port->Take(offer, static_cast<std::byte*>(to)) ? 1 : 0;
  return Status::Ok();
}

}  // namespace
}  // namespace covey

using covey::OrDefault;
using covey::Report;
using covey::RoundsPort;
using covey::Status;
using covey::Use;

extern "C" {

covey_code covey_rounds_serve(covey_runtime* runtime, covey_rounds rounds, int64_t version,
                              int64_t applied, int64_t timeout_ns, covey_round_event* event,
                              covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  const covey::Time deadline = covey::DeadlineOf(timeout_ns);
  return Report(covey::Serve(port, version, applied, deadline, event), error);
}

int32_t covey_rounds_asked(covey_runtime* runtime, covey_rounds rounds, int64_t applied) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr || applied < 1) return 0;
  uint64_t unused = covey::Transport::kNoOffset;
  const bool is_asked = port->IsAsked(static_cast<uint64_t>(applied), &unused);
  covey::Free(use, unused);
  return is_asked ? 1 : 0;
}

covey_code covey_rounds_give(covey_runtime* runtime, covey_rounds rounds, int64_t applied,
                             const void* const* parts, const int64_t* lengths, int32_t num_parts,
                             covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  if (num_parts > 0 && (parts == nullptr || lengths == nullptr))
    return Report(Status::InvalidArgument("snapshot: parts or lengths is NULL"), error);
  std::vector<covey::Snapshots::Part> all;
  for (int32_t i = 0; i < num_parts; ++i)
    all.push_back({static_cast<const std::byte*>(parts[i]),
                   static_cast<size_t>(lengths[i] < 0 ? 0 : lengths[i])});
  return Report(covey::Give(use, port, applied, all), error);
}

covey_code covey_rounds_seek(covey_runtime* runtime, covey_rounds rounds, int64_t applied,
                             int64_t timeout_ns, covey_snapshot* snapshot, covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  const covey::Time deadline = covey::DeadlineOf(timeout_ns);
  return Report(covey::Seek(port, applied, deadline, snapshot), error);
}

covey_code covey_rounds_take(covey_runtime* runtime, covey_rounds rounds,
                             const covey_snapshot* snapshot, void* to, int32_t* taken,
                             covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  return Report(covey::Take(port, snapshot, to, taken), error);
}

}  // extern "C"
