// The actions of the ranks of a job, in order: a hash that tells two runs apart,
// and the rules that can be checked as things happen.
//
// Rules, by the number in PROTOCOL.md where it has one:
//  agree-N1   a begin carries the occurrence of an operation in flight, and what ends well is the
//       one that was exchanged, in order
//  agree-N2   an answer answers an announcement; at rest every announcement has its answer
//  agree-N3   members that finish an exchange began it with the same entry; at rest they have begun
//       the same exchanges with the same outcomes
//  agree-N4   a member is done only after the begin of every member
//  agree-N10  a rank that has joined begins what it has not submitted, once; no other does
//  agree-N11  an aborted operation names a lost member, and a lost member that had finished it is
//       no reason
//  agree-N14  what is dropped had ended on every member
//  Every operation ends once. No rank has more unanswered messages under way than streams.
#ifndef COVEY_TESTS_SIM_SIMULATOR_JOURNAL_H_
#define COVEY_TESTS_SIM_SIMULATOR_JOURNAL_H_

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/engine/observer.h"

namespace covey {

// How often what happened: whether a set of seeds tests what it is meant to test.
struct Tally {
  std::array<uint64_t, kNumStatusCodes> ended{};  // operations by how they ended
  std::array<uint64_t, 3> exchanges{};            // by Outcome
  uint64_t losses = 0;
  uint64_t drops = 0;                            // of streams, by a rank
  uint64_t repeats_begun = 0, repeats_done = 0;  // see Runtime::Repeat

  void Add(const Tally& other);
};

class Journal final : public Observer {
 public:
  struct Options {
    Clock* clock = nullptr;
    int32_t size = 0;
    size_t streams = 0;
    bool mirrored = false;  // what a rank that dies had stored need not be seen by its peers
    bool trace = false;     // print every line
  };
  explicit Journal(const Options& options);

  void OnSend(Rank rank, Rank to, const Message& message) override;
  void OnReceive(Rank rank, Rank from, const Message& message) override;
  void OnBegin(Rank rank, const OperationId& told, uint32_t entry) override;
  void OnExchangeEnd(Rank rank, const OperationId& told, Outcome outcome) override;
  void OnEnd(Rank rank, const Request& request, const Status& status) override;

  // The simulation's own actions.
  void OnSubmit(Rank rank, const Request& request, uint64_t occurrence);
  void OnForget(Rank rank, const Request& request);  // its handle is released
  enum class Loss : uint8_t { kLeft, kDied };
  void OnLoss(Rank rank, Loss loss);
  void OnStep(Rank rank);

  // When nothing is under way any more.
  void CheckRest();

  // Stops checking and recording: later actions of dead ranks do not count.
  void Close() { closed_ = true; }

  void Fail(const std::string& what);  // the first counts
  const std::string& failure() const { return failure_; }
  uint64_t hash() const { return hash_; }
  const Tally& tally() const { return tally_; }
  // When an operation last came forward.
  Time last_progress() const { return last_progress_; }
  bool IsLost(Rank r) const { return lost_[static_cast<size_t>(ToInt(r))]; }
  bool AnyLost() const;
  // Messages this rank has been told to send so far.
  uint64_t sent(Rank r) const { return sent_[static_cast<size_t>(ToInt(r))]; }

 private:
  struct Attempt {
    uint32_t entry = 0;
    bool ended = false;
    Outcome outcome = Outcome::kDone;
  };
  using Attempts = std::vector<Attempt>;
  struct StreamKey {
    uint64_t group;
    std::string name;
    auto operator<=>(const StreamKey&) const = default;
  };
  struct Submitted {
    uint64_t occurrence = 0;
    int ends = 0;
  };
  struct PerRank {
    std::map<StreamKey, uint64_t> dropped;  // occurrences it had when it was dropped
    std::map<const Request*, Submitted> submitted;
    std::map<StreamKey, std::set<uint64_t>> open;  // operations of a stream in flight
    bool joined = false;                           // or about to; until all have
    uint32_t joins = 0;                            // that have ended
    std::map<OperationId, Attempts> attempts;      // exchanges begun for an operation
    std::map<OperationId, int> unanswered;         // announcements
  };

  void Note(const std::string& line);
  void NoteProgress(const std::string& line);
  void NoteDropped(Rank rank, const Message& drop);
  PerRank& Of(Rank r) { return ranks_[static_cast<size_t>(ToInt(r))]; }
  // The operation in the count of the program, which goes on where names are dropped.
  OperationId Of(Rank r, OperationId id);
  const Attempts* AttemptsOf(Rank r, const OperationId& id);
  static std::vector<uint32_t> EntriesDone(const Attempts& attempts);
  void CheckDone(Rank rank, const OperationId& id);
  void CheckJoined(Rank rank, const Status& status);
  void CheckAborted(Rank rank, const OperationId& id, const Request& request, const Status& status);

  Options options_;
  std::vector<PerRank> ranks_;
  std::vector<bool> lost_;
  std::vector<bool> died_;
  std::vector<uint64_t> sent_;
  std::vector<int64_t> under_way_;                 // [from * size + to] agreeing messages
  std::map<StreamKey, std::set<uint64_t>> voids_;  // of bundles
  std::map<uint64_t, std::vector<Rank>> groups_;   // members by key
  std::string failure_;
  Tally tally_;
  uint64_t hash_ = 14695981039346656037u;
  Time last_progress_ = 0;
  bool closed_ = false;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_SIMULATOR_JOURNAL_H_
