#include "tests/sim/simulator/simulation.h"

#include <algorithm>
#include <map>

#include "tests/sim/simulator/rank.h"

namespace covey {
namespace {

// A seed that takes more steps, or in which all ranks sleep for so long while nothing comes
// forward, hangs. The longest fault, a clogged link or a stopped rank, lasts five seconds; a few
// may follow each other.
constexpr uint64_t kMostSteps = 10'000'000;
constexpr Time kLongestStandstill = 120 * kSecond;
constexpr Time kLongestFault = 5 * kSecond;
constexpr int kMostPauses = 20;

class Simulation final : public InprocWatcher {
 public:
  Simulation(uint64_t seed, bool trace, Focus focus) : job_{.seed = seed, .rng = Rng(seed)} {
    job_.swarm = Swarm::Draw(&job_.rng, focus);
    const Swarm& s = job_.swarm;
    job_.program = MakeProgram(s, &job_.rng);
    const size_t ops = job_.program.ops.size();
    job_.expected.resize(ops);
    job_.outcomes.resize(ops);
    job_.has_outcome.resize(ops);
    job_.first_result.resize(ops);
    job_.last_joined.resize(ops, -1);
    job_.network = std::make_unique<InprocNetwork>(
        InprocNetwork::Options{.size = s.size,
                               .seed = job_.rng.Next(),
                               .region_bytes = s.region_bytes,
                               .blind_ranks = s.blind_ranks,
                               .longest_delay = s.message_delay,
                               .mailbox_messages = s.mailbox_messages,
                               .refusal_percent = s.refusal_percent,
                               .clog_percent = s.clog_percent,
                               .longest_clog = s.mirrored ? kLongestFault / 100 : kLongestFault,
                               .longest_store_delay = s.store_delay,
                               .longest_news_delay = s.news_delay,
                               .watcher = this});
    job_.journal = std::make_unique<Journal>(Journal::Options{.clock = &job_.network->clock(),
                                                              .size = s.size,
                                                              .streams = s.streams,
                                                              .mirrored = s.mirrored,
                                                              .trace = trace});
    for (int32_t r = 0; r < s.size; ++r) ranks_.push_back(std::make_unique<SimRank>(&job_, r));
    paused_until_.resize(ranks_.size(), 0);
  }

  Verdict Run() {
    while (job_.journal->failure().empty() && !IsOver()) Step();
    if (job_.journal->failure().empty()) CheckRest();
    Verdict verdict{.seed = job_.seed,
                    .failure = job_.journal->failure(),
                    .swarm = job_.swarm.ToString(),
                    .hash = job_.journal->hash(),
                    .steps = steps_,
                    .tally = job_.journal->tally()};
    for (const auto& rank : ranks_) {
      verdict.tally.repeats_begun += rank->runtime().counters().repeats_begun;
      verdict.tally.repeats_done += rank->runtime().counters().repeats_done;
    }
    // Calls of dead ranks must be run to their end, or their stacks would leak.
    job_.journal->Close();
    job_.stop = true;
    for (const auto& rank : ranks_)
      while (!rank->Ended()) rank->Resume();
    return verdict;
  }

  void OnPoint(Rank r) override {
    if (running_ == r && !job_.stop && job_.rng.Below(1000) < job_.swarm.switch_permille)
      ranks_[static_cast<size_t>(ToInt(r))]->Yield();
  }
  void OnRing(Rank r, bool mail) override {
    // Runtimes that end free memory, which lets stores of others be seen; some may be gone.
    if (!ranks_.empty() && !job_.stop) ranks_[static_cast<size_t>(ToInt(r))]->OnRing(mail);
  }

 private:
  bool IsLive(size_t r) const {
    return !job_.network->IsDead(Rank{static_cast<int32_t>(r)}) && !ranks_[r]->Ended();
  }

  bool IsOver() {
    bool over = job_.network->messages_under_way() == 0;
    for (size_t r = 0; r < ranks_.size() && over; ++r) over = !IsLive(r) || ranks_[r]->IsAtRest();
    return over;
  }

  void Step() {
    ++steps_;
    InprocNetwork& network = *job_.network;
    network.Settle();
    Inflict();
    std::vector<size_t> runnable;  // slow ranks stand once, the others sixteen times
    Time next = network.NextArrival();
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (!IsLive(r)) continue;
      const bool paused = paused_until_[r] > network.clock().Now();
      if (paused || !ranks_[r]->IsRunnable()) {
        next = std::min(next, paused ? paused_until_[r] : ranks_[r]->WakesAt());
        continue;
      }
      const bool slow = (job_.swarm.slow_ranks >> r & 1) != 0;
      runnable.insert(runnable.end(), slow ? 1 : 16, r);
    }
    if (runnable.empty()) {
      if (next == kNever && !IsOver())
        return job_.journal->Fail("everybody sleeps for ever\n" + StatusTexts());
      if (next == kNever) return;
      const Time leap = std::max<Time>(next - network.clock().Now(), 1);
      network.clock().Advance(leap);
      slept_ += leap;
      return CheckProgress();
    }
    const size_t r = runnable[job_.rng.Below(runnable.size())];
    running_ = Rank{static_cast<int32_t>(r)};
    job_.journal->OnStep(running_);
    ranks_[r]->Resume();
    running_ = kNoRank;
    network.clock().Advance(
        static_cast<Time>(job_.rng.Below(static_cast<uint64_t>(job_.swarm.step))));
    CheckProgress();
  }

  // The faults that strike between two steps.
  void Inflict() {
    const Swarm& s = job_.swarm;
    constexpr uint64_t kMillion = 1'000'000;
    const size_t victim = job_.rng.Below(ranks_.size());
    if (!IsLive(victim)) return;
    if (pauses_ < kMostPauses && job_.rng.Below(kMillion) < s.pauses_ppm) {
      ++pauses_;
      paused_until_[victim] =
          job_.network->clock().Now() + static_cast<Time>(job_.rng.Below(uint64_t{kLongestFault}));
    }
    if (kills_ < s.most_kills && job_.rng.Below(kMillion) < s.kills_ppm) {
      ++kills_;
      const Rank rank{static_cast<int32_t>(victim)};
      job_.journal->OnLoss(rank, Journal::Loss::kDied);
      job_.network->Kill(rank, "has died");
    }
  }

  void CheckProgress() {
    if (job_.journal->last_progress() != last_progress_) slept_ = 0;
    last_progress_ = job_.journal->last_progress();
    if (steps_ > kMostSteps || slept_ > kLongestStandstill)
      job_.journal->Fail("nothing comes forward\n" + StatusTexts());
  }

  std::string StatusTexts() {
    std::string text;
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (IsLive(r)) text += "rank " + std::to_string(r) + ": " + ranks_[r]->runtime().StatusText();
    return text;
  }

  void CheckRest() {
    job_.journal->CheckRest();
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (IsLive(r)) ranks_[r]->CheckRest();
    CheckChannels();
  }

  // The channels of a stream stand alike on all members.
  void CheckChannels() {
    std::map<std::pair<uint64_t, std::string>, const Channel*> seen;
    const auto check = [&](const Stream& stream) {
      const auto& members = stream.group->members;
      if (std::any_of(members.begin(), members.end(),
                      [&](Rank m) { return job_.journal->IsLost(m); }))
        return;
      const Channel& mine = stream.channel;
      const auto [it, fresh] = seen.try_emplace({stream.group->key, stream.name}, &mine);
      const Channel& first = *it->second;
      if (mine.ticks != first.ticks || mine.slots != first.slots ||
          mine.exchanges != first.exchanges || mine.blocks != first.blocks)
        job_.journal->Fail("the channels of '" + stream.name + "' differ between ranks");
    };
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const Negotiator& negotiator = ranks_[r]->runtime().negotiator();
      for (const auto& stream : negotiator.streams().all()) check(*stream);
      negotiator.bundles().ForEachCarrier(check);
    }
  }

  Job job_;
  std::vector<std::unique_ptr<SimRank>> ranks_;
  std::vector<Time> paused_until_;
  Rank running_ = kNoRank;
  uint64_t steps_ = 0;
  Time last_progress_ = 0;
  Time slept_ = 0;  // by all together, since then
  int pauses_ = 0;
  int32_t kills_ = 0;
};

}  // namespace

Verdict RunSeed(uint64_t seed, bool trace, Focus focus) {
  return Simulation(seed, trace, focus).Run();
}

}  // namespace covey
