#include "core/partial/shared_port.h"

#include <algorithm>
#include <utility>

namespace covey {

SharedPort::SharedPort(Bundle bundle, const Group* group, Transport* transport)
    : RoundsPort(std::move(bundle), group), transport_(transport), words_(transport->words()) {}

std::vector<size_t> SharedPort::MemberBytes() const {
  std::vector<size_t> lengths;
  for (int32_t i = 0; i < memory_.size(); ++i) lengths.push_back(memory_.BlockBytes(i));
  return lengths;
}

void SharedPort::Open(const std::vector<uint64_t>& places) {
  std::vector<std::byte*> blocks;
  for (size_t i = 0; i < places.size(); ++i)
    blocks.push_back(transport_->Base(group_->members[i]) + places[i]);
  offset_ = places[static_cast<size_t>(bundle_.options.self)];
  memory_.Map(std::move(blocks));
  rounds_ = std::make_unique<Rounds>(bundle_.options, &memory_, words_);
}

void SharedPort::RegisterOutput(std::span<void* const> to) {
  const std::lock_guard lock(mutex_);
  rounds_->RegisterOutput(to);
}

Status SharedPort::Hold(uint64_t version, std::vector<std::byte*>* spans, size_t* written) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(NotMade(version));
  const std::byte* result = memory_.Result(0);
  size_t length_bytes = 0;
  if (version == 0) {
    rounds_->Release();
  } else {
    if (rounds_->Hold(version, &result) != Found::kYes) return Gone(version);
    length_bytes = memory_.result_bytes();
  }
  std::byte* own = transport_->PrivateOf(result, length_bytes, written);
  if (own == nullptr) {
    rounds_->Release();
    return Status::Unsupported(
        "results cannot be read in place: this system has no private view of shared memory that "
        "tells what was written");
  }
  if (version == 0) return Status::Ok();
  for (const size_t offset : memory_.layout().offsets_bytes())
    spans->push_back(own + memory_.record_bytes() + offset);
  return Status::Ok();
}

Status SharedPort::Retract(const std::byte** content) {
  const std::lock_guard lock(mutex_);
  *content = rounds_->Retract();
  return Status::Ok();
}

Status SharedPort::Merge(uint64_t version, std::span<void* const> to, Merged* merged) {
  const std::lock_guard lock(mutex_);
  const std::string what = "version " + std::to_string(version) + " of '" + bundle_.name + "'";
  if (rounds_->step() == 0 && rounds_->epoch_end().settled() == 0)
    return Status::InvalidArgument("merging with " + what + ": this rank has published no model");
  if (version < 1 || version > rounds_->executed())
    return Status::InvalidArgument(what + " has not been made yet: wait for it first");
  rounds_->Merge(version, to, merged);
  return Status::Ok();
}

Status SharedPort::Begin() {
  const std::lock_guard lock(mutex_);
  rounds_->Begin();
  return Status::Ok();
}

uint64_t SharedPort::OfferAgain(std::span<const double> hypers) {
  const std::lock_guard lock(mutex_);
  return rounds_->OfferAgain(hypers);
}

Status SharedPort::Peek(int32_t member, std::span<void* const> to, Seen* seen) {
  const std::lock_guard lock(mutex_);
  seen->whole = rounds_->Peek(member, to, &seen->step);
  seen->superseded =
      seen->step > 0 && memory_.models().HasSuperseded(seen->step, rounds_->executed());
  return Status::Ok();
}

Status SharedPort::DriveOn(const Done& done, Time deadline) {
  return WaitFor([&](Time now) { return Pass(done, now); }, deadline);
}

Status SharedPort::WaitFor(const Look& look, Time deadline) {
  return WaitForEvent(words_, memory_.EventCountAt(), bundle_.waiting, clock_, stop_, deadline,
                      look);
}

Looked SharedPort::Pass(const Done& done, Time now) {
  Looked looked;
  const std::lock_guard lock(mutex_);
  if (!done()) {
    HearOfLosses();
    looked.until = rounds_->Advance(now, &looked.moved);
    if (!done()) return looked;
  }
  looked.end = Status::Ok();
  return looked;
}

bool SharedPort::IsAsked(uint64_t applied, uint64_t* unused) {
  const std::lock_guard lock(mutex_);
  *unused = Transport::kNoOffset;
  if (rounds_->snapshots().IsStale(applied)) {
    rounds_->snapshots().Retract();
    std::swap(*unused, snapshot_offset_);
  }
  return rounds_->IsAsked(applied, clock_->Now());
}

void SharedPort::Give(uint64_t version, uint64_t offset, std::span<const Snapshots::Part> parts,
                      uint64_t* unused) {
  const std::lock_guard lock(mutex_);
  const bool has_room = offset != Transport::kNoOffset;
  std::byte* region = transport_->Base(transport_->rank());
  rounds_->snapshots().Give(version, has_room ? region + offset : nullptr, parts);
  *unused = std::exchange(snapshot_offset_, offset);
}

bool SharedPort::Take(const Offer& offer, std::byte* to) {
  const std::lock_guard lock(mutex_);
  if (!rounds_->snapshots().Take(offer, to)) return false;
  rounds_->OnSnapshot(offer.version);
  ++counters_.snapshots;
  return true;
}

void SharedPort::HearOfLosses() {
  for (size_t i = 0; i < group_->members.size(); ++i)
    if (transport_->IsLost(group_->members[i])) rounds_->OnLoss(static_cast<int32_t>(i));
}

Offer SharedPort::FindOffer(uint64_t applied) {
  return rounds_->snapshots().Find(applied, rounds_->executed());
}

void SharedPort::Interrupt() {
  stop_.store(true);
  words_->Ring(memory_.EventCountAt());
}

bool SharedPort::CanBeFreed() {
  const std::lock_guard lock(mutex_);
  HearOfLosses();
  return rounds_->epoch_end().HaveAllLeft();
}

std::vector<uint64_t> SharedPort::Blocks() const {
  std::vector<uint64_t> blocks{offset_};
  if (snapshot_offset_ != Transport::kNoOffset) blocks.push_back(snapshot_offset_);
  return blocks;
}

}  // namespace covey
