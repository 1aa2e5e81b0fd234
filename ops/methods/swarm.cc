// swarm: each rank does some steps by itself, then averages its model with that of one other rank,
// drawn at random; no rank waits for another (SwarmSGD).
//
// Random matchings, drawn from a seed that all ranks share, choose the pairs. A rank's round n
// comes after its n-th batch of `local_steps` steps: one rank of the pair, drawn too, begins the
// average, and the other is met by it. So each rank averages once for each batch, on average, and
// none is met more often than others. Batches are equally long, or geometrically distributed
// about `local_steps`, each rank's by itself, as the paper's analysis has them.
//
// Neither form of an exchange waits. On one host both models become the mean at once, by one word
// each; between hosts by a difference, which each side adds when it comes. A partner in the middle
// of its steps keeps them: X - B, its model less the model that it handed in last, does not change.
// The forms differ in the model of the rank that begins:
//   exchange=blocking     its model with the batch that is just over: X_i = X_j = (X_i + X_j) / 2.
//                         In the paper both then wait until both batches are over.
//   exchange=nonblocking  its model before that batch, as the partner's: the paper's copies Y,
//                         X_i += (Y_j - B_i) / 2, Y_i = B_i = (B_i + Y_j) / 2. Its batch is handed
//                         in afterwards, for the next rank that averages with it.
// In the paper the second form exists to avoid waiting. Here the first does not wait either, and
// spreads progress one exchange earlier, with less to read and write: it is the default.
//
// The sum of all models is moved by steps alone, each of which counts once, and finish() leaves the
// mean of all: that is the model to look at. Momenta and buffers stay with each rank.
// With codec=lattice@8 each of the two sends its model in whole numbers of a step s, modulo 2^8,
// and decodes the other's beside its own (the paper's quantised form; ops/codecs/lattice.h):
//   d = s (k_j - k_i)      the decoded X_j - X_i; k = floor(X/s + u), the same u on both
//   X_i += d/2, X_j -= d/2
// Decided so, and not X_i = (X_i + Q(X_j)) / 2 as in the paper, nor one mean of the decoded models
// for both: the sum X_i + X_j stays, but for the rounding of float32. A residue would have to be
// kept for a partner that a third rank may average with meanwhile. The price is that
// an exchange has two results, in two buffers, which differ by less than s. By the common u d is
// right in expectation and wrong by less than s, so that each result is less than s/2 from the
// mean, and equal models stay as they are. Elements too far apart for 2^8 steps are decoded
// wrongly. A hash of all k of 1024 elements detects it; both ranks send these elements whole, and
// they become the mean. s, of each 1024 elements, reaches twice the largest recent distance:
// distance/63 at 8 bits. Parameters that are not float32 travel as they are.
// With codec=bf16, fp16, int8 or qsgd, which have scales of their own, d = Q(X_j) - Q(X_i), where
// each decodes its own code too and both round with the same draws. The sum stays likewise, equal
// models stay as they are, and nothing can be decoded wrongly; but a step is that of the codec:
// d/2 is wrong by up to the errors of two codes, halved, and models come no nearer than about a
// step: 2^-8 of a number for bf16, 1/127 of the largest of a block for int8. (The difference form
// of Carli, Fagnani, Frasca, Zampieri: Gossip consensus algorithms via quantized communication,
// Automatica 46(1), 2010, DOI 10.1016/j.automatica.2009.10.032.)
//
// Source: G. Nadiradze, A. Sabour, P. Davies, S. Li, D. Alistarh, "Asynchronous Decentralized SGD
// with Quantized and Local Updates", NeurIPS 2021, arXiv:1910.12308. The released code overwrites
// the initiator's model alone, so that its sum is not kept, and looks at rank 0's model.
// Bytes per rank and batch, on one host: blocking 2 m read and 2 m written by the rank that begins,
// 2 m by the rank that is met, and 2 m more when its model has been averaged meanwhile; nonblocking
// 3 m more for the rank that begins. Bytes that travel between hosts (pair_bytes of
// covey_stats): m each way and exchange, with lattice@8 m/4 (1.016 bytes per element), and m more
// for elements that were sent whole. On one host, where nothing travels, a codec saves nothing: it
// costs four passes more.
//
// Worked example, 4 ranks, H = local_steps = 3: after 3 steps of its own rank 0 meets, say, rank 2,
// after 6 rank 3; after 9 it does not begin, and is met by rank 1.
#include "ops/methods/pairing.h"

namespace covey {
namespace {

enum Setting : uint8_t { kLocalSteps, kSteps, kExchange, kTopology, kSeed, kMaxWait, kCross };

constexpr MethodParameter kParameters[] = {
    {.name = "local_steps",
     .letter = "H",
     .unit = "steps",
     .standard = 3,
     .minimum = 1,
     .maximum = 1000000000,
     .help = "steps of each rank by itself before it averages with another rank"},
    {.name = "steps",
     .letter = "",
     .unit = "",
     .standard = 0,
     .minimum = 0,
     .maximum = 1,
     .help = "fixed: local_steps each time; geometric: a random number of which it is the mean",
     .syntax = ValueSyntax::kSpacing},
    {.name = "exchange",
     .letter = "",
     .unit = "",
     .standard = 0,
     .minimum = 0,
     .maximum = 1,
     .help = "blocking: models with the steps just done are averaged; nonblocking: models before "
             "these steps, and the steps are added to the mean; neither form waits",
     .syntax = ValueSyntax::kForm},
    {.name = "topology",
     .letter = "",
     .unit = "",
     .standard = kAuto,
     .minimum = kAuto,
     .maximum = kNumPairKinds,
     .help = "topology of the pairs: matching (random pairs), full (every pair in turn), ring, "
             "bipartite (both for even numbers of ranks); auto: matching",
     .syntax = ValueSyntax::kPairing},
    kPairSeed,
    kPairMaxWait,
    kCrossEvery,
};

MethodPlan Plan(std::span<const int64_t> settings, const MethodView&, int64_t) {
  const int64_t told = settings[kTopology];
  return {.payload = Payload::kModel,
          .admission = Admission::kPairs,
          .pairs = {.topology = told == kAuto ? TopologyKind::kMatching : kPairKinds[told - 1],
                    .seed = static_cast<uint64_t>(settings[kSeed]),
                    .all_begin = false,
                    .local_steps = settings[kLocalSteps],
                    .is_random = settings[kSteps] != 0,
                    .non_blocking = settings[kExchange] != 0,
                    .max_wait = Duration::Of(settings[kMaxWait]),
                    .cross_every = settings[kCross]}};
}

constexpr Method kMethod{
    .name = "swarm",
    .help =
        "each rank does local_steps updates with its own gradients, then averages its model "
        "with that of one other rank, drawn at random; no rank waits for its partner",
    .bytes =
        "2 m to 4 m every local_steps steps; between hosts m each way, by codec=lattice@8 "
        "or int8 m/4, by bf16 m/2; memory: 6 m, of which 3 to 4 m are used",
    .citation =
        "Nadiradze, Sabour, Davies, Li, Alistarh: Asynchronous Decentralized SGD with Quantized "
        "and Local Updates, NeurIPS 2021, arXiv:1910.12308",
    .exchanged = "models, after every local_steps-th update",
    .partners = "one rank, drawn each time",
    .saved = "after finish(): the mean of all",
    .late =
        "any rank, for ever: no step waits; finish() and each of warmup_steps wait, for "
        "max_wait at most; a slow rank takes part with the model that it has, and none of its "
        "progress is lost",
    .learning_rate =
        "that for one rank, not times P, with the schedule of one rank's training; momentum stays "
        "with each rank",
    .memory = "6 models in each rank, of which 3 to 4 are used while ranks are equally fast",
    .scaling = Scaling::kOne,
    .codecs = CodecUse::kPairs,
    .parameters = kParameters,
    .plan = Plan};
const MethodRegistration kRegistration(kMethod);

}  // namespace
}  // namespace covey
