#include "core/replicated/formation.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/partial/merge.h"

namespace covey {
namespace {

RoundRecord RecordOf(const RoundMemory& geometry, const ReplicatedEntry& entry) {
  RoundRecord record;
  ReadRecord(geometry, entry.body.data(), &record);
  return record;
}

// The gaps between spans, which no contribution has, are zero; and a sum without shards.
void ClearGaps(const RoundLayout& layout, bool has_shards, std::byte* sum) {
  if (!has_shards) return static_cast<void>(std::fill_n(sum, layout.length_bytes(), std::byte{0}));
  const std::vector<size_t>& begins = layout.offsets_bytes();
  for (size_t i = 0; i < begins.size(); ++i) {
    const size_t next = i + 1 < begins.size() ? begins[i + 1] : layout.length_bytes();
    std::fill(sum + begins[i] + layout.lengths_bytes()[i], sum + next, std::byte{0});
  }
}

}  // namespace

CountedBytes EntryBuffers::Take(size_t size) {
  std::erase_if(all_, [size](const CountedBytes& one) { return one.size() != size; });
  for (const CountedBytes& one : all_)
    // replicated-L3: a message may hold an entry that the log has dropped.
    if (!one.IsShared()) return one;
  all_.push_back(CountedBytes::Uninitialized(size));
  return all_.back();
}

Formation::Formation(const Site& site, ReplicatedEntry entry, int32_t sum, EntryBuffers* buffers)
    : site_(site),
      entry_(std::move(entry)),
      record_(RecordOf(*site.geometry, entry_)),
      sum_(sum),
      sums_(site.geometry->SumsOf(entry_.version, record_.header.final)),
      plan_(PlanOf(*site.geometry, entry_, record_, sum, site.limits)),
      host_(plan_.HostOf(site.self)),
      of_host_(plan_.size()),
      of_all_(plan_.size()),
      has_(plan_.size()),
      missing_(plan_.size()) {
  if (IsOf(site.self)) own_ = record_.contributions[static_cast<size_t>(site.self)];
  if (site.average) divisor_ = record_.header.divisor;
  // partial-W12: a mean of models is that of those that are in it.
  if (site.geometry->models().on()) divisor_ = std::max(1, CountOf(record_, sums_, sum));
  const size_t record_bytes = site.geometry->record_bytes();
  memory_ = buffers->Take(record_bytes + site.geometry->layout().length_bytes());
  std::copy_n(entry_.body.data(), record_bytes, memory_.data());
  ClearGaps(site.geometry->layout(), plan_.size() > 0, memory_.data() + record_bytes);
  entry_.body = memory_;
  for (size_t h = 0; h < plan_.hosts().size(); ++h)
    if (!plan_.hosts()[h].contributors.empty()) sources_.push_back(static_cast<int32_t>(h));
  for (size_t shard = 0; host_ >= 0 && shard < plan_.size(); ++shard) {
    const size_t contributors = plan_.hosts()[static_cast<size_t>(host_)].contributors.size();
    if (plan_.DelegateOf(shard, host_) == site.self)
      of_host_[shard] = {.pieces = std::vector<Slice>(contributors), .missing = contributors};
    if (plan_.OwnerOf(shard) == site.self)
      of_all_[shard] = {.pieces = std::vector<Slice>(sources_.size()), .missing = sources_.size()};
  }
}

ShardPlan Formation::PlanOf(const RoundMemory& geometry, const ReplicatedEntry& entry,
                            const RoundRecord& record, int32_t sum, const ShardLimits& limits) {
  const std::vector<int32_t> sums = geometry.SumsOf(entry.version, record.header.final);
  std::vector<uint64_t> roles = entry.roles;
  std::vector<bool> contributes;
  for (size_t i = 0; i < roles.size(); ++i) {
    roles[i] &= ~kByHub;
    // replicated-W19: the mean of a group is made by its members alone.
    if (sums[i] != sum) roles[i] = 0;
    contributes.push_back(sums[i] == sum && record.contributions[i].count > 0);
  }
  return {roles, contributes, geometry.layout().length_bytes(), limits};
}

void Formation::GiveUp() {
  if (is_whole()) return;
  missing_ = 0;
  DropMean();
}

void Formation::DropMean() {
  const std::byte* record = memory_.data();
  entry_.body = Bytes(record, record + site_.geometry->record_bytes());
  memory_ = {};
}

ReplicatedEntry Formation::Take() {
  const bool has_none = site_.geometry->models().on() && plan_.size() == 0;
  if (has_none) DropMean();
  return std::move(entry_);
}

// Each begins with another owner, so that all links are busy at once.
void Formation::Contribute(const Slice& content) {
  if (host_ < 0 || plan_.size() == 0) return;
  const auto& beside = plan_.hosts()[static_cast<size_t>(host_)].members;
  const auto place =
      static_cast<size_t>(std::find(beside.begin(), beside.end(), site_.self) - beside.begin());
  const size_t first = static_cast<size_t>(host_) + 1 + place * plan_.hosts().size();
  for (size_t i = 0; i < plan_.size(); ++i) {
    const size_t shard = (first + i) % plan_.size();
    const auto [offset, length] = plan_.shard(shard);
    Send(plan_.DelegateOf(shard, host_), ShardStage::kContributed, shard,
         content.Part(offset, length));
  }
}

void Formation::Send(int32_t to, ShardStage stage, size_t shard, Slice data) {
  ReplicaMessage piece{.kind = ReplicaMessage::Kind::kPiece,
                       .version = entry_.version,
                       .made = entry_.made,
                       .stage = stage,
                       .shard = shard};
  piece.body = std::move(data);
  if (to == site_.self) return OnPiece(to, std::move(piece));
  if (!GoesByHub(to)) return site_.outbox->Send(to, std::move(piece));
  piece.kind = ReplicaMessage::Kind::kRelay;
  piece.relay = 1 + static_cast<uint64_t>(to);
  site_.outbox->Send(entry_.hub, std::move(piece));
}

bool Formation::GoesByHub(int32_t to) const {
  const auto is_by_hub = [this](int32_t i) {
    return (entry_.roles[static_cast<size_t>(i)] & kByHub) != 0;
  };
  if (entry_.hub < 0 || entry_.hub == site_.self || entry_.hub == to) return false;
  // replicated-W17: the link to a member that is by the hub may be cut, or too slow.
  return is_by_hub(site_.self) || is_by_hub(to);
}

// The place of a piece; null: none is expected.
Formation::Inputs* Formation::InputsOf(int32_t from, const ReplicaMessage& piece, size_t* index) {
  const int32_t host = plan_.HostOf(from);
  if (host < 0 || host_ < 0) return nullptr;
  const bool is_contributed = piece.stage == ShardStage::kContributed;
  Inputs* inputs = is_contributed ? &of_host_[piece.shard] : &of_all_[piece.shard];
  if (inputs->missing == 0) return nullptr;
  if (is_contributed && host != host_) return nullptr;
  if (!is_contributed && plan_.DelegateOf(piece.shard, host) != from) return nullptr;
  const std::vector<int32_t>& order =
      is_contributed ? plan_.hosts()[static_cast<size_t>(host_)].contributors : sources_;
  const auto at = std::find(order.begin(), order.end(), is_contributed ? from : host);
  if (at == order.end()) return nullptr;
  *index = static_cast<size_t>(at - order.begin());
  return inputs->pieces[*index].empty() ? inputs : nullptr;
}

void Formation::OnPiece(int32_t from, ReplicaMessage piece) {
  const auto shard = static_cast<size_t>(piece.shard);
  if (shard >= plan_.size() || piece.body.size() != plan_.shard(shard).length_bytes) return;
  // replicated-L3: messages hold the bytes of a shard that is there.
  if (has_[shard] || is_whole()) return;
  if (piece.stage == ShardStage::kSummed) {
    std::copy(piece.body.begin(), piece.body.end(), PlaceOf(shard));
    return OnSummed(shard);
  }
  size_t index = 0;
  Inputs* inputs = InputsOf(from, piece, &index);
  if (inputs == nullptr) return;
  inputs->pieces[index] = std::move(piece.body);
  if (--inputs->missing > 0) return;
  const std::vector<Slice> pieces = std::exchange(inputs->pieces, {});
  const int32_t owner = plan_.OwnerOf(shard);
  // With contributors on one host there is one sum, rounded once.
  if (piece.stage == ShardStage::kHosted || (owner == site_.self && sources_.size() == 1)) {
    Sum(shard, pieces, divisor_, PlaceOf(shard));
    return Spread(shard);
  }
  if (pieces.size() == 1) return Send(owner, ShardStage::kHosted, shard, pieces[0]);
  if (owner == site_.self) {
    // The sum of all takes its place: no message holds it.
    Sum(shard, pieces, 1, PlaceOf(shard));
    return Send(owner, ShardStage::kHosted, shard, Placed(shard));
  }
  const auto sum = CountedBytes::Zeroed(plan_.shard(shard).length_bytes);
  Sum(shard, pieces, 1, sum.data());
  Send(owner, ShardStage::kHosted, shard, sum);
}

std::byte* Formation::PlaceOf(size_t shard) const {
  return memory_.data() + site_.geometry->record_bytes() + plan_.shard(shard).offset_bytes;
}

Slice Formation::Placed(size_t shard) const {
  const auto [offset, length] = plan_.shard(shard);
  return entry_.body.Part(site_.geometry->record_bytes() + offset, length);
}

// The sum of all, at the owner.
void Formation::Spread(size_t shard) {
  for (size_t h = 0; h < plan_.hosts().size(); ++h) {
    const auto host = static_cast<int32_t>(h);
    if (host != host_)
      Send(plan_.DelegateOf(shard, host), ShardStage::kSummed, shard, Placed(shard));
  }
  OnSummed(shard);
}

// The sum of a shard is in its place.
void Formation::OnSummed(size_t shard) {
  has_[shard] = true;
  --missing_;
  if (host_ < 0 || plan_.DelegateOf(shard, host_) != site_.self) return;
  for (const int32_t member : plan_.hosts()[static_cast<size_t>(host_)].members)
    if (member != site_.self) Send(member, ShardStage::kSummed, shard, Placed(shard));
}

void Formation::Sum(size_t shard, const std::vector<Slice>& inputs, int32_t divisor,
                    std::byte* to) const {
  const auto [begin, length] = plan_.shard(shard);
  const size_t end = begin + length;
  const std::vector<RoundLayout::Tile>& tiles = site_.geometry->layout().tiles();
  auto tile = std::upper_bound(tiles.begin(), tiles.end(), begin, [](size_t at, const auto& one) {
    return at < one.offset_bytes + one.count * SizeOf(one.dtype);
  });
  std::vector<const std::byte*> parts(inputs.size());
  for (; tile != tiles.end() && tile->offset_bytes < end; ++tile) {
    const size_t item = SizeOf(tile->dtype);
    const size_t from = std::max(begin, tile->offset_bytes);
    const size_t until = std::min(end, tile->offset_bytes + tile->count * item);
    for (size_t i = 0; i < inputs.size(); ++i) parts[i] = inputs[i].data() + (from - begin);
    std::byte* output = to + (from - begin);
    site_.kernels->reduce({.dtype = tile->dtype, .op = Op::kSum, .divisor = divisor}, parts,
                          std::span<std::byte* const>(&output, 1), (until - from) / item,
                          Stores::kCached);
  }
}

}  // namespace covey
