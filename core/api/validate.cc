#include "core/api/validate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/api/covey_neighbors.h"
#include "core/base/finite.h"
#include "core/base/neighbor_weights.h"
#include "core/engine/overlap.h"
#include "core/run/codec.h"

namespace covey {
namespace {

constexpr size_t kMaxNameBytes = 1024;
// So that one announcement, which lists every shape, fits in a mailbox.
constexpr int kMaxTensors = 8192;
constexpr size_t kMaxDescriptionBytes = 128 * 1024;
constexpr size_t kMaxUnfitBytes = 1000;
constexpr double kMostRounding = 1e-6;  // of weights that sum to 1: they may have been float32
constexpr int kMostTerms = 8;           // of a wrong sum that are named

std::string Quoted(const covey_request& r) {
  const std::string kind = NameOf(static_cast<Kind>(r.kind));
  return r.name == nullptr || r.name[0] == '\0' ? "unnamed " + kind : kind + " '" + r.name + "'";
}

Status Wrong(const covey_request& r, const std::string& what) {
  return Status::InvalidArgument(Quoted(r) + ": " + what);
}

std::string RankText(Rank r) { return std::to_string(ToInt(r)); }

bool HasScales(const covey_request& r) {
  return (r.prescale != 0 && r.prescale != 1) || (r.postscale != 0 && r.postscale != 1);
}

std::string WithArticle(Kind kind) {
  return (*NameOf(kind) == 'a' ? "an " : "a ") + std::string(NameOf(kind));
}

Status CheckKind(const covey_request& r) {
  if (r.kind < 0 || r.kind >= kNumKinds)
    return Status::InvalidArgument("unknown operation kind " + std::to_string(r.kind));
  if (r.op < 0 || r.op >= kNumOps)
    return Wrong(r, "unknown reduction op " + std::to_string(r.op) +
                        "; there are sum, average, min, max, product");
  if (r.name != nullptr && std::strlen(r.name) > kMaxNameBytes)
    return Wrong(r, "the name is longer than " + std::to_string(kMaxNameBytes) + " bytes");
  const auto kind = static_cast<Kind>(r.kind);
  const bool no_tensors = !HasTensors(kind);
  if (no_tensors && r.num_tensors != 0) return Wrong(r, "takes no tensors");
  if (r.kind == COVEY_JOIN && r.group != COVEY_WORLD)
    return Wrong(r, "all ranks of the job join, not those of a group");
  if (Gathers(kind) && r.num_tensors != 1)
    return Wrong(r, WithArticle(kind) + " takes one tensor, not " + std::to_string(r.num_tensors));
  if (Gathers(kind) && r.outputs != nullptr)
    return Wrong(r, WithArticle(kind) + " allocates its result: outputs must be NULL");
  if (Scatters(kind) && r.outputs == nullptr)
    return Wrong(r, WithArticle(kind) + " cannot be done in place: outputs is NULL");
  if (Mixes(kind) != (r.neighbors != nullptr))
    return Wrong(r, r.neighbors == nullptr ? "neighbors is NULL"
                                           : "only a neighbor_allreduce takes neighbors");
  if (r.neighbors != nullptr && r.neighbors->struct_size != sizeof(covey_neighbors))
    return Wrong(r, "covey_neighbors has another size here");
  if (r.neighbors != nullptr && r.neighbors->num_sources > 0 &&
      (r.neighbors->sources == nullptr || r.neighbors->weights == nullptr))
    return Wrong(r, "of the neighbors sources or weights is NULL");
  if (r.neighbors != nullptr && (r.op != COVEY_SUM || HasScales(r)))
    return Wrong(r, "a neighbor_allreduce has weights, and neither op nor scale factors");
  if (TraitsOf(kind).table != BeginTable::kSplits && (r.splits != nullptr || r.num_splits != 0))
    return Wrong(r, "only an alltoall takes splits");
  if (!no_tensors && (r.num_tensors < 1 || r.num_tensors > kMaxTensors))
    return Wrong(r, "1 to " + std::to_string(kMaxTensors) + " tensors can travel together, not " +
                        std::to_string(r.num_tensors));
  if (r.num_tensors > 0 && r.inputs == nullptr) return Wrong(r, "inputs is NULL");
  if (!std::isfinite(r.prescale) || !std::isfinite(r.postscale))
    return Wrong(r, "a scale factor is not finite");
  return Status::Ok();
}

Status CheckGroup(const covey_request& r, const ValidationContext& c) {
  if (c.group == nullptr)
    return Wrong(r, "no such group: make it with covey_group_of on this rank first");
  const auto& members = c.group->members;
  if (ToInt(c.group->my_index) < 0) {
    std::string list;
    for (Rank m : members) list += (list.empty() ? "" : ", ") + RankText(m);
    return Wrong(r, "rank " + RankText(c.self) + " is not a member of the group [" + list + "]");
  }
  if (HasRoot(static_cast<Kind>(r.kind)) &&
      !std::binary_search(members.begin(), members.end(), Rank{r.root}))
    return Wrong(r, "root " + std::to_string(r.root) + " is not a member of the group (of " +
                        std::to_string(members.size()) + " ranks, lowest " +
                        RankText(members.front()) + ", highest " + RankText(members.back()) + ")");
  return Status::Ok();
}

// Reads one tensor; `data_needed`: it will be read or written here.
Status ReadTensor(const covey_request& r, const covey_tensor& from, const ValidationContext& c,
                  bool data_needed, Tensor* to) {
  if (from.dtype < 0 || from.dtype >= kNumDTypes)
    return Status::Unsupported(Quoted(r) + ": unknown dtype code " + std::to_string(from.dtype));
  if (from.ndim < 0 || from.ndim > kMaxDims)
    return Wrong(r, "a tensor has " + std::to_string(from.ndim) + " dimensions; at most " +
                        std::to_string(kMaxDims) + " are supported");
  if (from.ndim > 0 && from.shape == nullptr) return Wrong(r, "shape is NULL");
  to->dtype = static_cast<DType>(from.dtype);
  to->shape.ndim = from.ndim;
  int64_t elems = 1;
  std::copy_n(from.shape, from.ndim, to->shape.dims.begin());
  for (int i = 0; i < from.ndim; ++i) {
    if (from.shape[i] < 0 || __builtin_mul_overflow(elems, from.shape[i], &elems) ||
        elems > INT64_MAX / 8)
      return Wrong(r, "impossible shape " + ToString(to->shape));
  }
  to->data = static_cast<std::byte*>(from.data);
  if (data_needed && elems > 0 && from.data == nullptr) return Wrong(r, "data is NULL");
  if (from.device_type < 0 || from.device_type > 2 || !c.has_device[from.device_type])
    return Status::Unsupported(Quoted(r) + ": this build reaches no device of type " +
                               std::to_string(from.device_type) + "; move the tensor to the CPU");
  to->device = static_cast<DeviceType>(from.device_type);
  to->device_index = from.device_index;
  to->stream = from.stream;
  to->ready_event = from.ready_event;
  return Status::Ok();
}

bool Overlap(const Tensor& a, const Tensor& b) {
  if (a.LengthBytes() == 0 || b.LengthBytes() == 0) return false;
  return a.data < b.data + b.LengthBytes() && b.data < a.data + a.LengthBytes();
}

Status CheckOutput(const covey_request& r, const Operation& operation, const Tensor& in,
                   const Tensor& out) {
  Shape wanted = in.shape;
  std::string whose;
  if (Scatters(operation.kind)) {
    const int64_t size = operation.group->size();
    const int64_t me = ToInt(operation.group->my_index);
    const int64_t rows = in.shape.dims[0];
    wanted.dims[0] = PartBegin(rows, size, me + 1) - PartBegin(rows, size, me);
    whose = ", of which this rank gets " + ToString(wanted);
  }
  const bool in_place = in.data == out.data && !Scatters(operation.kind);
  if (!in_place && Overlap(in, out)) return Wrong(r, "an output overlaps its input");
  if (out.device != in.device || out.device_index != in.device_index)
    return Wrong(r, "an output lies on another device than its input");
  if (out.dtype == in.dtype && out.shape == wanted) return Status::Ok();
  return Wrong(r, "output has " + std::string(NameOf(out.dtype)) + " " + ToString(out.shape) +
                      ", input has " + NameOf(in.dtype) + " " + ToString(in.shape) + whose);
}

// alltoall: how many rows each member gets.
Status ReadSplits(const covey_request& r, Operation* operation) {
  const int64_t rows = operation->inputs[0].shape.dims[0];
  const int64_t size = operation->group->size();
  if (r.splits == nullptr) {
    if (r.num_splits != 0) return Wrong(r, "splits is NULL");
    if (rows % size != 0)
      return Wrong(r, "dimension 0 is " + std::to_string(rows) +
                          " and cannot be split evenly over " + std::to_string(size) +
                          " ranks; give splits");
    operation->splits.assign(static_cast<size_t>(size), rows / size);
    return Status::Ok();
  }
  if (r.num_splits != size)
    return Wrong(r, "there are " + std::to_string(r.num_splits) + " splits for a group of " +
                        std::to_string(size) + " ranks");
  operation->splits.assign(r.splits, r.splits + size);
  int64_t left = rows;
  for (int64_t split : operation->splits) {
    if (split < 0) return Wrong(r, "split " + std::to_string(split) + " is negative");
    if (split > left)
      return Wrong(r,
                   "the splits add up to more than dimension 0, which is " + std::to_string(rows));
    left -= split;
  }
  return Status::Ok();
}

// Where `rank` is in the group, of those this rank says it takes from or sends to.
Status FindPeer(const Group& group, int32_t rank, const std::string& who, size_t* index) {
  const auto& members = group.members;
  const auto me = static_cast<size_t>(ToInt(group.my_index));
  const auto at = std::lower_bound(members.begin(), members.end(), Rank{rank});
  *index = static_cast<size_t>(at - members.begin());
  if (at == members.end() || *at != Rank{rank})
    return Status::Mismatch(
        who + " rank " + std::to_string(rank) + ", which is not a member of the group (of " +
            std::to_string(members.size()) + " ranks, lowest " + RankText(members.front()) +
            ", highest " + RankText(members.back()) + ")",
        members[me]);
  if (*index == me)
    return Status::Mismatch(who + " itself: its own part is the own weight", members[me]);
  return Status::Ok();
}

std::string Written(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.10g", number);
  return text;
}

// neighbor_allreduce: the table. An error holds for all: others wait for this rank.
Status ReadPeers(const covey_request& r, Operation* operation) {
  const covey_neighbors& n = *r.neighbors;
  const Group& group = *operation->group;
  const auto me = static_cast<size_t>(ToInt(group.my_index));
  const std::string self = "rank " + RankText(group.members[me]);
  const auto wrong = [&](const std::string& what) {
    return Status::Mismatch(self + what, group.members[me]);
  };
  std::vector<uint64_t>& table = operation->peers = NewPeerTable(group.members.size(), me);
  double sum = n.own_weight, least = n.own_weight;
  bool takes = n.own_weight != 0;
  std::string terms = "own " + Written(n.own_weight);
  SetWeight(me, n.own_weight, &table);
  for (int32_t i = 0; i < n.num_sources; ++i) {
    size_t from = 0;
    RETURN_IF_ERROR(FindPeer(group, n.sources[i], self + " takes from", &from));
    if (WeightOf(table, from) != 0)
      return wrong(" takes from rank " + std::to_string(n.sources[i]) + " twice");
    SetWeight(from, n.weights[i], &table);
    sum += n.weights[i];
    least = std::min(least, n.weights[i]);
    takes |= n.weights[i] != 0;
    if (i < kMostTerms)
      terms += ", rank " + std::to_string(n.sources[i]) + " " + Written(n.weights[i]);
    if (i == kMostTerms) terms += ", ...";
  }
  for (int32_t i = 0; n.receivers != nullptr && i < n.num_receivers; ++i) {
    size_t to = 0;
    RETURN_IF_ERROR(FindPeer(group, n.receivers[i], self + " sends to", &to));
    SetReceiver(group.members.size(), to, &table);
  }
  if (n.receivers == nullptr) SetReceiver(group.members.size(), me, &table);
  if (!std::isfinite(sum)) return wrong(" has a weight that is not finite (" + terms + ")");
  if (!takes) return wrong(" has no weight other than 0");
  if (n.any_sum == 0 && std::abs(sum - 1) > kMostRounding)
    return wrong("'s weights sum to " + Written(sum) + " and not to 1 (" + terms +
                 "): another sum must be asked for by any_sum");
  if (n.any_sum == 0 && least < 0)
    return wrong(" has a weight that is less than 0 (" + terms +
                 "): that must be asked for by any_sum");
  return Status::Ok();
}

Status CheckTensors(const covey_request& r, const Operation& operation) {
  size_t description = 0;
  for (size_t i = 0; i < operation.inputs.size(); ++i) {
    const Tensor& in = operation.inputs[i];
    description += 1 + sizeof(int64_t) * static_cast<size_t>(in.shape.ndim);
    if (in.dtype != operation.inputs[0].dtype)
      return Wrong(r, std::string("tensors that travel together need one dtype, got ") +
                          NameOf(operation.inputs[0].dtype) + " and " + NameOf(in.dtype));
    const Tensor& first = operation.inputs[0];
    if (in.device != first.device || in.device_index != first.device_index)
      return Wrong(r, "tensors that travel together need one device");
    if (Mixes(operation.kind) && !IsFloating(in.dtype))
      return Status::Unsupported(Quoted(r) + ": weights are for floating-point numbers, and " +
                                 NameOf(in.dtype) + " is none; convert the tensor");
    if (in.dtype == DType::kBool && Reduces(operation.kind))
      return Status::Unsupported(Quoted(r) + ": " + NameOf(operation.kind) +
                                 " does not take bool; use uint8");
    const std::string_view on_rows = TraitsOf(operation.kind).on_rows;
    if (!on_rows.empty() && in.shape.ndim == 0)
      return Wrong(r, NameOf(operation.kind) + (" " + std::string(on_rows)) +
                          " dimension 0 and the tensor is a scalar; reshape it to [1]");
    if (r.outputs != nullptr && i < operation.outputs.size())
      RETURN_IF_ERROR(CheckOutput(r, operation, in, operation.outputs[i]));
  }
  if (description > kMaxDescriptionBytes)
    return Wrong(r, "too many tensors with too many dimensions in one request; split it");
  return Status::Ok();
}

// The codec's name with every parameter, and its form.
Status ReadCodec(const covey_request& r, Operation* operation) {
  if (r.codec == nullptr || r.codec[0] == '\0') return Status::Ok();
  const bool mixes = Mixes(operation->kind);
  if (!TraitsOf(operation->kind).takes_codec)
    return Wrong(
        r, std::string("a codec (") + r.codec + ") is for allreduce and neighbor_allreduce only");
  if (mixes && r.neighbors->any_sum != 0)
    return Wrong(r, std::string("a codec (") + r.codec +
                        ") is for weights that sum to 1, and any_sum is asked for");
  ChosenCodec chosen;
  CodecText read;
  Status status =
      ReadCodecText(r.codec, mixes ? CodecUse::kNeighbors : CodecUse::kGradients, &read);
  if (status.ok()) status = ParseCodec(read.text, &chosen);
  if (!status.ok()) return Wrong(r, status.message());
  const Tensor& first = operation->inputs[0];
  if (first.dtype != DType::kF32)
    return Status::Unsupported(Quoted(r) + ": codec " + chosen.codec->name +
                               " encodes float32, and the tensor has " + NameOf(first.dtype));
  if (first.device != DeviceType::kCpu)
    return Status::Unsupported(Quoted(r) + ": codec " + chosen.codec->name +
                               " reads memory of the CPU, and the tensor lies on a device");
  operation->codec = chosen.text;
  operation->draw = r.codec_draw;
  operation->form = chosen.form;
  operation->feeds_back = chosen.codec->feeds_back || r.feeds_back != 0;
  return Status::Ok();
}

// Why the others must not get what this rank has; ok: they may.
Status Fitness(const covey_request& r, const ValidationContext& c, const Operation& operation) {
  const auto unfit = [&c](const std::string& why) {
    return Status(StatusCode::kNotFinite, "rank " + RankText(c.self) + " has " + why, c.self);
  };
  if (r.unfit != nullptr)
    return r.unfit[0] == '\0' ? Status::Ok()
                              : unfit(std::string(r.unfit).substr(0, kMaxUnfitBytes));
  if (!c.check_nan || !Computes(operation.kind)) return Status::Ok();
  for (size_t i = 0; i < operation.inputs.size(); ++i) {
    const Tensor& t = operation.inputs[i];
    if (t.device != DeviceType::kCpu) continue;
    const auto count = static_cast<size_t>(t.shape.Elems());
    const size_t found = CountNotFinite(t.dtype, t.data, count);
    if (found == 0) continue;
    const std::string which =
        operation.inputs.size() == 1 ? "" : " in tensor " + std::to_string(i) + " of the request";
    return unfit(std::to_string(found) + " NaN or infinite numbers of " + std::to_string(count) +
                 which + ", the first at element " +
                 std::to_string(FirstNotFinite(t.dtype, t.data, count)));
  }
  return Status::Ok();
}

}  // namespace

Status Validate(const covey_request& r, const ValidationContext& c, Operation* operation) {
  RETURN_IF_ERROR(CheckKind(r));
  RETURN_IF_ERROR(CheckGroup(r, c));
  operation->kind = static_cast<Kind>(r.kind);
  operation->group = c.group;
  if (r.name != nullptr) operation->name = r.name;
  operation->average = Reduces(operation->kind) && r.op == COVEY_AVERAGE;
  operation->op =
      !Reduces(operation->kind) || operation->average ? Op::kSum : static_cast<Op>(r.op);
  operation->root = HasRoot(operation->kind) ? Rank{r.root} : kNoRank;
  operation->prescale = r.prescale == 0 ? 1.0 : r.prescale;
  operation->postscale = r.postscale == 0 ? 1.0 : r.postscale;
  operation->callback = nullptr;
  const bool reads = Gives(operation->kind, Rank{r.root} == c.self);
  const bool in_place = r.outputs == nullptr && !Gathers(operation->kind);
  for (int i = 0; i < r.num_tensors; ++i) {
    operation->inputs.emplace_back();
    RETURN_IF_ERROR(ReadTensor(r, r.inputs[i], c, reads || in_place, &operation->inputs.back()));
    if (in_place) operation->outputs.push_back(operation->inputs.back());
    if (r.outputs == nullptr) continue;
    operation->outputs.emplace_back();
    RETURN_IF_ERROR(ReadTensor(r, r.outputs[i], c, true, &operation->outputs.back()));
  }
  RETURN_IF_ERROR(CheckTensors(r, *operation));
  if (const Status apart = SeparateTensors(operation); !apart.ok())
    return Wrong(r, apart.message());
  RETURN_IF_ERROR(ReadCodec(r, operation));
  operation->refusal = Fitness(r, c, *operation);
  if (Mixes(operation->kind)) {
    const Status peers = ReadPeers(r, operation);
    if (operation->refusal.ok()) operation->refusal = peers;
  }
  return TraitsOf(operation->kind).table == BeginTable::kSplits ? ReadSplits(r, operation)
                                                                : Status::Ok();
}

}  // namespace covey
