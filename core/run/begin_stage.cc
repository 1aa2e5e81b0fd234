#include "core/run/begin_stage.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include "core/run/codec_steps.h"
#include "core/run/communicator_path.h"
#include "core/run/data_steps.h"
#include "core/run/device_staging.h"
#include "core/run/exchange.h"
#include "core/run/problem.h"

namespace covey {
namespace {

// Pushes that are shorter are copied (FarPeers::Options::put_bytes): the slot they come from may be
// written again at once.
constexpr uint64_t kCopiedBytes = uint64_t{8} << 10;

// The input of this rank; rows of an alltoall that are for no rank are left out.
uint64_t GivenBytes(const Exchange& x) {
  const Request& r = *x.request;
  if (r.kind != Kind::kAlltoall) return x.input.length_bytes();
  const int64_t rows = std::accumulate(r.splits.begin(), r.splits.end(), int64_t{0});
  return static_cast<uint64_t>(rows * r.inputs[0].shape.RowElems()) * SizeOf(r.inputs[0].dtype);
}

}  // namespace

// Whether member `index` begins without its first segment in its landing slot.
bool BeginStage::IsUnstaged(const Exchange& x, size_t index) const {
  if (x.by_ipc) return true;
  if (!Reduces(x.request->kind) || x.codec != nullptr || !x.shares_memory) return false;
  return x.input.length_bytes() > options_.unstaged_above &&
         x.CellOf(index)->placement[x.Turn()].input != Transport::kNoOffset;
}

bool BeginStage::StagesInput(const Exchange& x) const {
  const Request& r = *x.request;
  if (x.entry == 0 || x.for_communicator || IsUnstaged(x, x.Me())) return false;
  if (GivenBytes(x) > LongestStaged(x)) return false;
  if (x.codec != nullptr && x.schedule != nullptr && !x.schedule->reads_begin) return false;
  return Gives(r.kind, r.group->members[x.Me()] == r.root);
}

// run-X4: a longer input is not staged at the begin; which ranks read it depends on all begins.
// Each segment of a long alltoall goes to one rank. In an allgather where some members share a host
// and others do not, rows cross to a host once; up to flat_bytes, as if all had as many, they go to
// all at once.
uint64_t BeginStage::LongestStaged(const Exchange& x) const {
  if (x.shares_memory) return ~uint64_t{0};
  if (x.request->kind == Kind::kAlltoall) return x.channel->slot_bytes;
  if (x.request->kind != Kind::kAllgather ||
      HostsOf(*transport_, x.request->group->members).empty())
    return ~uint64_t{0};
  return std::min(options_.unstaged_above / x.size(), kCopiedBytes - 1);
}

// run-X5: as many as allreduce/staged passes together, where it is likely to be the schedule.
uint32_t BeginStage::StagedSegments(const Exchange& x) const {
  if (!StagesInput(x)) return 0;
  const bool is_batch = options_.stages_batches && x.request->kind == Kind::kAllreduce &&
                        x.size() > 2 && x.codec == nullptr && x.shares_memory &&
                        x.path == nullptr && !IsSmallSum(x) && !transport_->CanReadPeers();
  if (!is_batch) return 1;
  return std::min(SegmentsOfBatch(x.channel->depth),
                  NumSegments(x.input.length_bytes(), x.channel->slot_bytes));
}

void BeginStage::Stage(const Exchange& x, uint32_t segments) {
  if (segments > 0 && x.codec != nullptr) return codec_steps_->EncodeFirst(x);
  const size_t slot_bytes = x.channel->slot_bytes;
  for (uint32_t t = 0; t < segments; ++t) {
    std::byte* slot = x.Slot(x.Me(), t);
    const size_t bytes = std::min(x.input.length_bytes() - t * slot_bytes, slot_bytes);
    x.input.ForEach(t * slot_bytes, bytes, [&](const std::byte* piece, size_t at, size_t length) {
      options_.kernels->copy(slot + at, piece, length,
                             x.streaming ? Stores::kStreaming : Stores::kCached);
    });
  }
}

bool BeginStage::LearnsStores(const Exchange& x) const {
  return x.Me() == 0 && x.size() > 1 && x.entry != 0 && Reduces(x.request->kind) &&
         x.codec == nullptr && !x.by_ipc && !x.for_communicator && x.shares_memory &&
         x.input.length_bytes() >= StoreTuner::kLeastBytes;
}

Cell* BeginStage::WriteHeader(const Exchange& x) {
  Cell* cell = x.CellOf(x.Me());
  const size_t turn = x.Turn();
  // agree-N3: headers take turns: a slower member may still read the one before.
  cell->begin[turn] = {static_cast<uint32_t>(x.occurrence), x.entry};
  return cell;
}

void BeginStage::Publish(Exchange* x) {
  const bool learns = LearnsStores(*x);
  if (learns) x->busy_since = options_.clock->Now();
  x->streaming = x->channel->streaming;
  Cell* cell = WriteHeader(*x);
  const size_t turn = x->Turn();
  const bool places = options_.places_small || !IsSmallSum(*x);
  const auto offset_of = [&](const Spans& spans) {
    bool inside = places && x->shares_memory && spans.length_bytes() > 0;
    spans.ForEachPiece([&](const std::byte* data, size_t length) {
      inside = inside && transport_->OffsetOf(data, length) != Transport::kNoOffset;
    });
    return inside ? transport_->OffsetOf(spans.First(), 1) : Transport::kNoOffset;
  };
  const Kind kind = x->request->kind;
  const auto rows = TraitsOf(kind).output == OutputRule::kInputs
                        ? static_cast<uint64_t>(x->request->inputs[0].shape.dims[0])
                        : 0;
  const auto address_of = [&](const Spans& spans) {
    const bool readable = places && x->shares_memory && transport_->CanReadPeers();
    return readable ? reinterpret_cast<uint64_t>(spans.Contiguous()) : 0;
  };
  cell->placement[turn] = {
      .input_address = address_of(x->input),
      .output_address = address_of(x->output),
      .input = offset_of(x->input),
      .output = offset_of(x->output),
      .layout = x->input.Layout() * 31 ^ (Scatters(kind) ? 0 : x->output.Layout()),
      .rows = rows,
      .streaming = learns && stores_.Next(x->input.length_bytes()) == Stores::kStreaming,
      .buffer = staging_->BufferWord(*x)};
  std::copy(x->request->splits.begin(), x->request->splits.end(), x->TableOf(x->Me()));
  std::copy(x->request->peers.begin(), x->request->peers.end(), x->TableOf(x->Me()));
  // It says whether peers read what is staged.
  if (!x->shares_memory && KnowsSchedule(*x)) ChooseSchedule(x);
  // run-X1: the tick comes after the first segments: a peer that sees the tick reads them.
  cell->placement[turn].staged = StagedSegments(*x);
  Stage(*x, cell->placement[turn].staged);
  if (learns) x->busy = options_.clock->Now() - x->busy_since;
  communicators_->Publish(x);
  if (!x->shares_memory) PushBegin(x);
}

bool BeginStage::StagesAlike(const Exchange& x) const {
  return IsSmallSum(x) && !options_.places_small && x.request->inputs.size() == 1 &&
         x.input.length_bytes() > 0 && x.input.length_bytes() <= x.channel->slot_bytes &&
         x.input.Contiguous() != nullptr && x.output.Contiguous() != nullptr && !LearnsStores(x) &&
         !x.for_communicator && x.communicator_word == 0 && !x.channel->streaming;
}

void BeginStage::PublishAgain(Exchange* x) {
  Cell* cell = WriteHeader(*x);
  const size_t turn = x->Turn();
  cell->placement[turn] = cell->placement[1 - turn];
  cell->communicator[turn] = 0;
  x->streaming = false;
  // run-X1: the tick comes after the first segment: a peer that sees the tick reads the segment.
  options_.kernels->copy(x->Slot(x->Me(), 0), x->input.First(), x->input.length_bytes(),
                         Stores::kCached);
}

// plan-S3: only what belongs to this turn. The other turn's is written again while this is sent.
void BeginStage::PushHeader(const Exchange& x) {
  const Request& r = *x.request;
  const auto push = [&](const auto* words, size_t length_bytes) {
    transport_->Push(r.group->members, reinterpret_cast<const std::byte*>(words), length_bytes);
  };
  const Cell& cell = *x.CellOf(x.Me());
  const size_t turn = x.Turn();
  push(&cell.begin[turn], sizeof(Begin));
  push(&cell.placement[turn], sizeof(Placement));
  if (!r.splits.empty() || !r.peers.empty())
    push(x.TableOf(x.Me()), TableWords(x.size()) * sizeof(uint64_t));
}

// Whether the schedule depends on no other begin.
bool BeginStage::KnowsSchedule(const Exchange& x) const {
  return x.entry != 0 && !x.for_communicator && !Gathers(x.request->kind) &&
         !Mixes(x.request->kind);
}

// The header with the table, and the part of the first segment that peers read.
void BeginStage::PushBegin(Exchange* x) {
  PushHeader(*x);
  if (x->entry == 0 || x->for_communicator) return;
  if (!KnowsSchedule(*x)) {
    if (!StagesInput(*x)) return;
    const EncodedLayout& form = x->request->form;
    const size_t slot = x->channel->slot_bytes;
    const size_t segment = form.Codes() ? form.ElemsIn(slot) * sizeof(float) : slot;
    const size_t first = TravellingBytes(form, std::min<size_t>(x->input.length_bytes(), segment));
    return transport_->Push(ReadersOf(*x), x->Slot(x->Me(), 0), first);
  }
  for (const Step& step : x->schedule->begin_pushes) PushStep(*x, step, transport_);
}

// The members that may read the segment staged at the begin, before the other begins are known.
std::vector<Rank> BeginStage::ReadersOf(const Exchange& x) const {
  const std::vector<Rank>& members = x.request->group->members;
  if (TraitsOf(x.request->kind).root == RootRule::kGets) return {x.request->root};
  const PeerTable own = x.PeersOf(x.Me());
  if (!Mixes(x.request->kind) || SendsToAny(own, x.size(), x.Me())) return members;
  std::vector<Rank> readers;
  for (size_t j = 0; j < x.size(); ++j)
    // neighbors-G3: staged input is pushed to the ranks that the own table sends to.
    if (SendsTo(own, x.size(), j)) readers.push_back(members[j]);
  return readers;
}

bool BeginStage::Agree(Exchange* x) {
  const bool agree = staging_->JudgeBuffers(x);
  for (size_t j = 0; j < x->size(); ++j) {
    // agree-N3: headers take turns.
    const covey::Begin& theirs = x->CellOf(j)->begin[x->Turn()];
    if (agree && x->entry != 0 && theirs.entry == x->entry &&
        theirs.occurrence == static_cast<uint32_t>(x->occurrence))
      continue;
    return false;
  }
  if (!Mixes(x->request->kind)) return true;
  std::vector<PeerTable> tables;
  for (size_t j = 0; j < x->size(); ++j) tables.push_back(x->PeersOf(j));
  PeerConflict conflict;
  // neighbors-G1: one conflict makes the exchange void on all members, or they would part.
  return !FindConflict(tables, &conflict);
}

// Whether it is a sum that is staged whole.
bool BeginStage::IsSmallSum(const Exchange& x) const {
  return x.request->kind == Kind::kAllreduce && x.codec == nullptr && !x.by_ipc &&
         x.shares_memory && x.input.length_bytes() <= options_.unstaged_above;
}

// The traits that choose the schedule of a small sum, beside its channel and its length. Empty for
// any other exchange.
std::optional<uint32_t> BeginStage::TraitsOfSum(const Exchange& x) const {
  if (!IsSmallSum(x)) return std::nullopt;
  // Each placement of another rank is a cache miss.
  const Placed placed = options_.places_small ? PlacedBy(x) : Placed{};
  return static_cast<uint32_t>(x.reduction.dtype) << 2 | (placed.in_arena ? 2u : 0u) |
         (placed.readable ? 1u : 0u);
}

void BeginStage::ChooseSchedule(Exchange* x) {
  // A program repeats its sums: looking in the cache costs as much as a small sum.
  const std::optional<uint32_t> traits = TraitsOfSum(*x);
  ChosenSchedule& last = x->channel->chosen;
  if (traits.has_value() && last.schedule != nullptr && last.traits == *traits &&
      last.length_bytes == x->input.length_bytes()) {
    x->schedule = last.schedule;
    return;
  }
  Problem problem = ProblemOf(*x, options_.cache_bytes);
  problem.mirrored = !x->shares_memory;
  if (problem.mirrored) problem.hosts = HostsOf(*transport_, x->request->group->members);
  const uint64_t longest = LongestStaged(*x);
  for (size_t j = 0; j < x->size(); ++j) {
    const uint64_t length = InputBytes(problem, static_cast<int32_t>(j));
    // run-X4: by lengths alone, so every member knows which begins staged nothing.
    if (!IsUnstaged(*x, j) && length <= longest) continue;
    problem.unstaged.resize(x->size());
    problem.unstaged[j] = true;
  }
  if (Gathers(problem.kind)) AllocateResult(x);
  schedules_.Choose(std::move(problem), x);
  if (traits.has_value() && x->own_schedule == nullptr)
    last = {.schedule = x->schedule, .length_bytes = x->input.length_bytes(), .traits = *traits};
}

void BeginStage::Measure(Exchange* x) {
  if (LearnsStores(*x)) x->busy_since = options_.clock->Now();
}

void BeginStage::Learn(const Exchange& x) {
  if (x.schedule->touches_peers || !LearnsStores(x)) return;
  stores_.Learn(x.input.length_bytes(), x.streaming ? Stores::kStreaming : Stores::kCached,
                x.busy + options_.clock->Now() - x.busy_since);
}

}  // namespace covey
