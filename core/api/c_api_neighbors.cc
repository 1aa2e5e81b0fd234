// The C API of core/api/covey_neighbors.h: topologies, and the weights of a method's step.
#include "core/api/covey_neighbors.h"
#include "core/api/session.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "core/api/c_api.h"
#include "core/api/c_api_methods.h"
#include "core/plan/mixing.h"

namespace covey {
namespace {

constexpr int32_t kMostRanks = 1 << 16;

// As a value, if there is such a topology.
Status Read(const covey_topology* from, Topology* to) {
  if (from == nullptr || from->struct_size != sizeof(covey_topology))
    return Status::InvalidArgument(
        "topology is NULL, or its struct_size is not that of covey_topology");
  if (from->size > kMostRanks)
    return Status::InvalidArgument("a topology has at most " + std::to_string(kMostRanks) +
                                   " ranks, not " + std::to_string(from->size));
  to->size = from->size;
  to->seed = from->seed;
  to->cross_every = from->cross_every == 0 ? 1 : from->cross_every;
  if (from->hosts != nullptr && from->size > 0)
    to->hosts.assign(from->hosts, from->hosts + from->size);
  if (from->name != nullptr) {
    RETURN_IF_ERROR(KindOf(from->name, &to->kind));
    return Check(*to);
  }
  if (from->matrix == nullptr) return Status::InvalidArgument("a topology has a name or a matrix");
  to->kind = TopologyKind::kMatrix;
  const auto size = static_cast<size_t>(std::max(from->size, 0));
  to->matrix.assign(from->matrix, from->matrix + size * size);
  return Check(*to);
}

void Write(const MixingRow& row, const std::vector<int32_t>& takers, int32_t index,
           std::span<double> weights, std::span<int32_t> receivers) {
  std::fill(weights.begin(), weights.end(), 0.0);
  std::fill(receivers.begin(), receivers.end(), 0);
  weights[static_cast<size_t>(index)] = row.own;
  for (const Neighbor& one : row.from) weights[static_cast<size_t>(one.rank)] = one.weight;
  for (const int32_t taker : takers) receivers[static_cast<size_t>(taker)] = 1;
}

Status RowOfTopology(const Topology& topology, int64_t round, int32_t index, double* weights,
                     int32_t* receivers) {
  if (round < 0)
    return Status::InvalidArgument("a round is 0 or more, not " + std::to_string(round));
  if (index < 0 || index >= topology.size)
    return Status::InvalidArgument("there is no rank " + std::to_string(index) +
                                   " in a topology of " + std::to_string(topology.size));
  if (weights == nullptr || receivers == nullptr)
    return Status::InvalidArgument("weights or receivers is NULL");
  const auto size = static_cast<size_t>(topology.size);
  const auto turn = static_cast<uint64_t>(round);
  Write(RowOf(topology, turn, index), ReceiversOf(topology, turn, index), index, {weights, size},
        {receivers, size});
  return Status::Ok();
}

std::string ReportOf(const Topology& topology) {
  const MixingReport report = Examine(topology);
  char text[400];
  std::snprintf(text, sizeof(text),
                "{\"period\": %lld, \"column_error\": %.17g, \"column\": %d, \"connected\": %s, "
                "\"unheard\": %d, \"unreached\": %d, \"contraction\": %.17g}",
                static_cast<long long>(PeriodOf(topology)), report.column_error, report.column,
                report.is_connected ? "true" : "false", report.unheard, report.unreached,
                report.contraction);
  return text;
}

Status RowOfMethod(const Use& use, const covey_method* method, covey_group key, int64_t version,
                   MixingRow* row, std::vector<int32_t>* takers, int32_t* adapts_first) {
  if (use.get() == nullptr) return use.status();
  const Group* group = use->FindGroup(key);
  if (group == nullptr || ToInt(group->my_index) < 0 || version < 0)
    return Status::InvalidArgument("no such group, this rank is not in it, or a negative version");
  const MethodChoice& choice = ChoiceOf(use, method);
  const MethodView view = ViewOf(*group);
  const MethodPlan plan = choice.Plan(view, version);
  if (plan.admission != Admission::kNeighbors)
    return Status::InvalidArgument("the method " + choice.At(version).OwnText() +
                                   " averages with no neighbors at version " +
                                   std::to_string(version));
  const Topology topology = TopologyOf(plan.neighbors, view);
  RETURN_IF_ERROR(Check(topology));
  *row = RowOf(topology, plan.neighbors.round, ToInt(group->my_index));
  *takers = ReceiversOf(topology, plan.neighbors.round, ToInt(group->my_index));
  *adapts_first = plan.neighbors.adapts_first ? 1 : 0;
  return Status::Ok();
}

}  // namespace
}  // namespace covey

extern "C" {

covey_code covey_topology_check(const covey_topology* topology, covey_error* error) {
  covey::Topology read;
  return covey::Report(covey::Read(topology, &read), error);
}

size_t covey_topology_report(const covey_topology* topology, char* json, size_t capacity) {
  covey::Topology read;
  const bool known = covey::Read(topology, &read).ok();
  return covey::Fill(known ? covey::ReportOf(read) : "", json, capacity);
}

covey_code covey_topology_row(const covey_topology* topology, int64_t round, int32_t index,
                              double* weights, int32_t* receivers, covey_error* error) {
  covey::Topology read;
  covey::Status status = covey::Read(topology, &read);
  if (status.ok()) status = covey::RowOfTopology(read, round, index, weights, receivers);
  return covey::Report(status, error);
}

covey_code covey_method_row(covey_runtime* runtime, const covey_method* method, covey_group group,
                            int64_t version, double* weights, int32_t* receivers,
                            int32_t* adapts_first, covey_error* error) {
  const covey::Use use(covey::OrDefault(runtime));
  covey::MixingRow row;
  std::vector<int32_t> takers;
  if (weights == nullptr || receivers == nullptr || adapts_first == nullptr)
    return covey::Report(
        covey::Status::InvalidArgument("weights, receivers or adapts_first is NULL"), error);
  const covey::Status status =
      covey::RowOfMethod(use, method, group, version, &row, &takers, adapts_first);
  if (!status.ok()) return covey::Report(status, error);
  const covey::Group* members = use->FindGroup(group);
  const auto size = static_cast<size_t>(members->size());
  covey::Write(row, takers, covey::ToInt(members->my_index), {weights, size}, {receivers, size});
  return covey::Report(status, error);
}

}  // extern "C"
