#include "core/run/problem.h"

#include <algorithm>

#include "core/transport/transport.h"

namespace covey {
namespace {

uint64_t RowBytes(const Tensor& t) {
  return static_cast<uint64_t>(t.shape.RowElems()) * SizeOf(t.dtype);
}

// The bytes of `t` that member `index` of `size` gets from a reducescatter.
struct Part {
  uint64_t begin;
  uint64_t end;
};
Part PartOf(const Tensor& t, size_t size, size_t index) {
  const auto begin = [&](size_t i) {
    const int64_t row =
        PartBegin(t.shape.dims[0], static_cast<int64_t>(size), static_cast<int64_t>(i));
    return static_cast<uint64_t>(row) * RowBytes(t);
  };
  return {begin(index), begin(index + 1)};
}

}  // namespace

Placed PlacedBy(const Exchange& x) {
  const bool scatter = Scatters(x.request->kind);  // outputs are not shared
  const uint64_t layout = x.CellOf(x.Me())->placement[x.Turn()].layout;
  Placed all{.in_arena = true, .readable = !scatter, .staged = ~uint32_t{0}};
  for (size_t j = 0; j < x.size(); ++j) {
    const Placement& placement = x.CellOf(j)->placement[x.Turn()];
    all.readable &= placement.input_address != 0 && placement.output_address != 0;
    all.in_arena &= placement.input != Transport::kNoOffset && placement.layout == layout &&
                    (scatter || placement.output != Transport::kNoOffset);
    // run-X5: a schedule counts on what every member has staged.
    all.staged = std::min(all.staged, placement.staged);
  }
  all.staged = std::max(all.staged, uint32_t{1});
  return all;
}

void AddInput(const Request& request, Spans* message) {
  if (!Scatters(request.kind) || request.inputs.size() == 1) {
    for (const Tensor& t : request.inputs) message->Add(t.data, t.LengthBytes());
    return;
  }
  const size_t size = request.group->members.size();
  for (size_t j = 0; j < size; ++j) {
    for (const Tensor& t : request.inputs) {
      const Part part = PartOf(t, size, j);
      message->Add(t.data + part.begin, part.end - part.begin);
    }
  }
}

Problem ProblemOf(const Exchange& x, uint64_t cache_bytes) {
  const Request& r = *x.request;
  Problem p;
  p.kind = r.kind;
  p.size = static_cast<int32_t>(x.size());
  p.me = static_cast<int32_t>(x.Me());
  p.dtype = x.reduction.dtype;
  p.form = r.form;
  p.encodes_sums = r.form.Codes() && !r.feeds_back;
  p.slot_bytes = x.channel->slot_bytes;
  p.depth = x.channel->depth;
  p.cache_bytes = cache_bytes;
  p.length_bytes = Gathers(r.kind) ? 0 : x.input.length_bytes();
  p.by_ipc = x.by_ipc;
  const Placed placed = Reduces(r.kind) ? PlacedBy(x) : Placed{};
  p.all_readable = placed.readable;
  p.all_arena = placed.in_arena || p.by_ipc;
  if (x.shares_memory) p.staged_segments = placed.staged;
  if (HasRoot(r.kind)) {
    const auto& members = r.group->members;
    p.root = static_cast<int32_t>(std::lower_bound(members.begin(), members.end(), r.root) -
                                  members.begin());
    if (!Gathers(r.kind)) p.length_bytes = x.output.length_bytes();
  }
  const OutputRule output = TraitsOf(r.kind).output;
  for (size_t j = 0; j < x.size(); ++j) {
    if (output == OutputRule::kInputs)
      p.shares.push_back(x.CellOf(j)->placement[x.Turn()].rows * RowBytes(r.inputs[0]));
    if (output == OutputRule::kBlocks)
      for (size_t k = 0; k < x.size(); ++k)
        p.shares.push_back(x.TableOf(j)[k] * RowBytes(r.inputs[0]));
    if (output == OutputRule::kMix)
      for (size_t k = 0; k < x.size(); ++k) p.shares.push_back(WeightOf(x.PeersOf(j), k) != 0);
    if (!Scatters(r.kind)) continue;
    p.shares.push_back(0);
    for (const Tensor& t : r.inputs) {
      const Part part = PartOf(t, x.size(), j);
      p.shares.back() += part.end - part.begin;
    }
  }
  return p;
}

bool FitsCommunicator(const Request& r, uint64_t least_bytes) {
  if (r.outputs.size() != r.inputs.size() || !r.codec.empty()) return false;
  const auto size = static_cast<int64_t>(r.group->size());
  uint64_t length_bytes = 0;
  for (const Tensor& t : r.inputs) {
    const bool floating = t.dtype <= DType::kBF16;
    if (!IsReducedByDevices(t.dtype) && t.dtype != DType::kBool) return false;
    if (r.average && !floating) return false;  // an integer's truncates as only the host's does
    if (Scatters(r.kind) && t.shape.dims[0] % size != 0) return false;
    length_bytes += t.LengthBytes();
  }
  if (length_bytes == 0 || length_bytes < least_bytes) return false;
  return TraitsOf(r.kind).output == OutputRule::kRootInput ||
         (Reduces(r.kind) && r.prescale == 1.0 && r.postscale == 1.0);
}

void AllocateResult(Exchange* x) {
  Request& r = *x->request;
  const bool blocks = TraitsOf(r.kind).output == OutputRule::kBlocks;
  const bool gets = Gets(r.kind, r.group->members[x->Me()] == r.root);
  r.rows.clear();
  uint64_t length_bytes = 0;
  for (size_t j = 0; j < x->size(); ++j) {
    uint64_t rows = blocks ? x->TableOf(j)[x->Me()] : x->CellOf(j)->placement[x->Turn()].rows;
    if (!gets) rows = 0;
    r.rows.push_back(static_cast<int64_t>(rows));
    length_bytes += rows * RowBytes(r.inputs[0]);
  }
  r.gathered = std::make_unique_for_overwrite<std::byte[]>(length_bytes);
  x->output.Add(r.gathered.get(), length_bytes);
}

}  // namespace covey
