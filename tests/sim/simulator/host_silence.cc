#include "tests/sim/simulator/host_silence.h"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "core/replicated/replica.h"

namespace covey {
namespace {

constexpr int32_t kHosts = 4, kPerHost = 2, kSize = kHosts * kPerHost;
constexpr Time kTick = kMillisecond / 4;
constexpr Time kStep = 50 * kMillisecond;
constexpr Time kUneven = 4 * kMillisecond;  // a step is longer by so much at most
constexpr Time kLook = 20 * kMillisecond;   // a rank that waits looks so often
constexpr Time kLongestDelay = kMillisecond;
// max_wait is as of trainers by default (step_time.h): of eager and wagma the least one, of diloco
// so many times the local steps.
constexpr Time kMaxWait = kSecond;
constexpr Time kWaitFactor = 10;
constexpr int kLocalSteps = 4;
// A contribution, and a long one, of which a piece takes so long on its way out of a host.
constexpr size_t kNumbers = 128, kManyNumbers = 1024;
constexpr Time kLongestPiece = 50 * kMicrosecond;
// The lease / 10, and 16 ns for each byte of a million numbers (replica_port.cc).
constexpr Time kElectionTimeout = 1064 * kMillisecond;
constexpr Time kRetry = 200 * kMillisecond;  // the first of TCP
constexpr Time kBegin = kSecond, kEnd = 20 * kSecond;
constexpr Time kFaultAfter = 2 * kSecond;
constexpr Time kLongestFault = 6 * kSecond;
// An attempt that is made again: proposal, pieces, entry, commit, and what is late of them.
constexpr Time kMessages = 16 * kLongestDelay, kManyMessages = 64 * kLongestDelay;
constexpr uint64_t kLongestAttempt = 60;  // ticks
// A rank behind a cut link fetches missing versions after this time, so its next contribution is
// later by as much.
constexpr Time kFetches = kElectionTimeout / 4;

struct Mail {
  Time arrives = 0;
  EncodedMessage message;
};

struct Link {
  std::deque<Mail> mail;
  std::deque<EncodedMessage> unsent;  // behind what was sent in vain
  Time stuck_since = 0;               // 0: it is not
};

struct Rank {
  std::unique_ptr<Replica> replica;
  bool waits = false, seeks = false;
  Time computes_until = kBegin, began = kBegin, look_at = 0, until = 0;
  uint64_t awaited = 0, read = 0;
  std::vector<Time> lengths;
  Time last_step_at = 0;
};

class Silence {
 public:
  Silence(uint64_t seed, SilentMethod method, SilentFault fault)
      : rng_(seed),
        fault_(fault),
        method_(method),
        has_models_(method == SilentMethod::kModels),
        compute_(method == SilentMethod::kDeltas ? kLocalSteps * kStep : kStep),
        max_wait_(method == SilentMethod::kDeltas ? kWaitFactor * compute_ : kMaxWait) {
    for (int32_t r = 0; r < kSize; ++r) hosts_.push_back(r / kPerHost);
    if (has_models_)
      rule_ = {.group_size = rng_.Percent(50) ? 2 : 4,
               .sync_every = 10,
               .hosts = hosts_,
               .cross_every = rng_.Percent(50) ? 1 : 2};
    const bool is_long = method == SilentMethod::kDeltas && rng_.Percent(50);
    if (is_long) piece_takes_ = kLongestPiece / 2 + Below(kLongestPiece / 2);
    messages_ = is_long ? kManyMessages : kMessages;
    const RoundSpan spans[] = {{DType::kF32, is_long ? kManyNumbers : kNumbers}};
    layout_ = std::make_unique<RoundLayout>(spans, 64);
    fault_begin_ = kBegin + kFaultAfter + Below(20 * kStep);
    fault_lasts_ = 2 * max_wait_ + Below(kLongestFault - 2 * max_wait_);
    // Versions are rare: three of four faults begin amid an attempt.
    if (has_local_steps() && rng_.Percent(75))
      amid_ = 1 + rng_.Below(is_long ? kLongestAttempt : kLongestAttempt / 10);
    // Neither leads, and they are on different hosts.
    from_ = static_cast<int32_t>(1 + rng_.Below(kSize - 1));
    do to_ = static_cast<int32_t>(1 + rng_.Below(kSize - 1));
    while (hosts_[static_cast<size_t>(to_)] == hosts_[static_cast<size_t>(from_)]);
    for (int32_t r = 0; r < kSize; ++r) Open(r);
    links_.resize(kSize * kSize);
  }

  SilenceVerdict Run() {
    for (now_ = kBegin; now_ < kEnd; now_ += kTick) {
      if (amid_ > 0 && now_ >= fault_begin_) Await();
      for (int32_t r = 0; r < kSize; ++r) Turn(r);
    }
    return Verdict();
  }

 private:
  bool IsOfALink() const {
    return fault_ == SilentFault::kCutOneWay || fault_ == SilentFault::kCutBothWays;
  }
  bool has_local_steps() const { return method_ == SilentMethod::kDeltas; }
  Time Below(Time end) { return static_cast<Time>(rng_.Below(static_cast<uint64_t>(end))); }
  Rank& RankOf(int32_t rank) { return ranks_[static_cast<size_t>(rank)]; }
  Link& LinkOf(int32_t from, int32_t to) { return links_[static_cast<size_t>(from * kSize + to)]; }
  bool IsFaulty() const { return fault_begin_ <= now_ && now_ < fault_begin_ + fault_lasts_; }
  bool IsOfLastHost(int32_t rank) const { return hosts_[static_cast<size_t>(rank)] == kHosts - 1; }

  // The fault begins once an attempt has been under way for so long.
  void Await() {
    const bool begins = ranks_.front().replica->IsBusy() && --amid_ == 0;
    fault_begin_ = begins ? now_ : now_ + kTick;
  }

  void Open(int32_t rank) {
    // As eager, wagma and diloco have it by default.
    AdmissionRule admission{.grace = compute_ / (has_local_steps() ? 50 : 20)};
    if (has_models_) admission.count = 1;
    if (!has_models_) admission.permille = 500;
    if (!has_models_) admission.staleness = has_local_steps() ? 32 : 16;
    ranks_.push_back(
        {.replica = std::make_unique<Replica>(
             Replica::Options{.self = rank,
                              .admission = admission,
                              .max_wait = max_wait_,
                              .election_timeout = kElectionTimeout,
                              .kernels = &ScalarKernels(),
                              .hosts = hosts_,
                              .limits = {.least_bytes = 64, .most_bytes = 64}},
             RoundMemory::Shape{.size = kSize, .log = has_models_ ? 2 : 16, .models = rule_},
             *layout_)});
    if (has_models_) ranks_.back().replica->Begin();
  }

  bool IsCut(int32_t from, int32_t to) const {
    if (!IsFaulty()) return false;
    if (fault_ == SilentFault::kUnplug) return IsOfLastHost(from) != IsOfLastHost(to);
    const bool there = from == from_ && to == to_, back = from == to_ && to == from_;
    if (fault_ == SilentFault::kCutOneWay) return there;
    return fault_ == SilentFault::kCutBothWays && (there || back);
  }

  bool IsStopped(int32_t rank) const {
    return fault_ == SilentFault::kStop && rank == kSize - 1 && IsFaulty();
  }

  // ---- Links ------------------------------------------------------------------------------------

  void Put(int32_t from, EncodedMessage message) {
    Link& link = LinkOf(from, message.to);
    const int32_t host = hosts_[static_cast<size_t>(from)];
    Time* busy_until = &busy_until_[static_cast<size_t>(host)];
    *busy_until = std::max(*busy_until, now_);
    if (hosts_[static_cast<size_t>(message.to)] != host && !message.body.empty())
      *busy_until += piece_takes_;
    Time arrives = *busy_until + kLongestDelay / 4 + Below(kLongestDelay / 2);
    if (!link.mail.empty()) arrives = std::max(arrives, link.mail.back().arrives);
    link.mail.push_back({arrives, std::move(message)});
  }

  void Send(int32_t from, EncodedMessage message) {
    Link& link = LinkOf(from, message.to);
    if (link.stuck_since == 0 && IsCut(from, message.to)) link.stuck_since = now_;
    if (link.stuck_since == 0) return Put(from, std::move(message));
    link.unsent.push_back(std::move(message));
  }

  // A message that was sent in vain is sent again, each time after twice as long.
  void Retry(int32_t from, int32_t to) {
    Link& link = LinkOf(from, to);
    if (link.stuck_since == 0 || IsCut(from, to)) return;
    Time at = link.stuck_since;
    for (Time wait = kRetry; at < now_; wait *= 2) at += wait;
    if (at >= now_ + kTick) return;
    link.stuck_since = 0;
    for (EncodedMessage& message : std::exchange(link.unsent, {})) Put(from, std::move(message));
  }

  // ---- Ranks ------------------------------------------------------------------------------------

  void Turn(int32_t rank) {
    for (int32_t to = 0; to < kSize; ++to) Retry(rank, to);
    if (IsStopped(rank)) return;
    Rank& it = RankOf(rank);
    bool is_due = it.until <= now_ || (it.waits && it.look_at <= now_);
    for (int32_t from = 0; from < kSize; ++from) {
      std::deque<Mail>& mail = LinkOf(from, rank).mail;
      for (; !mail.empty() && mail.front().arrives <= now_; mail.pop_front(), is_due = true)
        it.replica->OnMessage(from, mail.front().message.Whole(), now_);
    }
    is_due |= Train(rank);
    if (!is_due) return;
    it.look_at = now_ + kLook;
    do {
      it.until = it.replica->Advance(now_);
      Train(rank);
    } while (it.until <= now_);
    for (EncodedMessage& message : it.replica->TakeMessages()) Send(rank, std::move(message));
  }

  // True: it has done something.
  bool Train(int32_t rank) {
    Rank& it = RankOf(rank);
    if (it.seeks) return Seek(rank);
    if (it.replica->IsAsked(it.read, now_)) it.replica->Give(it.read, Bytes(sizeof(uint64_t)));
    if (!it.waits) {
      if (it.computes_until > now_) return false;
      it.awaited = it.replica->Publish({});
      it.waits = true;
      return true;
    }
    if (it.replica->executed() < it.awaited) return false;
    if (!Take(rank)) return true;
    it.waits = false;
    it.lengths.push_back(now_ - it.began);
    it.began = it.last_step_at = now_;
    it.computes_until = now_ + compute_ + Below(kUneven);
    return true;
  }

  // The versions that have come. False: it seeks a state from which the log leads on.
  bool Take(int32_t rank) {
    Rank& it = RankOf(rank);
    std::vector<float> numbers(layout_->length_bytes() / sizeof(float));
    void* to[] = {numbers.data()};
    if (has_models_) {
      Merged merged;
      it.replica->Merge(it.awaited, to, &merged);
      return true;
    }
    while (it.read < it.replica->executed()) {
      RoundRecord record;
      if (it.replica->Read(it.read + 1, to, &record) != Found::kYes) {
        it.seeks = true;
        return false;
      }
      ++it.read;
    }
    return true;
  }

  bool Seek(int32_t rank) {
    Rank& it = RankOf(rank);
    Replica::Snapshot snapshot;
    if (!it.replica->RequestSnapshot(&snapshot)) return false;
    it.read = snapshot.version;
    it.seeks = false;
    return true;
  }

  // ---- Figures ----------------------------------------------------------------------------------

  bool IsMeasured(int32_t rank) const {
    if (fault_ == SilentFault::kStop) return rank != kSize - 1;
    return fault_ != SilentFault::kUnplug || !IsOfLastHost(rank);
  }

  std::string FaultText() const {
    const char* names[] = {"rank 7 stopped", "the last host unplugged", "a link cut one way",
                           "a link cut both ways"};
    const char* methods[] = {"gradients, ", "models, ", "deltas, "};
    std::string text = methods[static_cast<size_t>(method_)];
    text += names[static_cast<size_t>(fault_)];
    if (IsOfALink()) text += ": " + std::to_string(from_) + " to " + std::to_string(to_);
    return text + ", from " + std::to_string(fault_begin_) + " to " +
           std::to_string(fault_begin_ + fault_lasts_) + " ns";
  }

  SilenceVerdict Verdict() {
    SilenceVerdict verdict{.swarm = FaultText(),
                           .bound = std::min(max_wait_, kElectionTimeout) + compute_ + kUneven +
                                    kLook + messages_ + (IsOfALink() ? kFetches : 0)};
    for (int32_t r = 0; r < kSize; ++r) {
      const Rank& it = RankOf(r);
      Time lost = 0;
      for (const Time length : it.lengths) {
        verdict.hash = verdict.hash * 31 + static_cast<uint64_t>(length);
        if (!IsMeasured(r)) continue;
        verdict.longest = std::max(verdict.longest, length);
        if (length > 2 * compute_) lost += length - compute_;
      }
      verdict.lost = std::max(verdict.lost, lost);
      verdict.abandoned += it.replica->abandoned();
      verdict.terms = std::max(verdict.terms, it.replica->term());
      if (it.last_step_at < kEnd - 2 * max_wait_)
        verdict.failure = "rank " + std::to_string(r) + " waits for ever";
      for (uint64_t v = it.replica->log().first(); r == 0 && v <= it.replica->executed(); ++v)
        verdict.by_hub += it.replica->log().Find(v)->hub >= 0 ? 1 : 0;
    }
    verdict.versions = RankOf(0).replica->executed();
    if (fault_ == SilentFault::kStop && verdict.by_hub > 0)
      verdict.failure = "the links of a rank that was stopped are there, and were not used";
    if (verdict.longest > verdict.bound)
      verdict.failure = "a step of a rank that runs took " + std::to_string(verdict.longest) +
                        " ns, more than " + std::to_string(verdict.bound);
    return verdict;
  }

  Rng rng_;
  const SilentFault fault_;
  const SilentMethod method_;
  const bool has_models_;
  const Time compute_, max_wait_;
  Time piece_takes_ = 0, messages_ = 0;  // on the way out of a host; of an attempt
  std::array<Time, kHosts> busy_until_{};
  std::vector<int32_t> hosts_;  // by rank
  ModelRule rule_;
  std::unique_ptr<RoundLayout> layout_;
  Time fault_begin_ = 0, fault_lasts_ = 0;
  uint64_t amid_ = 0;  // an attempt is to be under way for so many ticks; 0: it begins at its time
  int32_t from_ = 0, to_ = 0;  // the ends of the link that is cut
  std::vector<Rank> ranks_;
  std::vector<Link> links_;
  Time now_ = kBegin;
};

}  // namespace

SilenceVerdict RunHostSilence(uint64_t seed, SilentMethod method, SilentFault fault) {
  return Silence(seed, method, fault).Run();
}

SilenceVerdict RunHostSilence(uint64_t seed) {
  Rng rng(~seed);
  const auto fault = static_cast<SilentFault>(rng.Below(4));
  return RunHostSilence(seed, static_cast<SilentMethod>(rng.Below(3)), fault);
}

}  // namespace covey
