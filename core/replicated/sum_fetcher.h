// The shards of a sum that others have, asked of them in turns: a replica that comes late, or has
// lost a member that was to send it one, gets the rest so.
//
//   shard     event                                          becomes
//   missing   a holder has room, and was not asked for it    asked of it: kFetch
//   asked     it came, from any member                       there
//   asked     its holder is lost, or overdue                 missing
//
// A holder is overdue when it has sent nothing for `patience`. Each is asked for at most kMostAsked
// shards at a time, and for each once: links lose nothing, so a slow holder answers some time.
// Sans-IO; one thread.
#ifndef COVEY_CORE_REPLICATED_SUM_FETCHER_H_
#define COVEY_CORE_REPLICATED_SUM_FETCHER_H_

#include <set>
#include <vector>

#include "core/replicated/formation.h"

namespace covey {

class SumFetcher {
 public:
  static constexpr size_t kMostAsked = 4;

  explicit SumFetcher(int32_t size) : holders_(static_cast<size_t>(size)) {}

  // By member; those of before stay.
  void AddHolders(const std::vector<bool>& holders);
  void OnSummed(int32_t from, size_t shard, Time now);
  void OnLoss(int32_t member);
  bool HasHolder() const;
  // Asks for what `formation` lacks.
  void Advance(const Formation& formation, Outbox* outbox, Time patience, Time now);

 private:
  struct Holder {
    bool has_it = false, is_overdue = false;
    std::set<size_t> tried;  // shards that it was asked for,
    std::set<size_t> asked;  // and is to send
    Time since = 0;          // it was asked, or has sent something
  };

  void DropOverdue(Time patience, Time now);
  int32_t Next(size_t shard);

  std::vector<Holder> holders_;
  std::set<size_t> asked_;  // of any
  size_t turn_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_SUM_FETCHER_H_
