// The C API over core/partial/rounds_port.h: checks and translates.
#include <algorithm>

#include "core/api/c_api_rounds.h"
#include "core/api/session.h"

namespace covey {
namespace {

Status Read(RoundsPort* port, int64_t version, void* const* spans, covey_round_record* record) {
  if (record != nullptr && record->struct_size != sizeof(*record))
    return Status::InvalidArgument("struct_size is not that of covey_round_record");
  if (spans != nullptr && port->has_models())
    return Status::InvalidArgument(
        "a version of models has a mean for each group: covey_rounds_merge, not covey_rounds_read");
  RoundRecord known;
  const size_t count = spans == nullptr ? 0 : port->layout().offsets_bytes().size();
  const auto wanted = static_cast<uint64_t>(std::max<int64_t>(version, 0));
  RETURN_IF_ERROR(port->Read(wanted, {spans, count}, &known));
  if (record == nullptr) return Status::Ok();
  const auto& members = port->group().members;
  record->version = version;
  record->divisor = known.header.divisor;
  record->leader =
      known.header.leader < 0 ? -1 : ToInt(members[static_cast<size_t>(known.header.leader)]);
  for (size_t i = 0; i < members.size(); ++i) {
    const Contribution& contribution = known.contributions[i];
    if (record->first != nullptr) record->first[i] = static_cast<int64_t>(contribution.first);
    if (record->count != nullptr) record->count[i] = static_cast<int64_t>(contribution.count);
    if (record->last != nullptr) record->last[i] = static_cast<int64_t>(contribution.last);
    if (record->overdue != nullptr) record->overdue[i] = static_cast<int64_t>(known.missing[i]);
  }
  if (record->hypers != nullptr) {
    known.hypers.resize(port->hypers());
    std::copy(known.hypers.begin(), known.hypers.end(), record->hypers);
  }
  return Status::Ok();
}

Status HoldAt(RoundsPort* port, int64_t version, void** spans, int64_t* written_pages) {
  if (port->has_models()) return Status::InvalidArgument("covey_rounds_hold is for gradients");
  if (version < 0 || (version > 0 && spans == nullptr))
    return Status::InvalidArgument("rounds: spans is NULL, or the version negative");
  std::vector<std::byte*> addresses;
  size_t written = 0;
  RETURN_IF_ERROR(port->Hold(static_cast<uint64_t>(version), &addresses, &written));
  if (version > 0) std::copy(addresses.begin(), addresses.end(), spans);
  if (written_pages != nullptr) *written_pages = static_cast<int64_t>(written);
  return Status::Ok();
}

Status MergeModels(RoundsPort* port, int64_t version, void* const* spans,
                   covey_round_merge* merge) {
  if (merge != nullptr && merge->struct_size != sizeof(*merge))
    return Status::InvalidArgument("struct_size is not that of covey_round_merge");
  if (!port->has_models() || spans == nullptr)
    return Status::InvalidArgument(
        "spans is NULL, or these rounds are of gradients: covey_rounds_read");
  Merged merged;
  RETURN_IF_ERROR(port->Merge(static_cast<uint64_t>(std::max<int64_t>(version, 0)),
                              {spans, port->layout().offsets_bytes().size()}, &merged));
  if (merge == nullptr) return Status::Ok();
  merge->version = static_cast<int64_t>(merged.version);
  merge->count = merged.count;
  merge->late = merged.late ? 1 : 0;
  merge->step = static_cast<int64_t>(merged.step);
  merge->of_all = merged.of_all ? 1 : 0;
  merge->kept = merged.kept ? 1 : 0;
  return Status::Ok();
}

Status LookAt(RoundsPort* port, int32_t rank, void* const* spans, covey_round_look* look) {
  if (look == nullptr || look->struct_size != sizeof(*look))
    return Status::InvalidArgument("look is NULL, or struct_size is not that of covey_round_look");
  if (!port->has_models() || spans == nullptr)
    return Status::InvalidArgument("spans is NULL, or these rounds are of gradients");
  const auto& members = port->group().members;
  const auto found = std::find(members.begin(), members.end(), Rank{rank});
  if (found == members.end())
    return Status::InvalidArgument("rounds: rank " + std::to_string(rank) +
                                   " is not a member of their group");
  RoundsPort::Seen seen;
  RETURN_IF_ERROR(port->Peek(static_cast<int32_t>(found - members.begin()),
                             {spans, port->layout().offsets_bytes().size()}, &seen));
  look->whole = seen.whole ? 1 : 0;
  look->step = static_cast<int64_t>(seen.step);
  look->passed_by = seen.superseded ? 1 : 0;
  return Status::Ok();
}

}  // namespace

RoundsPort* Find(const Use& use, covey_rounds number) {
  return use.get() == nullptr ? nullptr : use->rounds().Find(number);
}
}  // namespace covey

using covey::OrDefault;
using covey::Report;
using covey::RoundsPort;
using covey::Status;
using covey::Use;

extern "C" {

covey_code covey_rounds_spans(covey_runtime* runtime, covey_rounds rounds, void** spans,
                              covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  if (spans == nullptr) return Report(Status::InvalidArgument("rounds: spans is NULL"), error);
  std::byte* open = port->open();
  const std::vector<size_t>& offsets = port->layout().offsets_bytes();
  for (size_t i = 0; i < offsets.size(); ++i) spans[i] = open + offsets[i];
  return COVEY_OK;
}

covey_code covey_rounds_publish(covey_runtime* runtime, covey_rounds rounds, const double* hypers,
                                int64_t* step, covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  if (hypers == nullptr && port->hypers() > 0)
    return Report(Status::InvalidArgument("hypers is NULL, but they were agreed"), error);
  const uint64_t published = port->Publish({hypers, port->hypers()});
  if (step != nullptr) *step = static_cast<int64_t>(published);
  return COVEY_OK;
}

covey_code covey_rounds_skip(covey_runtime* runtime, covey_rounds rounds, int64_t* step,
                             covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  if (port->has_models())
    return Report(Status::InvalidArgument("models: publish the last one again instead"), error);
  const uint64_t skipped = port->Skip();
  if (step != nullptr) *step = static_cast<int64_t>(skipped);
  return COVEY_OK;
}

covey_code covey_rounds_wait(covey_runtime* runtime, covey_rounds rounds, int64_t version,
                             int64_t timeout_ns, covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  if (version <= 0) return COVEY_OK;
  return Report(port->Wait(static_cast<uint64_t>(version), covey::DeadlineOf(timeout_ns)), error);
}

int64_t covey_rounds_executed(covey_runtime* runtime, covey_rounds rounds) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  return port == nullptr ? -1 : static_cast<int64_t>(port->executed());
}

covey_code covey_rounds_expect(covey_runtime* runtime, covey_rounds rounds, void* const* spans,
                               covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  if (port->has_models())
    return Report(Status::InvalidArgument("covey_rounds_expect is for gradients"), error);
  port->RegisterOutput({spans, spans == nullptr ? 0 : port->layout().offsets_bytes().size()});
  return COVEY_OK;
}

covey_code covey_rounds_read(covey_runtime* runtime, covey_rounds rounds, int64_t version,
                             void* const* spans, covey_round_record* record, covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  return Report(covey::Read(port, version, spans, record), error);
}

covey_code covey_rounds_hold(covey_runtime* runtime, covey_rounds rounds, int64_t version,
                             void** spans, int64_t* written_pages, covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  return Report(covey::HoldAt(port, version, spans, written_pages), error);
}

covey_code covey_rounds_withdraw(covey_runtime* runtime, covey_rounds rounds, const void** spans,
                                 covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  if (port->has_models())
    return Report(Status::InvalidArgument("covey_rounds_withdraw is for gradients"), error);
  if (spans == nullptr) return Report(Status::InvalidArgument("rounds: spans is NULL"), error);
  const std::byte* content = nullptr;
  const Status status = port->Retract(&content);
  const std::vector<size_t>& offsets = port->layout().offsets_bytes();
  for (size_t i = 0; i < offsets.size(); ++i)
    spans[i] = content == nullptr ? nullptr : content + offsets[i];
  return Report(status, error);
}

covey_code covey_rounds_offer_again(covey_runtime* runtime, covey_rounds rounds, int64_t* step,
                                    covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  if (!port->has_models() || step == nullptr)
    return Report(Status::InvalidArgument("covey_rounds_offer is for models; step is NULL?"),
                  error);
  *step = static_cast<int64_t>(port->OfferAgain({}));
  return COVEY_OK;
}

covey_code covey_rounds_merge(covey_runtime* runtime, covey_rounds rounds, int64_t version,
                              void* const* spans, covey_round_merge* merge, covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  return Report(covey::MergeModels(port, version, spans, merge), error);
}

covey_code covey_rounds_look(covey_runtime* runtime, covey_rounds rounds, int32_t rank,
                             void* const* spans, covey_round_look* look, covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  return Report(covey::LookAt(port, rank, spans, look), error);
}

covey_code covey_rounds_finish(covey_runtime* runtime, covey_rounds rounds, int64_t timeout_ns,
                               covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  return Report(port->Finish(covey::DeadlineOf(timeout_ns)), error);
}

covey_code covey_rounds_go_on(covey_runtime* runtime, covey_rounds rounds, covey_error* error) {
  const Use use(OrDefault(runtime));
  RoundsPort* port = covey::Find(use, rounds);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  return Report(port->GoOnWithout(), error);
}

void covey_rounds_close(covey_runtime* runtime, covey_rounds rounds) {
  const Use use(OrDefault(runtime));
  if (use.get() != nullptr) use->CloseRounds(rounds);
}

}  // extern "C"
