#include "tests/sim/simulator/host_witness.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace covey {

HostWitness::HostWitness(Rng rng, size_t size, Time now, Time span, Time longest_delay)
    : rng_(rng), longest_delay_(longest_delay), on_return_(size) {
  const auto length = static_cast<uint64_t>(span);
  if (rng_.Percent(15)) gone_at_ = now + static_cast<Time>(rng_.Below(length));
  if (!rng_.Percent(50)) return;
  cut_ranks_ = rng_.Percent(20) ? ~uint64_t{0} : rng_.Next();
  cuts_requests_ = rng_.Percent(70);
  cuts_answers_ = !cuts_requests_ || rng_.Percent(50);
  cut_begin_ = now + static_cast<Time>(rng_.Below(length));
  cut_end_ = cut_begin_ + static_cast<Time>(rng_.Below(length));
}

Time HostWitness::ArrivalOf(int32_t rank, bool is_answer, Time now) {
  Time arrives = now + static_cast<Time>(rng_.Below(static_cast<uint64_t>(longest_delay_)));
  const bool is_cut = (cut_ranks_ >> rank & 1) != 0 && cut_begin_ <= now && now < cut_end_;
  if (is_cut && (is_answer ? cuts_answers_ : cuts_requests_)) arrives = cut_end_;
  return arrives;
}

void HostWitness::Send(int32_t rank, WitnessRequest request, Time now) {
  CHECK(!HasRequestOf(rank), "a rank has one request under way");
  ++requests_;
  const Time arrives = ArrivalOf(rank, false, now);
  const auto later = std::find_if(on_way_.begin(), on_way_.end(),
                                  [&](const Request& other) { return other.arrives > arrives; });
  on_way_.insert(later, {rank, arrives, std::move(request)});
}

bool HostWitness::HasRequestOf(int32_t rank) const {
  return std::any_of(on_way_.begin(), on_way_.end(),
                     [rank](const Request& request) { return request.rank == rank; });
}

void HostWitness::Advance(Time now) {
  while (!on_way_.empty() && on_way_.front().arrives <= now) {
    const Request one = std::move(on_way_.front());
    on_way_.pop_front();
    if (one.arrives >= gone_at_) continue;
    const bool is_taken = !one.request.record.empty() && one.request.state == state_;
    if (is_taken) {
      const Progress before = record_.accepted;
      bytes_ = one.request.record;
      ++state_;
      CHECK(WitnessRecord::Decode(bytes_, &record_), "a replica writes records");
      ++(record_.accepted == before ? votes_ : acceptances_);
    }
    on_return_[static_cast<size_t>(one.rank)].push_back(
        {ArrivalOf(one.rank, true, one.arrives),
         {.number = one.request.number, .state = state_, .is_taken = is_taken, .record = bytes_}});
  }
}

bool HostWitness::Receive(int32_t rank, Time now, WitnessAnswer* answer) {
  Advance(now);
  std::deque<Answer>& answers = on_return_[static_cast<size_t>(rank)];
  if (answers.empty() || answers.front().arrives > now) return false;
  *answer = std::move(answers.front().answer);
  answers.pop_front();
  return true;
}

}  // namespace covey
