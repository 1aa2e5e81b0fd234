// The interface a distributed training method implements, the catalogue of those linked in, and
// the text that chooses one.
//
// A method answers one question: which exchange do the ranks do at the end of step `version`? The
// answer is pure (method-W13): it depends on settings, view and version only, so every rank, and
// every rank's engine without its trainer, knows it without asking. A method lives in one file of
// ops/methods and registers itself; adapters do what the plan says and know no method by name.
//
// The text is flat and survives a shell unquoted: "local", "local:local_steps=8,warmup_steps=100",
// "local:H=8". All methods have warmup_steps=N, gradients averaged over all ranks in the first N
// steps, where no rank waits longer than the method's max_wait; clip_norm=X, the largest norm of
// the gradients of an update; some have codec=NAME, which makes smaller what travels, with '+'
// between its own settings: "codec=topk@bits=2+block=512"; and as the last setting then=METHOD@N,
// another method from step N on, whose own settings follow:
// "allreduce:then=local@1000:H=8,then=allreduce@9000". All that follows `then=` belongs to that
// method, so nothing is ambiguous; steps are counted from the start of training.
// Any thread: the catalogue is constant once main() runs.
#ifndef COVEY_CORE_METHOD_METHOD_H_
#define COVEY_CORE_METHOD_METHOD_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/codec_descriptor.h"
#include "core/base/status.h"
#include "core/base/tensor.h"
#include "core/base/types.h"
#include "core/method/combine.h"
#include "core/method/settings.h"
#include "core/method/value_syntax.h"
#include "core/plan/topology.h"

namespace covey {

// A setting of the user. All ranks must have the same.
struct MethodParameter {
  const char* name;    // "local_steps"
  const char* letter;  // the papers' name, accepted too: "H"; empty when there is none
  const char* unit;    // "steps"
  int64_t standard;    // the default
  int64_t minimum;
  int64_t maximum;
  const char* help;
  ValueSyntax syntax = ValueSyntax::kNumber;
};

// The values covey_payload and covey_admission have in covey_methods.h: append, never renumber.
enum class Payload : int32_t {
  kNone = 0,       // a step on this rank alone
  kGradients = 1,  // before the update: gradients, reduced as the optimizer was told
  kModel = 2,      // after the update: parameters, averaged
  kDelta = 3,      // after so many updates: how the parameters have changed, as `combine` says
};
enum class Admission : int32_t {
  kAll = 0,        // an exchange runs once every member has come
  kRounds = 1,     // as versions of core/partial: once enough have come, as MethodRounds says
  kPairs = 2,      // two at a time, by core/gossip: no rank waits for another
  kNeighbors = 3,  // by a neighbor_allreduce, which all do, as MethodNeighbors says
};

// The versions of a method that has them; but for `warmup` the same at all versions.
struct MethodRounds {
  AdmitRule admit;           // which ranks must have come
  uint64_t seed = 0;         // of what is drawn
  Duration grace;            // then it waits so long for more; auto: by its own steps,
  int64_t grace_parts = 20;  // one of so many parts of what one takes
  int64_t log = 0;           // results kept
  Duration max_wait;         // how long a rank waits for one version
  int64_t group_size = 0;    // kModel: so many average, at most
  int64_t sync_every = 0;    // kModel: all, each so-many-th version
  int64_t cross_every = 1;   // kModel: so many versions for one whose groups are between hosts
  // kModel, kDelta: steps between a rank's versions; 0: each step is one.
  int64_t local_steps = 0;
  bool skips_ahead = false;   // a late rank goes on with the step after the last version
  int64_t max_staleness = 0;  // versions a rank may be behind before all wait for it; 0: any number
  int64_t warmup = 0;         // so many versions from this one on, those of a warm-up, wait for all
  // From the so-many-th version on, counted from this one, all wait for all: with each of these the
  // rounds may end, for another method follows; 0: none does. Not of models with local_steps, whose
  // versions are all so.
  int64_t ending = 0;

  friend bool operator==(const MethodRounds&, const MethodRounds&) = default;
};

// kInvalidArgument says why `size` ranks cannot have them: "admits with 4 ranks, but there are 3".
Status CheckSize(const MethodRounds& rounds, int32_t size);

// The partners of each rank, and when; the same at all versions.
struct MethodPairs {
  TopologyKind topology = TopologyKind::kMatching;
  uint64_t seed = 0;          // of a random one, and of random numbers of steps
  bool all_begin = true;      // else one of each pair, and the other is met by it
  int64_t local_steps = 1;    // steps between a rank's exchanges
  bool is_random = false;     // these are a mean: geometrically distributed
  bool non_blocking = false;  // averages what was pushed last, adds later steps (SwarmSGD)
  Duration max_wait;          // in finish(), which is all that waits
  int64_t cross_every = 1;    // so many rounds of the topology for one between hosts

  friend bool operator==(const MethodPairs&, const MethodPairs&) = default;
};

// The neighbors of a rank at this version.
struct MethodNeighbors {
  TopologyKind topology = TopologyKind::kRing;
  uint64_t seed = 0;          // of a random one
  uint64_t round = 0;         // of the topology
  bool adapts_first = false;  // the average is of updated models, else the update of the average
  Duration max_wait;          // how long a rank waits for the others at a step
  int64_t cross_every = 1;    // so many rounds of the topology for one between hosts

  friend bool operator==(const MethodNeighbors&, const MethodNeighbors&) = default;
};

struct MethodPlan {
  Payload payload = Payload::kNone;
  Admission admission = Admission::kAll;
  MethodRounds rounds = {};        // kRounds
  MethodPairs pairs = {};          // kPairs
  MethodNeighbors neighbors = {};  // kNeighbors

  friend bool operator==(const MethodPlan&, const MethodPlan&) = default;
};

// The ranks that train together, and which of them asks.
struct MethodView {
  int32_t size;
  GroupIndex rank;
  std::span<const int32_t> hosts = {};  // by rank, as Topology's; outlives its users
  bool shares_memory = true;            // as Group's
};

inline MethodView ViewOf(const Group& group) {
  return {.size = group.size(),
          .rank = group.my_index,
          .hosts = group.hosts,
          .shares_memory = group.shares_memory};
}

// That of a plan, among the ranks of the view; core/plan/topology.h checks it.
template <typename Partners>  // MethodPairs, MethodNeighbors
Topology TopologyOf(const Partners& partners, const MethodView& view) {
  return {.kind = partners.topology,
          .size = view.size,
          .seed = partners.seed,
          .matrix = {},
          .hosts = {view.hosts.begin(), view.hosts.end()},
          .cross_every = partners.cross_every};
}

// By what a learning rate that is right for one rank is to be multiplied.
enum class Scaling : uint8_t {
  kRanks,  // their number: an update stands for a batch that is so much larger
  kOne,
};

struct Method {
  const char* name;      // "local"
  const char* help;      // one sentence: the exchange and its time
  const char* bytes;     // per rank, P ranks; g: bytes of the gradients, m: of the parameters
  const char* citation;  // authors, title, year, where
  // In few words, for a table: the exchange, its partners, and the model to save.
  const char* exchanged = "";
  const char* partners = "";
  const char* saved = "";
  const char* late = "";           // which ranks may be late, and how far; then the consequences
  const char* learning_rate = "";  // the rule, in words
  const char* memory = "";         // beyond gradients and model
  Scaling scaling = Scaling::kRanks;
  CodecUse codecs = CodecUse::kNone;  // the part of it that the setting `codec` encodes
  const char* no_codec = "";          // kNone: why, for the error message
  std::span<const MethodParameter> parameters;
  // `settings[i]` is the value of parameters[i], in its range. REQUIRES: version >= 0, the number
  // of steps this rank has done.
  MethodPlan (*plan)(std::span<const int64_t> settings, const MethodView& view, int64_t version);
  // kDelta: the arrays that it keeps beside the replicated model, by name; and how a version
  // changes both. All ranks do it, with equal results: it depends on its arguments only.
  std::span<const char* const> state = {};
  void (*combine)(std::span<const int64_t> settings, const CombineArrays& arrays) = nullptr;
};

std::span<const Method* const> Methods();         // sorted by name
const Method* FindMethod(std::string_view name);  // null: none of that name

struct MethodRegistration {
  explicit MethodRegistration(const Method& method);
};

inline constexpr int64_t kForever = INT64_MAX;  // a version that never comes

// A method with a value for each of its parameters, and the next method.
struct MethodChoice {
  const Method* method = nullptr;
  std::vector<int64_t> settings;
  int64_t warmup_steps = 0;             // in its first steps gradients of all
  int64_t clip_norm = 0;                // ValueSyntax::kNorm
  std::string codec = {};               // with every value, '+' for ','; empty: none
  int64_t from = 0;                     // the version it begins at
  std::vector<MethodChoice> then = {};  // none, or the method that begins later

  // With every parameter by its full name, but those that are off: equal texts mean equal choices.
  std::string Text() const;
  // The text of this method alone, as it would be chosen by itself without a warm-up; it is clipped
  // there too, so clip_norm stays.
  std::string OwnText() const;
  // The exchange at `version`. A method's own plan counts from where it begins. The warm-up of
  // one that has a max_wait is made of rounds of gradients, else of plain allreduce. The last step
  // of a method whose replicas differ, before another one begins, averages the models of all,
  // unless it goes in rounds: those have to be finished.
  MethodPlan Plan(const MethodView& view, int64_t version) const;
  // The one of this and `then` that holds at `version`, and the first later version at which
  // another one holds, or a warm-up is over; kForever when there is none. Rounds of gradients are
  // the same ones in their warm-up and afterwards: for them it is no part of its own.
  const MethodChoice& At(int64_t version) const;
  int64_t Until(int64_t version) const;
};

// kInvalidArgument names what is wrong, what exists, and the nearest to what was written; *choice
// is then unchanged.
Status ParseMethod(std::string_view text, MethodChoice* choice);

// All methods: a JSON array of {name, help, bytes, citation, exchanged, partners, saved, late,
// learning_rate, memory, lr_scale ("ranks" or "one"), parameters: [{name, letter, unit, default,
// minimum, maximum, help}]}; what is not written as a number is a string. The parameters that all
// methods have come last.
std::string MethodsJson();

}  // namespace covey
#endif  // COVEY_CORE_METHOD_METHOD_H_
