#include "core/gossip/hosts_port.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace covey {
namespace {

// Results that are kept: all members have read a version before the one after the next.
constexpr int32_t kLog = 2;
// So long the mean of what is seen waits for answers: a member is at work, and a model is large.
constexpr Time kPatience = kSecond, kPerByte = 10;

// By member: its index among those that share memory with this rank; -1: it does not.
std::vector<int32_t> NearOf(const Group& group, const Transport& transport) {
  std::vector<int32_t> near;
  int32_t count = 0;
  for (const Rank member : group.members) near.push_back(transport.Shares(member) ? count++ : -1);
  return near;
}

// The layout of a contribution to the mean: a model, then the number of a finish by member
// (gossip-P18), which is 0 for all members but the own.
RoundLayout WithTimes(const RoundLayout& model, int32_t size) {
  std::vector<RoundSpan> spans(model.lengths_bytes().size());
  for (const RoundLayout::Tile& tile : model.tiles()) {
    spans[tile.span].dtype = tile.dtype;
    spans[tile.span].count += tile.count;
  }
  spans.push_back({DType::kF64, static_cast<size_t>(size)});
  return {spans, model.tile_bytes()};
}

int32_t Count(const std::vector<int32_t>& near) {
  return static_cast<int32_t>(
      std::count_if(near.begin(), near.end(), [](int32_t index) { return index >= 0; }));
}

}  // namespace

HostsPort::HostsPort(Bundle bundle, const Group* group, Transport* transport, ChannelDriver driver)
    : PairsPort(std::move(bundle), group, Count(NearOf(*group, *transport))),
      transport_(transport),
      driver_(std::move(driver)),
      near_(NearOf(*group, *transport)) {
  if (driver_.clock != nullptr) clock_ = driver_.clock;
}

RoundsPort::Bundle HostsPort::RoundsOf(const Bundle& bundle, int32_t size) {
  return {.name = bundle.name + ".mean",
          .shape = {.size = size, .log = kLog, .hypers = 0, .models = {}},
          .layout = WithTimes(bundle.layout, size),
          // gossip-P15: a version is of all that live, however long one of them takes.
          .options = {.self = bundle.self,
                      .admission = {},
                      .max_wait = kNever,
                      .average = false,  // divided by the number of members that are in it
                      .kernels = bundle.kernels},
          .waiting = {}};
}

void HostsPort::Open(const std::vector<uint64_t>& offsets, uint64_t channel, RoundsPort* rounds) {
  channel_ = channel;
  rounds_ = rounds;
  std::vector<std::byte*> blocks;
  if (HasBlock()) {
    for (size_t i = 0; i < offsets.size(); ++i)
      if (near_[i] >= 0) blocks.push_back(transport_->Base(group_->members[i]) + offsets[i]);
    offset_ = offsets[static_cast<size_t>(bundle_.self)];
  } else {
    blocks.push_back(private_blocks_.Add(memory_.BlockBytes()));
  }
  memory_.Map(std::move(blocks));
  SharedAtomics* words = HasBlock() ? transport_->near_words() : &private_words_;
  const int32_t self = near_[static_cast<size_t>(bundle_.self)];
  gossip_ = std::make_unique<Gossip>(self, &memory_, words, bundle_.kernels, bundle_.codec,
                                     Gossip::End::kElsewhere);
  far_ = std::make_unique<FarPairs>(bundle_.self, group_->size(), gossip_.get(), &layout(),
                                    bundle_.kernels, bundle_.codec);
  steps_ =
      std::make_unique<GossipSteps>(bundle_.self, bundle_.rule, gossip_.get(), near_, far_.get());
}

void HostsPort::Begin(std::span<const void* const> model) {
  {
    const std::lock_guard lock(mutex_);
    gossip_->Begin(model);
    far_->Begin();
  }
  Stir();
}

// ---- The end of an epoch ------------------------------------------------------------------------

Status HostsPort::Gather(std::span<void* const> model, Time deadline, Result result) {
  result_ = result;
  EnterFinish();
  for (bool is_over = false; !is_over;) {
    if (barrier_.phase() == Phase::kTrains) {
      const std::lock_guard lock(mutex_);
      steps_->PushDelta(model);
      far_->Finish();
      barrier_.Enter(Phase::kFinishes, clock_->Now());
      has_learnt_ = false;
    }
    Stir();
    if (version_ == 0) {
      const Status finished = waiters_.Await(
          driver_, [this] { return far_->Unsettled().empty(); }, Until(deadline));
      RETURN_IF_ERROR(Judge(finished));
      HandIn();
    }
    RETURN_IF_ERROR(Judge(rounds_->Wait(version_, Until(deadline))));
    const std::lock_guard lock(mutex_);
    const bool has_learnt = has_learnt_;
    RETURN_IF_ERROR(TakeResult(model));
    // gossip-P18: else this was the end of a Finish before.
    is_over = !has_learnt && fewest_ >= Number();
  }
  LeaveFinish();
  Stir();
  return Status::Ok();
}

// The deadline of the caller, or that of max_wait.
Time HostsPort::Until(Time deadline) const {
  const Time now = clock_->Now();
  const Time left = barrier_.Left(bundle_.max_wait, now);
  return left < kNever - now ? std::min(deadline, now + left) : deadline;
}

// An end by max_wait names the members that are missing.
Status HostsPort::Judge(const Status& waited) {
  const Time now = clock_->Now();
  if (waited.code() != StatusCode::kTimeout || barrier_.Left(bundle_.max_wait, now) > 0)
    return waited;
  const std::lock_guard lock(mutex_);
  const Status over = barrier_.TimedOut(far_->Unsettled(), bundle_.max_wait,
                                        "call it again to wait on, or train on");
  barrier_.Restart(now);
  return over;
}

// gossip-P15: what a rank gives stands: a version may have it already.
void HostsPort::HandIn() {
  std::byte* open = rounds_->open();
  {
    const std::lock_guard lock(mutex_);
    FarAccess(gossip_.get()).Read([&](const std::byte* own) {
      bundle_.kernels->copy(open, own, layout().length_bytes(), memory_.stores());
    });
  }
  std::vector<double> numbers(group_->members.size());
  numbers[static_cast<size_t>(bundle_.self)] = static_cast<double>(Number());
  std::memcpy(open + rounds_->layout().offsets_bytes().back(), numbers.data(),
              numbers.size() * sizeof(double));
  const uint64_t version = rounds_->Publish({});
  const std::lock_guard lock(mutex_);
  version_ = version;
}

// REQUIRES: the version is there; with the lock held.
Status HostsPort::TakeResult(std::span<void* const> model) {
  std::vector<std::byte> taken(has_learnt_ ? layout().length_bytes() : 0);
  std::vector<void*> spans(model.begin(), model.end());
  if (has_learnt_)
    for (size_t i = 0; i < spans.size(); ++i) spans[i] = taken.data() + layout().offsets_bytes()[i];
  std::vector<void*> sums = spans;
  std::vector<double> numbers(group_->members.size());
  sums.push_back(numbers.data());
  RoundRecord record;
  RETURN_IF_ERROR(rounds_->Read(version_, sums, &record));
  fewest_ = Number();
  for (size_t i = 0; i < numbers.size(); ++i)
    if (record.contributions[i].count > 0)
      fewest_ = std::min(fewest_, static_cast<uint64_t>(numbers[i]));
  // gossip-P19: all have the mean, or each its own.
  FinishNumber::Settles(fewest_) ? gossip_->OwnModel(spans) : Divide(record, spans);
  if (has_learnt_) gossip_->AddProgress(model, taken.data());
  GoOn(model);
  far_->GoOn();
  version_ = 0;
  return Status::Ok();
}

// The sum of models becomes their mean.
void HostsPort::Divide(const RoundRecord& record, std::span<void* const> sum) const {
  // gossip-P15: by the number of models in it, not that of all members.
  const auto in_it =
      std::count_if(record.contributions.begin(), record.contributions.end(),
                    [](const Contribution& contribution) { return contribution.count > 0; });
  for (const RoundLayout::Tile& tile : layout().tiles()) {
    std::byte* at = static_cast<std::byte*>(sum[tile.span]) +
                    (tile.offset_bytes - layout().offsets_bytes()[tile.span]);
    const std::byte* from = at;
    bundle_.kernels->reduce(
        {.dtype = tile.dtype, .op = Op::kSum, .divisor = static_cast<int32_t>(in_it)}, {&from, 1},
        {&at, 1}, tile.count, Stores::kCached);
  }
}

bool HostsPort::TrainsDuringFinish(std::span<void* const> model) {
  if (version_ == 0) {
    far_->TakeBack();
    barrier_.Enter(Phase::kTrains, clock_->Now());
    return false;
  }
  has_learnt_ = true;
  if (rounds_->executed() < version_) return true;
  // A failure shows in the next Finish, which looks again.
  static_cast<void>(TakeResult(model));
  return true;
}

// ---- Other members' models ----------------------------------------------------------------------

void HostsPort::Tell(int64_t version) {
  const std::lock_guard lock(mutex_);
  far_->Tell(static_cast<uint64_t>(version));
}

PairsPort::Seen HostsPort::Peek(int32_t member, std::span<void* const> to) {
  Seen seen;
  {
    const std::lock_guard lock(mutex_);
    seen = PeekLocked(member, to);
  }
  if (seen.state == WindowState::kAsked) Stir();
  return seen;
}

PairsPort::Seen HostsPort::PeekLocked(int32_t member, std::span<void* const> to) {
  if (member == bundle_.self) {
    const bool is_whole = to.empty() || gossip_->Peek(near_[static_cast<size_t>(member)], to);
    return {.state = is_whole ? WindowState::kWhole : WindowState::kChanging,
            .version = static_cast<int64_t>(far_->steps())};
  }
  if (far_->IsLost(member)) return {.state = WindowState::kLost};
  if (far_->StateOf(member) == FarState::kLeft) return {.state = WindowState::kClosed};
  if (to.empty()) return {};
  // gossip-P16: those of its host too: all ranks see the same members.
  FarLooks::Model model;
  if (!far_->Look(member, clock_->Now(), &model)) return {.state = WindowState::kAsked};
  gossip_->Take(model.bytes.data(), to);
  return {.version = static_cast<int64_t>(model.steps), .is_behind = model.epoch < far_->epoch()};
}

// Whether there is nothing to wait for: the model is copied, or the member has none to be seen.
bool HostsPort::Copy(int32_t member, std::vector<std::byte>* to) {
  if (member == bundle_.self) {
    to->resize(layout().length_bytes());
    FarAccess(gossip_.get()).Read([&](const std::byte* own) {
      bundle_.kernels->copy(to->data(), own, to->size(), Stores::kCached);
    });
    return true;
  }
  if (PeekLocked(member, {}).state != WindowState::kWhole) return true;
  FarLooks::Model model;
  if (!far_->Look(member, clock_->Now(), &model)) return false;
  *to = std::move(model.bytes);
  return true;
}

bool HostsPort::SeenMean(std::span<void* const> model) {
  std::vector<std::vector<std::byte>> models(group_->members.size());
  std::vector<bool> is_over(models.size());
  const ChannelWaiters::Done look = [&] {
    bool are_all_over = true;
    for (size_t i = 0; i < models.size(); ++i) {
      is_over[i] = is_over[i] || Copy(static_cast<int32_t>(i), &models[i]);
      are_all_over &= is_over[i];
    }
    return are_all_over;
  };
  {
    const std::lock_guard lock(mutex_);
    HearOfLosses();
    look();
  }
  Stir();
  // gossip-P16: a member that does not answer is in the mean of no rank.
  const Time patience = kPatience + static_cast<Time>(layout().length_bytes()) * kPerByte;
  static_cast<void>(waiters_.Await(driver_, look, clock_->Now() + patience));
  std::vector<const std::byte*> all;
  for (const std::vector<std::byte>& one : models)
    if (!one.empty()) all.push_back(one.data());
  if (!all.empty()) gossip_->MeanOf(all, model);
  return !all.empty();
}

// ---- The network --------------------------------------------------------------------------------

void HostsPort::OnMessage(int32_t from, Slice message, Time) {
  const std::lock_guard lock(mutex_);
  far_->OnMessage(from, message);
}

void HostsPort::OnLoss(int32_t member) {
  const std::lock_guard lock(mutex_);
  far_->OnLoss(member);
  const int32_t near = near_[static_cast<size_t>(member)];
  if (near >= 0) gossip_->OnLoss(near);
}

ChannelPort::Pass HostsPort::Advance(Time, bool) {
  const std::lock_guard lock(mutex_);
  Pass pass;
  pass.messages = far_->TakeMessages();
  pass.moved = waiters_.Check();
  return pass;
}

void HostsPort::HearOfLosses() {
  for (const int32_t near : near_)
    // gossip-P10: a member that has left is averaged with no more than a dead one.
    if (near >= 0 && gossip_->HasLeft(near)) gossip_->OnLoss(near);
}

void HostsPort::Interrupt() {
  const std::lock_guard lock(mutex_);
  waiters_.Interrupt();
}

void HostsPort::Close() {
  {
    const std::lock_guard lock(mutex_);
    gossip_->Leave();
    far_->Leave();
  }
  Stir();
}

bool HostsPort::CanBeFreed() {
  const std::lock_guard lock(mutex_);
  return far_->HaveAllLeft();
}

HostsPort::Totals HostsPort::totals() {
  const std::lock_guard lock(mutex_);
  Totals sum = gossip_->quantized();
  sum += far_->quantized();
  return sum;
}

FarPairs::Counters HostsPort::far_counters() {
  const std::lock_guard lock(mutex_);
  return far_->counters();
}

}  // namespace covey
