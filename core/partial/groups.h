// The groups in which a version averages models (partial-W12). Pure; any thread.
//
// P members, groups of at most S, versions v = 0, 1, 2, ...
//
// P and S powers of two (section III of the paper, with its bits wrapped round): members that agree
// in all bits of their index but the log2 S bits (v log2 S + r) mod log2 P, r = 0 .. log2 S - 1.
// Every group has S members, and after ceil(log2 P / log2 S) versions in which no rank was late all
// models are the mean of all.
//
// Any other P and S: with d = ceil(log_S P), members that agree in all base-S digits but digit
// v mod d of (index + floor(v / d)) mod P. Groups have 1 to S members. Where P = S^d all models are
// the mean of all after the d versions from a multiple of d on; elsewhere they come closer.
//
// In both, each version divides the members into groups, so the averaging is doubly stochastic: it
// moves no mean. S = 1: each member by itself.
//
// Where members lie on several hosts, cross_every = k makes groups of members of one host, and in
// every k-th version, those with (v + 1) mod k = 0, of members of different hosts: then the first
// members of all hosts are a set, their second ones, and so on (core/plan/host_rounds.h). Each host
// or set divides as above, by a count of its own kind of versions, in groups of at most S.
//
// Worked example, P = 8, S = 4: v = 0 differs in bits 0 1: {0 1 2 3} {4 5 6 7}; v = 1 in bits 2 0:
// {0 1 4 5} {2 3 6 7}; v = 2 in bits 1 2: {0 2 4 6} {1 3 5 7}. P = 5, S = 2, so d = 3: v = 0:
// {0 1} {2 3} {4}; v = 1: {0 2} {1 3} {4}; v = 2: {0 4} {1} {2} {3}; v = 3, of index + 1: {4 0}
// {1 2} {3}. P = 4 on two hosts {0 1} {2 3}, S = 2, k = 3: v = 1 {0 1} {2 3}, v = 2 {0 2} {1 3}.
#ifndef COVEY_CORE_PARTIAL_GROUPS_H_
#define COVEY_CORE_PARTIAL_GROUPS_H_

#include <cstdint>
#include <vector>

namespace covey {

// The rule by which versions average models, if they do. Agreed by all ranks before the first
// publish.
struct ModelRule {
  int32_t group_size = 0;   // S; 0: versions are sums of gradients, of all
  uint64_t sync_every = 1;  // tau: each so-many-th version is of all, and waits for all;
  uint64_t ending = 0;      // so is every one from this on, with which the rounds may end; 0: none
  // By member: its host, a number below that of the members. Empty: hosts make no difference.
  std::vector<int32_t> hosts = {};
  int64_t cross_every = 1;  // k; 1: hosts make no difference
  bool has_deltas = false;  // versions are sums of deltas, of all

  bool on() const { return group_size > 0; }
  // The first hyper-parameter of a contribution is the number of steps that its member has done.
  bool CountsSteps() const { return on() || has_deltas; }
  bool IsSync(uint64_t version) const { return LastSync(version) == version; }
  // The last version of all up to this one; 0: none yet.
  uint64_t LastSync(uint64_t version) const {
    return ending > 0 && version >= ending ? version : version - version % sync_every;
  }
  // A version of all has come after step `step`, up to `version`.
  bool HasSuperseded(uint64_t step, uint64_t version) const { return LastSync(version) > step; }
  // A model of step `step` is in no version from `version` on: one of all has passed it by.
  bool IsTooOld(uint64_t step, uint64_t version) const {
    return step + sync_every <= version || HasSuperseded(step, version - 1);
  }
};

// The group of each member, by index: groups have numbers 0, 1, ... in the order of their first
// members. REQUIRES: 1 <= group_size <= size.
std::vector<int32_t> GroupsOf(int32_t size, int32_t group_size, uint64_t version);
// The same, by hosts where the rule says so. REQUIRES: rule.on().
std::vector<int32_t> GroupsOf(const ModelRule& rule, int32_t size, uint64_t version);

// The most groups that any version has; by hosts, no version has more.
int32_t MostGroups(int32_t size, int32_t group_size);
int32_t MostGroups(const ModelRule& rule, int32_t size);

}  // namespace covey
#endif  // COVEY_CORE_PARTIAL_GROUPS_H_
