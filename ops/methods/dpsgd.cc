// dpsgd: each rank trains on its own model, and at each step averages it with its neighbors' in a
// topology; all do so together (decentralised parallel SGD).
//
// Combine while adapting (cwa, the paper's): x_i becomes the sum of W_ij x_j, then rank i's update,
// from gradients of x_i as it was, is applied to that. Adapt then combine (atc): x_i becomes the
// sum of W_ij (x_j + update_j). Rows and columns of W sum to 1, so the mean of all models is moved
// by the mean of the updates and by nothing else; without updates models come together by the
// topology's contraction each step (covey.topology says it). one_peer has one neighbor per step,
// another one each time; for P = 2^d that is the exact mean after d steps.
//
// An averaging begins when all ranks have come, as every negotiated exchange does: the method saves
// bytes, not waiting. With max_wait a rank that waits for longer gets a Timeout, which names the
// missing ranks, and calls step() again to wait on. The weights stay as they are meanwhile, for an
// exchange that has begun on one rank may have ended on another. adpsgd and swarm are the methods
// without waiting.
//
// Source: X. Lian, C. Zhang, H. Zhang, C.-J. Hsieh, W. Zhang, J. Liu, "Can Decentralized Algorithms
// Outperform Centralized Algorithms? A Case Study for Decentralized Parallel Stochastic Gradient
// Descent", NIPS 2017, arXiv:1705.09056; the two orders: J. Chen, A. H. Sayed, "Diffusion
// Adaptation Strategies for Distributed Optimization and Learning over Networks", IEEE Transactions
// on Signal Processing 60(8), 2012, DOI 10.1109/TSP.2012.2198470; one peer: B. Ying, K. Yuan,
// Y. Chen, H. Hu, P. Pan, W. Yin, "Exponential Graph is Provably Efficient for Decentralized Deep
// Training", NeurIPS 2021, arXiv:2110.13363.
//
// With codec=NAME models travel encoded (core/run/codec.h), as differences: x_i is moved by the sum
// of W_ij (Q(x_j) - Q(x_i)), where all ranks round with the same draws. The mean of all models
// stays, up to rounding of float32, for rows and columns of W sum to 1, and equal models are not
// moved; each rank keeps the rounding error of its own. Models come no nearer to each other than
// about a step of Q: 2^-8 of a number for bf16, 1/127 of the largest of a block for int8. (The
// difference form of Carli, Fagnani, Frasca, Zampieri: Gossip consensus algorithms via quantized
// communication, Automatica 46(1), 2010, DOI 10.1016/j.automatica.2009.10.032.)
//
// Bytes per rank and step: m staged, and m read for each neighbor; with a codec, as many encoded.
//
// With cross_every=k ranks average within their host, and between hosts in every k-th step
// (core/plan/host_rounds.h): bytes between hosts fall to about a k-th of those of a topology whose
// neighbors all lie on other hosts, and models of different hosts come together as much slower.
//
// Worked example, 4 ranks: ring: rank 1 takes from 0 and 2, 1/3 each, at all steps. one_peer: rank
// 1 takes from 0, 3, 0, 3, ..., 1/2 each.
#include "core/method/method.h"
#include "core/method/shared_parameters.h"

namespace covey {
namespace {

enum Setting : uint8_t { kTopology, kOrder, kSeed, kMaxWait, kCross };

constexpr int64_t ValueOf(TopologyKind kind) { return 1 + static_cast<int64_t>(kind); }

constexpr MethodParameter kParameters[] = {
    {.name = "topology",
     .letter = "",
     .unit = "",
     .standard = ValueOf(TopologyKind::kExponential),
     .minimum = ValueOf(TopologyKind::kRing),
     .maximum = ValueOf(TopologyKind::kMatching),
     .help = "neighbors of each rank: ring, exponential, one_peer (another one each step), "
             "bipartite (pairs, for even numbers of ranks), full (all), matching (random pairs)",
     .syntax = ValueSyntax::kTopology},
    {.name = "order",
     .letter = "",
     .unit = "",
     .standard = 0,
     .minimum = 0,
     .maximum = 1,
     .help = "cwa (combine while adapting): average, then update with gradients of the model as it "
             "was before; atc (adapt then combine): update, then average",
     .syntax = ValueSyntax::kOrder},
    SeedParameter("seed of the random numbers"),
    MaxWaitParameter(
        kOff, ValueSyntax::kLimit,
        "longest wait of a step, and of finish(), for the other ranks: then a step raises "
        "Timeout, which names the missing ranks, and waits on when called again; finish() "
        "names them and ends with this rank's own model; auto: 60s; off: for ever"),
    kCrossEvery,
};

MethodPlan Plan(std::span<const int64_t> settings, const MethodView&, int64_t version) {
  return {.payload = Payload::kModel,
          .admission = Admission::kNeighbors,
          .neighbors = {.topology = static_cast<TopologyKind>(settings[kTopology] - 1),
                        .seed = static_cast<uint64_t>(settings[kSeed]),
                        .round = static_cast<uint64_t>(version),
                        .adapts_first = settings[kOrder] != 0,
                        .max_wait = LimitOf(settings[kMaxWait]),
                        .cross_every = settings[kCross]}};
}

constexpr Method kMethod{
    .name = "dpsgd",
    .help =
        "each rank updates its model with its own gradients, and at each step averages the "
        "model with those of its neighbors in a topology; all ranks do so at the same step",
    .bytes = "m written and m read for each neighbor, every step; with a codec so much encoded",
    .citation =
        "Lian, Zhang, Zhang, Hsieh, Zhang, Liu: Can Decentralized Algorithms Outperform "
        "Centralized Algorithms?, NIPS 2017, arXiv:1705.09056; order: Chen, Sayed: Diffusion "
        "Adaptation Strategies for Distributed Optimization and Learning over Networks, IEEE "
        "Transactions on Signal Processing 60(8), 2012",
    .exchanged = "models, before (cwa) or after (atc) every update",
    .partners = "neighbors in a topology",
    .saved = "after finish(): the mean of all",
    .late =
        "no rank: each step waits for all ranks, so the method saves bytes and no waiting; "
        "with max_wait a step names the missing ranks, and waits on when called again",
    .learning_rate = "that for one rank times P, with a warm-up; momentum stays with each rank",
    .memory = "none; the parameters move into shared memory",
    .codecs = CodecUse::kNeighbors,
    .parameters = kParameters,
    .plan = Plan};
const MethodRegistration kRegistration(kMethod);

}  // namespace
}  // namespace covey
