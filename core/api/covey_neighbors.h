/* Averaging with neighbors instead of with all: what a request of COVEY_NEIGHBOR_ALLREDUCE says
 * beside its tensors, and the topologies that know what to say. Conventions: covey.h.
 *
 * Ranks average by a matrix W of weights, row by row: outputs of rank i = the sum over ranks j of
 * W_ij * inputs of rank j, in rank order, in float32 (float64 for float64), rounded once. A row
 * that sums to 1 makes a mean; when the columns do, too, the mean of all ranks stays what it is.
 *
 * With a codec Q, outputs of rank i = inputs of i + the sum over j of W_ij * (Q(inputs of j) -
 * Q(inputs of i)), all rounded with the same draws: the mean of all stays then, too, and equal
 * inputs stay as they are. It needs rows that sum to 1, and a codec of a scale of its own that is
 * right about most of what it encodes: not topk, nor lattice. A number that is not finite, or
 * becomes so in Q, spreads.
 */
#ifndef COVEY_CORE_API_COVEY_NEIGHBORS_H_
#define COVEY_CORE_API_COVEY_NEIGHBORS_H_

#include "core/api/covey.h"

#ifdef __cplusplus
extern "C" {
#endif

/* This rank's row of W, and the ranks that take from it. May differ from one operation of a name to
 * the next: nothing is negotiated anew. Every member of the group takes part in each, also one that
 * averages with no other (own_weight 1).
 *
 * Wrong weights (a rank that is no member, a row that does not sum to 1) and ranks that do not say
 * the same of each other (i takes from j, j names its receivers and not i) are errors on every
 * member, and the next operation works. */
struct covey_neighbors {
  uint32_t struct_size;
  double own_weight;
  const int32_t* sources; /* [num_sources] global ranks, distinct, without this one */
  const double* weights;  /* [num_sources] 0: nothing is taken; may be negative with any_sum */
  int32_t num_sources;
  const int32_t* receivers; /* [num_receivers] as sources; NULL: all that take from this rank */
  int32_t num_receivers;
  int32_t any_sum; /* 1: the row need not sum to 1, and may have weights less than 0 */
};
typedef struct covey_neighbors covey_neighbors;

/* The neighbors of each rank in each round: "ring", "exponential", "one_peer", "bipartite", "full",
 * "matching" (core/plan/topology.h), or by a matrix of one's own. */
typedef struct covey_topology {
  uint32_t struct_size;
  const char* name;     /* NULL: `matrix` */
  int32_t size;         /* ranks */
  uint64_t seed;        /* of matching */
  const double* matrix; /* [size * size] by rows, not negative, each summing to 1 */
  const int32_t* hosts; /* [size] the host of each rank, numbers below size; NULL: all on one */
  /* With hosts, and a name: ranks average within their host, and in every so-many-th round with
   * ranks of other hosts; 1 to 1000. 0, 1: hosts make no difference. */
  int64_t cross_every;
} covey_topology;

/* Whether there is such a topology. COVEY_INVALID_ARGUMENT says why not, and what there is. */
COVEY_API covey_code covey_topology_check(const covey_topology* topology, covey_error* error);

/* Of one that covey_topology_check accepts, as a JSON object: "period" (rounds until W repeats
 * itself; 0: never), "column_error" (by how much the sum of a column differs from 1, at most),
 * "column" (of which rank), "connected", "unheard" and "unreached" (a rank that another one never
 * hears of; -1), "contraction" (a round shrinks the distance from the mean to so much of it, at
 * least; over a period, or 64 random rounds). Buffer rule of covey_stats. "": there is none. */
COVEY_API size_t covey_topology_report(const covey_topology* topology, char* json, size_t capacity);

/* Row `index` of W in that round, the own weight among them, into weights[size], and 1 for each
 * that takes from `index`, else 0, into receivers[size]. */
COVEY_API covey_code covey_topology_row(const covey_topology* topology, int64_t round,
                                        int32_t index, double* weights, int32_t* receivers,
                                        covey_error* error);

/* The weights and receivers of this rank at a step whose plan has COVEY_ADMIT_NEIGHBORS, as
 * covey_topology_row gives them, by index in the group. *adapts_first: 1: the model is averaged
 * after its update; 0: before it, with gradients of the model as it was. `method`, `version`: as
 * covey_method_plan. */
COVEY_API covey_code covey_method_row(covey_runtime* runtime, const covey_method* method,
                                      covey_group group, int64_t version, double* weights,
                                      int32_t* receivers, int32_t* adapts_first,
                                      covey_error* error);

#ifdef __cplusplus
}
#endif
#endif /* COVEY_CORE_API_COVEY_NEIGHBORS_H_ */
