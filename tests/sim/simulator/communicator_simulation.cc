#include "tests/sim/simulator/communicator_simulation.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/engine/runtime.h"
#include "core/plan/selector.h"
#include "core/transport/mirrored.h"
#include "ops/transports/inproc.h"
#include "tests/sim/simulator/communicator_stream.h"
#include "tests/sim/simulator/late_communicators.h"
#include "tests/sim/simulator/late_device.h"
#include "tests/sim/simulator/mail_link.h"

namespace covey {
namespace {

constexpr size_t kMirrorBytes = 4 << 20;
constexpr int kMostSteps = 400'000;  // of one round
constexpr float kUncomputed = -1000;
constexpr int kSteadyRounds = 4;  // at the end, which are looked at

enum class Trouble : uint8_t { kNone, kWithout, kShared, kNeverReady, kFails, kDies };
constexpr const char* kTroubleNames[] = {
    "all well",           "one has no library",   "two on a device",
    "opening never ends", "a communicator fails", "one dies"};

using Stream = CommunicatorStream;
using Share = CommunicatorShare;

struct Node {
  TensorQueue queue;
  std::unique_ptr<Log> log;
  std::unique_ptr<Transport> mirrored;
  std::unique_ptr<LateDevice> device;
  std::unique_ptr<LateCommunicators> communicators;
  std::vector<std::unique_ptr<Group>> groups;  // by number; null: it is no member
  std::unique_ptr<Runtime> runtime;
};

class Job {
 public:
  explicit Job(uint64_t seed)
      : rng_(seed * 6007 + 3),
        size_(1 + static_cast<int32_t>(rng_.Below(5))),
        trouble_(rng_.Percent(40) ? Trouble::kNone : Trouble{static_cast<uint8_t>(rng_.Below(6))}),
        cables_(size_, LateDevice::HasCompleted) {
    if (size_ == 1 && trouble_ != Trouble::kNone) trouble_ = Trouble::kNone;
    mirrored_ = rng_.Percent(40);
    in_turn_ = rng_.Percent(40);
    victim_ = static_cast<int32_t>(rng_.Below(static_cast<uint64_t>(size_)));
    insists_ = trouble_ <= Trouble::kShared && rng_.Percent(20);
    verdict_.swarm = std::to_string(size_) + " ranks, " +
                     kTroubleNames[static_cast<size_t>(trouble_)] + " (" + std::to_string(victim_) +
                     ")" + (mirrored_ ? ", mirrored" : "") + (in_turn_ ? ", in turn" : "") +
                     (insists_ ? ", communicators or nothing" : "");
    network_ = std::make_unique<InprocNetwork>(InprocNetwork::Options{
        .size = size_, .seed = seed, .region_bytes = 16 << 20, .longest_store_delay = 0});
    DrawGroups();
    for (int32_t r = 0; r < size_; ++r) AddNode(r, seed);
    DrawStreams();
  }

  CommunicatorSimVerdict Run() {
    verdict_.mirrored = mirrored_;
    verdict_.without = trouble_ == Trouble::kWithout;
    verdict_.shared = trouble_ == Trouble::kShared;
    verdict_.never_ready = trouble_ == Trouble::kNeverReady;
    verdict_.fails = trouble_ == Trouble::kFails;
    verdict_.dies = trouble_ == Trouble::kDies;
    const int rounds = 8 + static_cast<int>(rng_.Below(6));
    for (int round = 0; round < rounds && verdict_.failure.empty(); ++round) {
      // Enough time for communicators to be there in the last rounds.
      network_->clock().Advance(static_cast<Time>(rng_.Below(kMillisecond)));
      const uint64_t before = ByCommunicator();
      RunRound(round, round + 1 == rounds);
      const bool settled = round >= rounds - kSteadyRounds + 2;
      if (trouble_ == Trouble::kNone && settled && ByCommunicator() == before && !AllSmall())
        Fail("a late round goes over no communicator");
    }
    verdict_.by_communicator = ByCommunicator();
    for (const auto& node : nodes_) {
      const Executor::Counters& c = node->runtime->executor().counters();
      verdict_.again += c.again;
      verdict_.by_ipc += c.by_ipc;
      if (trouble_ < Trouble::kFails && c.voided > 0) Fail("an exchange is void for nothing");
    }
    if (!cables_.wrong().empty()) Fail(cables_.wrong());
    return verdict_;
  }

 private:
  uint64_t ByCommunicator() const {
    uint64_t sum = 0;
    for (const auto& node : nodes_) sum += node->runtime->executor().counters().by_communicator;
    return sum;
  }
  bool AllSmall() const {
    return std::all_of(streams_.begin(), streams_.end(), [](const Stream& s) {
      return s.elems * sizeof(float) < kCommunicatorBytes;
    });
  }

  void DrawGroups() {
    std::vector<int32_t> all;
    for (int32_t r = 0; r < size_; ++r) all.push_back(r);
    groups_.push_back(all);
    for (int i = 0; i < 4 && size_ > 1; ++i) {
      std::vector<int32_t> some;
      for (int32_t r = 0; r < size_; ++r)
        if (rng_.Percent(60)) some.push_back(r);
      if (!some.empty() && std::find(groups_.begin(), groups_.end(), some) == groups_.end())
        groups_.push_back(some);
    }
  }

  void AddNode(int32_t r, uint64_t seed) {
    Node& node = *nodes_.emplace_back(std::make_unique<Node>());
    node.log = std::make_unique<Log>(LogLevel::kOff, Rank{r});
    const bool victim = r == victim_;
    const uint64_t device = trouble_ == Trouble::kShared && victim
                                ? static_cast<uint64_t>((r + 1) % size_)
                                : static_cast<uint64_t>(r);
    node.device = std::make_unique<LateDevice>(&network_->clock(), seed * 31 + uint64_t(r),
                                               20 * kMicrosecond);
    node.communicators = std::make_unique<LateCommunicators>(
        LateCommunicators::Options{.rank = r,
                                   .device = 1000 + device,
                                   .seed = seed * 37 + static_cast<uint64_t>(r),
                                   .there = !(trouble_ == Trouble::kWithout && victim),
                                   .never_ready = trouble_ == Trouble::kNeverReady && victim,
                                   .fails_after = trouble_ == Trouble::kFails && victim
                                                      ? static_cast<int>(rng_.Below(4))
                                                      : -1,
                                   .longest = kMillisecond / 4},
        &network_->clock(), &cables_);
    node.device->SetCommunicators(node.communicators.get());
    if (seed % 5 < 2) node.device->Share(true, 1 << 20);
    for (const auto& members : groups_) {
      auto group = std::make_unique<Group>();
      for (size_t i = 0; i < members.size(); ++i) {
        group->members.push_back(Rank{members[i]});
        if (members[i] == r) group->my_index = GroupIndex{static_cast<int32_t>(i)};
      }
      group->key = static_cast<int32_t>(members.size()) == size_ ? 0 : GroupKey(group->members);
      node.groups.push_back(ToInt(group->my_index) < 0 ? nullptr : std::move(group));
    }
    if (mirrored_)
      Fail(Mirrored::Open({.arena_bytes = kMirrorBytes, .put_bytes = 64},
                          std::make_unique<MailLink>(network_.get(), Rank{r}), &node.mirrored)
               .message());
    node.runtime = std::make_unique<Runtime>(
        Runtime::Options{.segment_bytes = 256,
                         .selector = {.flat_bytes = 256},
                         .plan = Plan,
                         .devices = {nullptr, nullptr, node.device.get()},
                         .device_arena_bytes = 1 << 20,
                         .device_path = insists_ ? DevicePath::kCommunicator : DevicePath::kAuto,
                         .communicator_bytes = kCommunicatorBytes,
                         .kernels = &BestKernels(),
                         .clock = &network_->clock(),
                         .log = node.log.get()},
        mirrored_ ? node.mirrored.get() : &network_->transport(Rank{r}), &node.queue);
  }

  void DrawStreams() {
    const uint64_t count = 1 + rng_.Below(7);
    for (uint64_t i = 0; i < count; ++i) {
      Stream s;
      s.group = rng_.Below(groups_.size());
      const size_t members = groups_[s.group].size();
      s.name = "s" + std::to_string(i);
      const uint64_t kind = rng_.Below(10);
      s.kind = kind < 6 ? Kind::kAllreduce : kind < 8 ? Kind::kBroadcast : Kind::kReducescatter;
      constexpr Op kOps[] = {Op::kSum, Op::kMin, Op::kMax, Op::kProduct};
      s.op = kOps[rng_.Below(4)];
      s.average = s.op == Op::kSum && Reduces(s.kind) && rng_.Percent(30);
      s.elems = (1 + rng_.Below(rng_.Percent(30) ? 400 : 20)) * members;
      s.root = rng_.Below(members);
      streams_.push_back(s);
    }
  }

  Node& At(int32_t r) { return *nodes_[static_cast<size_t>(r)]; }
  void Fail(const std::string& text) {
    if (verdict_.failure.empty()) verdict_.failure = text;
  }

  Tensor On(std::vector<float>& memory, void* event) {
    Tensor t;
    t.shape.ndim = 1;
    t.shape.dims[0] = static_cast<int64_t>(memory.size());
    t.data = LateDevice::OnDevice(reinterpret_cast<std::byte*>(memory.data()));
    t.device = DeviceType::kFake;
    t.stream = memory.data();
    t.ready_event = event;
    return t;
  }

  void Submit(int32_t r, const Stream& stream, Share* s) {
    Node& node = At(r);
    Operation* operation = node.queue.New();
    Request& request = *operation;
    request.kind = stream.kind;
    request.group = node.groups[stream.group].get();
    request.name = stream.name;
    request.op = stream.op;
    request.average = stream.average;
    if (stream.kind == Kind::kBroadcast) request.root = Rank{groups_[stream.group][stream.root]};
    s->event = node.device->Compute(
        kNever, [s] { std::copy(s->computed.begin(), s->computed.end(), s->input.begin()); });
    request.inputs = {On(s->input, s->event)};
    request.outputs = {On(s->output, nullptr)};
    uint64_t handle = 0;
    if (const Status status = node.queue.Submit(operation, &handle); !status.ok())
      return Fail("not queued: " + status.message());
    s->operation = operation;
    pending_.push_back({node.device.get(), s->event});
  }

  // The user's device computes an input, by and by.
  void Compute() {
    if (pending_.empty() || !rng_.Percent(30)) return;
    const size_t pick = rng_.Below(pending_.size());
    pending_[pick].device->Finish(pending_[pick].event);
    pending_.erase(pending_.begin() + static_cast<long>(pick));
  }

  void StepOnce() {
    const auto r = static_cast<int32_t>(rng_.Below(static_cast<uint64_t>(size_)));
    network_->clock().Advance(static_cast<Time>(rng_.Below(20 * kMicrosecond)));
    Compute();
    bool moved = false;
    if (!network_->IsDead(Rank{r})) At(r).runtime->RunOnce(&moved);
  }

  struct Pending {
    LateDevice* device;
    void* event;
  };
  struct Agenda {
    std::vector<size_t> order;  // streams of which it is a member
    size_t next = 0;
    bool waits = false;  // for each before the next
  };

  void RunRound(int round, bool last) {
    rounds_.push_back(std::vector<std::vector<Share>>(streams_.size()));
    auto& shares = rounds_.back();
    for (size_t k = 0; k < streams_.size(); ++k) {
      shares[k].resize(groups_[streams_[k].group].size());
      for (Share& s : shares[k]) Draw(streams_[k], &s);
    }
    std::vector<Agenda> plans;
    for (int32_t r = 0; r < size_; ++r) plans.push_back(PlanOf(r));
    const bool kills = last && trouble_ == Trouble::kDies;
    const uint64_t dies_at = kills ? rng_.Below(200) : ~uint64_t{0};
    for (uint64_t step = 0;; ++step) {
      if (step > kMostSteps) return Fail("round " + std::to_string(round) + " does not end");
      if (step == dies_at) {
        network_->Kill(Rank{victim_}, "has died");
        cables_.Kill(victim_);
      }
      bool over = step > dies_at || !kills;
      for (int32_t r = 0; r < size_; ++r) {
        if (network_->IsDead(Rank{r})) continue;
        over &= Act(r, &plans[static_cast<size_t>(r)], &shares);
      }
      if (over) break;
      StepOnce();
    }
  }

  Agenda PlanOf(int32_t r) {
    Agenda plan;
    for (size_t k = 0; k < streams_.size(); ++k)
      if (At(r).groups[streams_[k].group] != nullptr) plan.order.push_back(k);
    // Rank 0 submits all at once, in any order; the others wait for one before the next, all in
    // the same order; or none waits.
    plan.waits = in_turn_ && r > 0;
    if (!plan.waits)
      for (size_t i = plan.order.size(); i > 1; --i)
        std::swap(plan.order[i - 1], plan.order[rng_.Below(i)]);
    return plan;
  }

  Share* ShareOf(int32_t r, size_t k, std::vector<std::vector<Share>>* shares) {
    const auto me = static_cast<size_t>(ToInt(At(r).groups[streams_[k].group]->my_index));
    return &(*shares)[k][me];
  }

  // True: the rank has nothing more to do in this round.
  bool Act(int32_t r, Agenda* plan, std::vector<std::vector<Share>>* shares) {
    bool all = true;
    for (size_t i = 0; i < plan->next; ++i) {
      Share* s = ShareOf(r, plan->order[i], shares);
      if (!s->operation->ended.load()) {
        all = false;
      } else if (!std::exchange(s->judged, true)) {
        Judge(r, plan->order[i], *s, *shares);
      }
    }
    if (plan->next == plan->order.size()) return all;
    if (plan->waits && !all) return false;
    if (rng_.Percent(10)) {
      const size_t k = plan->order[plan->next++];
      Submit(r, streams_[k], ShareOf(r, k, shares));
    }
    return false;
  }

  void Draw(const Stream& stream, Share* s) {
    for (size_t e = 0; e < stream.elems; ++e)
      s->computed.push_back(static_cast<float>(1 + rng_.Below(4)));
    s->input.assign(stream.elems, kUncomputed);
    const size_t members = groups_[stream.group].size();
    s->output.assign(stream.kind == Kind::kReducescatter ? stream.elems / members : stream.elems,
                     kUncomputed);
  }

  void Judge(int32_t r, size_t k, Share& s, const std::vector<std::vector<Share>>& shares) {
    const Stream& stream = streams_[k];
    const Status& status = s.operation->status;
    const std::string who = "rank " + std::to_string(r) + ", " + stream.name + ": ";
    verdict_.hash = verdict_.hash * 31 + static_cast<uint64_t>(status.code());
    At(r).device->Synchronize(s.input.data());
    At(r).device->Synchronize(s.output.data());
    for (const auto* memory : {&s.input, &s.output})
      if (cables_.Uses(r, LateDevice::OnDevice(reinterpret_cast<const std::byte*>(memory->data()))))
        Fail(who + "it has ended, and the device still uses its memory");
    if (status.code() == StatusCode::kUnsupported && insists_) {
      ++verdict_.refused;
      if (trouble_ == Trouble::kNone) Fail(who + status.message());
      return;
    }
    if (status.code() == StatusCode::kAborted) {
      ++verdict_.aborted;
      if (trouble_ < Trouble::kFails) return Fail(who + status.message());
      if (status.peer() != Rank{victim_}) Fail(who + "blames another: " + status.message());
      return;
    }
    if (!status.ok()) return Fail(who + status.message());
    ++verdict_.done;
    const size_t me = static_cast<size_t>(ToInt(At(r).groups[stream.group]->my_index));
    for (size_t e = 0; e < s.output.size(); ++e) {
      const size_t at = stream.kind == Kind::kReducescatter ? me * s.output.size() + e : e;
      if (s.output[e] == ExpectedOf(stream, shares[k], at)) continue;
      return Fail(who + "element " + std::to_string(e) + " is " + std::to_string(s.output[e]));
    }
  }

  static constexpr size_t kCommunicatorBytes = 64;

  Rng rng_;
  int32_t size_;
  Trouble trouble_;
  CommunicatorCables cables_;
  bool mirrored_ = false;
  bool in_turn_ = false;
  bool insists_ = false;
  int32_t victim_ = 0;
  std::vector<std::vector<int32_t>> groups_;
  std::vector<Stream> streams_;
  std::unique_ptr<InprocNetwork> network_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Pending> pending_;                         // not computed yet
  std::vector<std::vector<std::vector<Share>>> rounds_;  // kept: devices know their addresses
  CommunicatorSimVerdict verdict_;
};

}  // namespace

CommunicatorSimVerdict RunCommunicators(uint64_t seed) { return Job(seed).Run(); }

}  // namespace covey
