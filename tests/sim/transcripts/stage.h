// Whole runtimes that follow a script, one command at a time, and a record of their events.
//
// Time stands still unless a command advances it; messages arrive at once unless held; a rank moves
// only when told. So a transcript depends on nothing but the protocol. The commands (RANKS is `0`,
// `0,2` or `all`; the first command is `ranks`):
//
//   ranks N [segment=BYTES] [fusion=BYTES]
//                                 a job of N ranks; bundles of so many bytes (0: none)
//   group NAME RANKS              a group, for group=NAME
//   submit RANKS NAME KIND SHAPE [dtype=T] [op=O] [root=R] [group=G] [callback=yes]
//                                 NAME `-`: unnamed; SHAPE `2x3`; rank r's elements are all 2^r;
//                                 callback: no thread waits for it; neighbor_allreduce: from=RANKS
//                                 to=RANKS, all weights 1
//   step RANKS                    each in turn makes passes until nothing moves
//   pass RANKS                    each makes one pass
//   run                           all ranks step in turn until nothing moves anywhere
//   wait RANK NAME                the rank waits (agree-N6): passes until NAME has ended or nothing
//                                 moves
//   hold FROM TO, release FROM TO messages FROM -> TO stay under way from now on, or go on
//   kill RANK                     it is gone; peers notice when time has advanced by 50 ms
//   advance MILLISECONDS          the clock
//
// Events: `1 -> 0 ANNOUNCE a.0 ...` a message (stream.occurrence, @group unless the world);
// `1 begins a.0 entry 1` or `void`; `1 voided a.0`; `1 ends a.0 ok [7 7]`, or why not.
#ifndef COVEY_TESTS_SIM_TRANSCRIPTS_STAGE_H_
#define COVEY_TESTS_SIM_TRANSCRIPTS_STAGE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/runtime.h"
#include "ops/transports/inproc.h"

namespace covey {

class Stage final : public Observer {
 public:
  Stage();
  ~Stage() override;

  // Performs one command. Returns the lines to be seen; of a command it does not know, one line
  // that says so.
  std::vector<std::string> Do(const std::string& command);

  void OnSend(Rank rank, Rank to, const Message& message) override;
  void OnReceive(Rank, Rank, const Message&) override {}
  void OnBegin(Rank rank, const OperationId& id, uint32_t entry) override;
  void OnExchangeEnd(Rank rank, const OperationId& id, Outcome outcome) override;
  void OnEnd(Rank rank, const Request& request, const Status& status) override;

 private:
  struct Node;
  using Words = std::vector<std::string>;

  void Say(const std::string& line) { lines_.push_back(line); }
  std::string Text(const OperationId& id) const;
  std::vector<int32_t> RanksOf(const std::string& text) const;
  bool Pass(int32_t rank);
  bool Settle(int32_t rank);

  void Ranks(const Words& words);
  void DefineGroup(const Words& words);
  void Submit(const Words& words);
  void SubmitOn(int32_t rank, const Words& words);
  void Wait(const Words& words);
  void Run();

  std::unique_ptr<InprocNetwork> network_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<std::string, std::vector<int32_t>> groups_;  // by name; "" = the world
  std::map<uint64_t, std::string> group_names_;         // by key
  std::vector<std::string> lines_;
};

}  // namespace covey
#endif  // COVEY_TESTS_SIM_TRANSCRIPTS_STAGE_H_
