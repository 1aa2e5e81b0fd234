#include "tests/sim/simulator/program.h"

#include <algorithm>
#include <iterator>

namespace covey {
namespace {

constexpr DType kDTypes[] = {DType::kF32,  DType::kF32, DType::kF64, DType::kI32, DType::kI64,
                             DType::kBF16, DType::kF16, DType::kU8,  DType::kI8};
constexpr Op kOps[] = {Op::kSum, Op::kSum, Op::kMin, Op::kMax, Op::kProduct};

bool IsWide(DType t) {
  return t == DType::kF32 || t == DType::kF64 || t == DType::kI32 || t == DType::kI64;
}

int64_t DrawElems(const Swarm& swarm, Rng* rng) {
  if (rng->Percent(8)) return 0;
  if (rng->Percent(60)) return static_cast<int64_t>(1 + rng->Below(24));
  return static_cast<int64_t>(1 + rng->Below(std::min<size_t>(3000, swarm.segment_bytes * 4)));
}

const char* DrawCodec(Rng* rng) {
  constexpr const char* kCodecs[] = {"bf16", "fp16", "int8", "int8@block=16", "int8@block=1000"};
  return kCodecs[rng->Below(std::size(kCodecs))];
}

Spec DrawSpec(const Swarm& swarm, const std::vector<int32_t>& members, Rng* rng) {
  Spec s;
  if (swarm.training) {
    s.elems = {DrawElems(swarm, rng)};
    if (swarm.coding && rng->Percent(50)) s.codec = DrawCodec(rng);
    return s;
  }
  constexpr Kind kKinds[] = {
      Kind::kAllreduce, Kind::kAllreduce,     Kind::kAllreduce, Kind::kAllreduce, Kind::kAllreduce,
      Kind::kAllgather, Kind::kReducescatter, Kind::kAlltoall,  Kind::kBroadcast, Kind::kBarrier};
  s.kind = kKinds[rng->Below(std::size(kKinds))];
  if (s.kind == Kind::kBarrier) return s;
  s.dtype = kDTypes[rng->Below(std::size(kDTypes))];
  if (s.kind == Kind::kBroadcast) s.root = members[rng->Below(members.size())];
  if (Gathers(s.kind)) {
    s.elems = {static_cast<int64_t>(1 + rng->Below(9))};
    // Without a draw of its own, so that seeds keep their programs.
    const auto drawn = static_cast<size_t>(s.elems[0]);
    if (s.kind == Kind::kAllgather && drawn % 3 == 0) {
      s.kind = Kind::kGather;
      s.root = members[drawn % members.size()];
    }
    return s;
  }
  const size_t tensors = rng->Percent(70) ? 1 : 2 + rng->Below(3);
  for (size_t i = 0; i < tensors; ++i) s.elems.push_back(DrawElems(swarm, rng));
  if (s.kind == Kind::kBroadcast) return s;
  s.op = kOps[rng->Below(std::size(kOps))];
  if (!IsWide(s.dtype)) return s;
  s.average = s.op == Op::kSum && rng->Percent(30);
  if (rng->Percent(15)) s.prescale = 2.0;
  if (rng->Percent(15)) s.postscale = 0.5;
  if (swarm.coding && s.kind == Kind::kAllreduce && s.dtype == DType::kF32 &&
      s.op != Op::kProduct)  // whose error no small bound holds
    s.codec = DrawCodec(rng);
  return s;
}

// Another signature: one aspect of `spec` changed, or another spec of the stream.
Spec Deviate(const ProgramStream& stream, const Spec& spec, const Swarm& swarm, Rng* rng) {
  const auto signature = [](Spec s) {
    if (s.kind == Kind::kBarrier) s.elems.clear();
    return s;
  };
  for (;;) {
    Spec odd = rng->Percent(40) ? stream.specs[rng->Below(stream.specs.size())] : spec;
    if (odd == spec) {
      const uint64_t aspect = rng->Below(5);
      if (aspect == 0) odd = DrawSpec(swarm, stream.members, rng);
      if (aspect == 1 && !odd.elems.empty()) odd.elems[0] += 1;
      if (aspect == 2 && odd.kind == Kind::kAllreduce) odd.elems.push_back(3);
      if (aspect == 3 && odd.kind == Kind::kAllreduce) odd.op = kOps[rng->Below(std::size(kOps))];
      if (aspect == 4 && odd.kind == Kind::kAllreduce) odd.postscale = 3.0;
      if (odd.op != Op::kSum) odd.average = false;
      if (odd.op == Op::kProduct) odd.codec.clear();
      if (!IsWide(odd.dtype)) odd.postscale = 1.0;
    }
    if (!(signature(odd) == signature(spec))) return odd;
  }
}

ProgramStream DrawStream(const Swarm& swarm, size_t number, Rng* rng) {
  ProgramStream stream;
  for (int32_t r = 0; r < swarm.size; ++r) stream.members.push_back(r);
  if (!swarm.training && rng->Percent(50))
    while (stream.members.size() > 1 && rng->Percent(40))
      stream.members.erase(stream.members.begin() +
                           static_cast<long>(rng->Below(stream.members.size())));
  if (swarm.training || rng->Percent(70)) stream.name = "s" + std::to_string(number);
  const size_t specs = 1 + rng->Below(stream.name.empty() ? 4 : 3);
  for (size_t i = 0; i < specs; ++i) stream.specs.push_back(DrawSpec(swarm, stream.members, rng));
  return stream;
}

// The unnamed operations of one group are one stream, whichever rank drew them.
size_t SameStream(const std::vector<ProgramStream>& streams, size_t drawn) {
  for (size_t i = 0; i < drawn; ++i)
    if (streams[i].name == streams[drawn].name && streams[i].members == streams[drawn].members)
      return i;
  return drawn;
}

// The order in which one rank does its part.
class Script {
 public:
  Script(const Program& program, const Swarm& swarm, int32_t rank, Rng* rng)
      : program_(program), swarm_(swarm), rng_(rng) {
    const auto me = static_cast<size_t>(rank);
    size_t epoch = 0;
    for (size_t i = 0; i <= swarm.ops; ++i) {
      for (; epoch < program.joins.size(); ++epoch) {
        const ProgramJoin& join = program.joins[epoch];
        if (join.from[me] == i) open_.push_back({join.op, i, join.end - 1, epoch});
        if (join.end != i) break;
      }
      if (i == swarm.ops) break;
      const auto& members = program.MembersOf(i);
      const auto found = std::find(members.begin(), members.end(), rank);
      if (found == members.end()) continue;
      if (!program.ops[i].Joined(static_cast<size_t>(found - members.begin())))
        open_.push_back({i, i, i, epoch});
    }
  }

  std::vector<Action> Write() {
    while (!open_.empty()) {
      size_t pick = rng_->Below(std::min(open_.size(), swarm_.window));
      if (open_[pick].epoch != open_[0].epoch) pick = 0;
      if (swarm_.training && StepOf(open_[pick]) != StepOf(open_[0])) pick = 0;
      if (swarm_.training && !submitted_.empty() && StepOf(submitted_[0]) != StepOf(open_[0]))
        while (!submitted_.empty()) Wait(rng_->Below(submitted_.size()));
      for (size_t i = 0; i < submitted_.size(); ++i)
        if (IsJoin(submitted_[i]) && submitted_[i].epoch != open_[pick].epoch) Wait(i--);
      if (!MaySubmit(pick)) pick = 0;
      Submit(pick);
      if (!swarm_.training && rng_->Percent(swarm_.wait_percent)) WaitForAny();
      if (rng_->Percent(swarm_.think_percent))
        actions_.push_back(
            {ActionKind::kThink, 0, static_cast<Time>(rng_->Below(20 * kMillisecond))});
    }
    while (!submitted_.empty()) Wait(rng_->Below(submitted_.size()));
    return std::move(actions_);
  }

 private:
  // Its part in an operation.
  struct Part {
    size_t op;
    size_t turn;  // submitted when all of a lower turn are, but for the window
    size_t due;   // waited for when none of such a turn or a lower one is open
    size_t epoch;
  };

  size_t StreamOf(const Part& part) const { return program_.ops[part.op].stream; }
  size_t StepOf(const Part& part) const { return part.turn / swarm_.streams; }
  bool IsJoin(const Part& part) const { return program_.ops[part.op].spec.kind == Kind::kJoin; }
  bool OfWorld(const Part& part) const {
    return static_cast<int32_t>(program_.MembersOf(part.op).size()) == swarm_.size;
  }

  bool IsDue(const Part& part) const { return open_.empty() || part.due < open_[0].turn; }

  // Nothing earlier of its stream is left out, and what must be waited for may be.
  bool MaySubmit(size_t pick) const {
    const size_t stream = StreamOf(open_[pick]);
    for (size_t i = 0; i < pick; ++i)
      if (StreamOf(open_[i]) == stream || (IsJoin(open_[pick]) && OfWorld(open_[i]))) return false;
    for (size_t i = 0; i < pick; ++i)
      if (IsJoin(open_[i]) && OfWorld(open_[pick])) return false;
    if (program_.streams[stream].name.empty()) return true;
    return std::all_of(submitted_.begin(), submitted_.end(),
                       [&](const Part& s) { return StreamOf(s) != stream || IsDue(s); });
  }

  void Submit(size_t pick) {
    const size_t stream = StreamOf(open_[pick]);
    if (!program_.streams[stream].name.empty()) {
      for (size_t i = 0; i < submitted_.size(); ++i)
        if (StreamOf(submitted_[i]) == stream) return Wait(i), SubmitNow(pick);
    }
    SubmitNow(pick);
  }

  void SubmitNow(size_t pick) {
    actions_.push_back({ActionKind::kSubmit, open_[pick].op, 0});
    submitted_.push_back(open_[pick]);
    open_.erase(open_.begin() + static_cast<long>(pick));
  }

  void Wait(size_t i) {
    actions_.push_back({ActionKind::kWait, submitted_[i].op, 0});
    submitted_.erase(submitted_.begin() + static_cast<long>(i));
  }

  void WaitForAny() {
    std::vector<size_t> allowed;
    for (size_t i = 0; i < submitted_.size(); ++i)
      if (IsDue(submitted_[i])) allowed.push_back(i);
    if (!allowed.empty()) Wait(allowed[rng_->Below(allowed.size())]);
  }

  const Program& program_;
  const Swarm& swarm_;
  Rng* rng_;
  std::vector<Part> open_;       // not yet submitted, by turn
  std::vector<Part> submitted_;  // and not waited for
  std::vector<Action> actions_;
};

// Some ranks have data for all of an epoch.
std::vector<ProgramJoin> DrawJoins(const Swarm& swarm, Rng* rng) {
  std::vector<ProgramJoin> joins;
  size_t begin = 0;
  for (size_t left = 1 + rng->Below(3); left > 0 && begin < swarm.ops; --left) {
    ProgramJoin join{.begin = begin, .end = begin + 1 + rng->Below(swarm.ops - begin)};
    for (int32_t r = 0; r < swarm.size; ++r)
      join.from.push_back(rng->Percent(40) ? join.end
                                           : join.begin + rng->Below(join.end - join.begin + 1));
    join.from[rng->Below(join.from.size())] = join.end;
    begin = join.end;
    joins.push_back(std::move(join));
  }
  return joins;
}

// Which members have joined before operation `number`; empty: none has.
std::vector<bool> JoinedAt(const std::vector<ProgramJoin>& joins, size_t number) {
  std::vector<bool> joined;
  for (const ProgramJoin& join : joins) {
    if (number < join.begin || number >= join.end) continue;
    for (const size_t from : join.from) joined.push_back(from <= number);
  }
  return joined;
}

// The joins themselves, behind all other operations.
void AppendJoins(int32_t size, Program* program) {
  ProgramStream world;
  for (int32_t r = 0; r < size; ++r) world.members.push_back(r);
  for (ProgramJoin& join : program->joins) {
    join.op = program->ops.size();
    ProgramOp op{.stream = program->streams.size()};
    op.spec.kind = Kind::kJoin;
    op.rows.resize(world.members.size());
    program->ops.push_back(std::move(op));
  }
  program->streams.push_back(std::move(world));
}

}  // namespace

Program MakeProgram(const Swarm& swarm, Rng* rng) {
  Program program;
  for (size_t i = 0; i < swarm.streams; ++i) program.streams.push_back(DrawStream(swarm, i, rng));
  if (swarm.joining) program.joins = DrawJoins(swarm, rng);
  std::vector<uint64_t> occurrences(swarm.streams, 0);
  std::vector<size_t> last_spec(swarm.streams, 0);
  for (size_t i = 0; i < swarm.ops; ++i) {
    // A training step leaves something out now and then.
    const size_t drawn =
        swarm.training && rng->Percent(97) ? i % swarm.streams : rng->Below(swarm.streams);
    const size_t stream = SameStream(program.streams, drawn);
    const ProgramStream& s = program.streams[stream];
    if (rng->Percent(swarm.change_percent)) last_spec[stream] = rng->Below(s.specs.size());
    ProgramOp op{.stream = stream, .occurrence = occurrences[stream]++};
    op.spec = s.specs[last_spec[stream]];
    for (size_t j = 0; j < s.members.size(); ++j)
      op.rows.push_back(static_cast<int64_t>(rng->Below(rng->Percent(20) ? 200 : 9)));
    for (size_t j = 0; j < s.members.size() * s.members.size(); ++j)
      op.splits.push_back(static_cast<int64_t>(rng->Below(rng->Percent(10) ? 60 : 4)));
    if (static_cast<int32_t>(s.members.size()) == swarm.size)
      op.joined = JoinedAt(program.joins, i);
    if (s.members.size() > 1 && !op.AnyJoined() && rng->Percent(swarm.odd_percent)) {
      op.odd = static_cast<int32_t>(rng->Below(s.members.size()));
      op.odd_spec = Deviate(s, op.spec, swarm, rng);
    }
    program.ops.push_back(std::move(op));
  }
  AppendJoins(swarm.size, &program);
  for (int32_t r = 0; r < swarm.size; ++r)
    program.actions.push_back(Script(program, swarm, r, rng).Write());
  return program;
}

}  // namespace covey
