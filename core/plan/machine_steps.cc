// The effect of each kind of step on symbolic memory: the counterpart of core/run/data_steps.cc.
#include <algorithm>

#include "core/plan/machine.h"

namespace covey {
namespace {

bool Overlap(const Buffer& a, const Buffer& b, uint64_t length) {
  if (a.place != b.place || a.index != b.index || a.slot != b.slot) return false;
  return a.offset < b.offset + length && b.offset < a.offset + length;
}

bool OverlapInPart(const Buffer& a, const Buffer& b, uint64_t length) {
  return a.offset != b.offset && Overlap(a, b, length);
}

bool IsOfCodes(StepKind kind) {
  return kind == StepKind::kEncode || kind == StepKind::kReduceCoded ||
         kind == StepKind::kMixCoded || kind == StepKind::kEncodeSum ||
         kind == StepKind::kDecodeSum || kind == StepKind::kAddDecoded;
}

std::string CheckElements(DType dtype, const Step& step) {
  const uint64_t elem_bytes = SizeOf(dtype);
  for (uint64_t v :
       {step.length_bytes, step.dst.offset, step.src.offset, step.also.offset, step.input_offset})
    if (v % elem_bytes != 0)
      return std::to_string(v) + " bytes are no whole number of " + NameOf(dtype);
  return {};
}

Buffer OwnInput(int32_t me, uint64_t offset) {
  return {Place::kInput, static_cast<int16_t>(me), 0, offset};
}

}  // namespace

std::string Machine::Perform(int32_t me, const Step& step) {
  const bool is_of_elements = step.kind != StepKind::kWait && step.kind != StepKind::kPush &&
                              step.kind != StepKind::kSignal && step.kind != StepKind::kCopy &&
                              step.kind != StepKind::kFetch;
  std::string wrong;
  if (is_of_elements) wrong = CheckElements(problem_.dtype, step);
  if (wrong.empty() && IsOfCodes(step.kind) && !problem_.form.Codes())
    wrong = "encodes, and there is no codec";
  if (!wrong.empty()) return wrong;
  switch (step.kind) {
    case StepKind::kWait:
      return {};
    case StepKind::kPush:
      return Push(me, step);
    case StepKind::kSignal:
      GiveSignal(me, step.tick, step.peer != kOwnHost);
      return {};
    case StepKind::kCopy:
    case StepKind::kFetch:
      return Copy(me, step);
    case StepKind::kReduce:
      return Reduce(me, step);
    case StepKind::kReduceFetched:
      return ReduceFetched(me, step);
    case StepKind::kMix:
      return Mix(me, step);
    case StepKind::kBeginSum:
    case StepKind::kAddToSum:
    case StepKind::kFinishSum:
    case StepKind::kCombineSums:
      return Sum(me, step);
    case StepKind::kSumHost:
      return SumHost(me, step);
    case StepKind::kEncode:
      return Encode(me, step.dst, step.input_offset, step.length_bytes);
    case StepKind::kReduceCoded:
      return ReduceCoded(me, step);
    case StepKind::kMixCoded:
      return MixCoded(me, step);
    case StepKind::kEncodeSum:
      return EncodeSum(me, step);
    case StepKind::kDecodeSum:
    case StepKind::kAddDecoded:
      return DecodeSum(me, step);
  }
  return "unknown kind of step";
}

// The bytes travel that the own slots or input hold now. A peer may use them once it knows of the
// next signal.
std::string Machine::Push(int32_t me, const Step& step) {
  if (!problem_.mirrored) return "pushes where memory is not mirrored";
  const bool puts = step.src.place == Place::kInput;
  const Buffer& slot = puts ? step.dst : step.src;
  if (slot.place != Place::kLanding || slot.index != me || step.src.index != me)
    return "pushes other than the own landing slots";
  if (puts && !schedules_[static_cast<size_t>(me)].puts_input)
    return "puts its input, which the schedule denies";
  Region *landing = nullptr, *own = nullptr;
  std::string wrong = Find(me, slot, step.length_bytes, &landing);
  if (wrong.empty()) wrong = Find(me, step.src, step.length_bytes, &own);
  if (!wrong.empty()) return wrong;
  HeldBytes held;
  const Epochs& epochs = Of(me).epochs;
  own->Read(step.src.offset, step.length_bytes, me, epochs, &held);
  for (int32_t j = 0; j < problem_.size; ++j) {
    if (!ReadsMirror(problem_, j, me) || (step.peer != kEveryRank && step.peer != j)) continue;
    if (puts)
      puts_.Add({me, j, Of(me).signals.size(), step.src.offset, step.length_bytes}, epochs, own);
    const Access user =
        MirrorOf(j, me, slot.slot)->Write(slot.offset, step.length_bytes, me, epochs, held);
    if (user.rank >= 0)
      return "overwrites the mirror of " + ToString(slot) + " that rank " +
             std::to_string(user.rank) + " may still use (S3)";
  }
  return {};
}

std::string Machine::Copy(int32_t me, const Step& step) {
  const bool fetch = step.kind == StepKind::kFetch;
  const bool peers_memory = step.src.place != Place::kLanding && step.src.index != me;
  if (peers_memory && !fetch) return "copies from a peer's own memory";
  if (fetch && (!peers_memory || !problem_.all_readable)) return "fetches what cannot be fetched";
  if (fetch && !TouchesPeers()) return "uses a peer's memory, which the schedule denies";
  if (step.dst.place != Place::kLanding && step.dst.index != me) return "copies to a peer's memory";
  const bool from_user = step.src.place != Place::kLanding;
  const bool to_user = step.dst.place != Place::kLanding;
  // In place the input is the output.
  if (from_user && to_user && options_.in_place && !fetch) {
    if (step.src.offset == step.dst.offset) return {};
    Buffer src = step.src;
    src.place = step.dst.place;
    if (Overlap(src, step.dst, step.length_bytes)) return "copies onto a part of its source";
  }
  if (Overlap(step.src, step.dst, step.length_bytes)) return "copies onto its source";
  HeldBytes held;
  if (std::string wrong = Load(me, step.src, step.length_bytes, &held); !wrong.empty())
    return wrong;
  return Store(me, step.dst, step.length_bytes, held);
}

std::string Machine::LoadInput(int32_t me, const Buffer& b, uint64_t length, HeldBytes* terms) {
  if (std::string wrong = Load(me, b, length, terms); !wrong.empty()) return wrong;
  for (Held& h : *terms) {
    if (!symbols_.IsInput(h.content.symbol))
      return "combines " + symbols_.ToString(h.content.symbol) + " as if it were an input";
    h.content.symbol = symbols_.Term(symbols_.RankOf(h.content.symbol));
  }
  return {};
}

// `length` and the positions in `partial` are of the message.
std::string Machine::LoadPartial(int32_t me, const Buffer& b, uint64_t length, HeldBytes* partial) {
  if (std::string wrong = Load(me, b, length * widening_, partial); !wrong.empty()) return wrong;
  for (Held& h : *partial) {
    if (!symbols_.IsPartial(h.content.symbol) || h.content.widening != widening_)
      return "takes " + symbols_.ToString(h.content.symbol) + " for a partial result";
    h.at /= widening_;
    h.length /= widening_;
    h.content.widening = 1;
  }
  return {};
}

std::string Machine::StorePartial(int32_t me, const Buffer& b, uint64_t length, HeldBytes partial) {
  for (Held& h : partial) {
    h.at *= widening_;
    h.length *= widening_;
    h.content.widening = static_cast<uint32_t>(widening_);
  }
  return Store(me, b, length * widening_, partial);
}

// sum = operands[0] op operands[1] op ..., which must be of the same bytes of the message.
std::string Machine::Combine(const std::vector<HeldBytes>& operands, uint64_t length,
                             HeldBytes* sum) {
  std::vector<size_t> next(operands.size(), 0);
  for (uint64_t at = 0; at < length;) {
    uint64_t end = length;
    Content all;
    for (size_t i = 0; i < operands.size(); ++i) {
      while (operands[i][next[i]].at + operands[i][next[i]].length <= at) ++next[i];
      const Held& h = operands[i][next[i]];
      end = std::min(end, h.at + h.length);
      const Content mine = h.content.After(at - h.at);
      if (i > 0 && mine.origin != all.origin)
        return "combines byte " + std::to_string(all.origin) + " of the message with byte " +
               std::to_string(mine.origin);
      all.symbol = i == 0 ? mine.symbol : symbols_.Sum(all.symbol, mine.symbol);
      all.origin = mine.origin;
    }
    sum->push_back({at, end - at, all});
    at = end;
  }
  return {};
}

void Machine::Finish(HeldBytes* sum) {
  for (Held& h : *sum) h.content.symbol = symbols_.Finished(h.content.symbol);
}

std::string Machine::Reduce(int32_t me, const Step& step) {
  const bool arena = step.src.place == Place::kInput;
  if (step.src.place == Place::kOutput) return "reduces outputs";
  if (arena && !problem_.all_arena) return "reduces inputs that are not all in the arena";
  if (arena && !TouchesPeers()) return "uses a peer's memory, which the schedule denies";
  const bool everywhere = step.dst.index == kEveryRank;
  if (everywhere && (!arena || step.dst.place != Place::kOutput))
    return "only a reduction of inputs can be written to every output";
  if (!everywhere && step.dst.place != Place::kLanding && step.dst.index != me)
    return "writes to a peer's memory";
  const uint64_t own_offset = arena ? step.src.offset : step.input_offset;
  if (options_.in_place && step.dst.place == Place::kOutput && own_offset != step.dst.offset)
    return "overlaps its own input in part";
  std::vector<HeldBytes> operands(members_.size());
  for (int32_t j = 0; j < problem_.size; ++j) {
    Buffer src = step.src;
    src.index = static_cast<int16_t>(j);
    if (j == me && !arena) src = OwnInput(me, own_offset);
    std::string wrong = LoadInput(me, src, step.length_bytes, &operands[static_cast<size_t>(j)]);
    if (!wrong.empty()) return wrong;
  }
  HeldBytes sum;
  if (std::string wrong = Combine(operands, step.length_bytes, &sum); !wrong.empty()) return wrong;
  Finish(&sum);
  if (!everywhere) return Store(me, step.dst, step.length_bytes, sum);
  for (int32_t j = 0; j < problem_.size; ++j) {
    Buffer dst = step.dst;
    dst.index = static_cast<int16_t>(j);
    if (std::string wrong = Store(me, dst, step.length_bytes, sum); !wrong.empty()) return wrong;
  }
  return {};
}

std::string Machine::ReduceFetched(int32_t me, const Step& step) {
  if (step.dst.place != Place::kOutput || step.dst.index != me) return "writes to no own output";
  std::vector<HeldBytes> operands(members_.size());
  Buffer fetched{Place::kLanding, static_cast<int16_t>(me), 0, 0};
  for (int32_t j = 0; j < problem_.size; ++j) {
    const Buffer src = j == me ? OwnInput(me, step.dst.offset) : fetched;
    if (j != me) fetched.offset += step.stride;
    std::string wrong = LoadInput(me, src, step.length_bytes, &operands[static_cast<size_t>(j)]);
    if (!wrong.empty()) return wrong;
  }
  HeldBytes sum;
  if (std::string wrong = Combine(operands, step.length_bytes, &sum); !wrong.empty()) return wrong;
  Finish(&sum);
  return Store(me, step.dst, step.length_bytes, sum);
}

std::string Machine::Mix(int32_t me, const Step& step) {
  if (!Mixes(problem_.kind)) return "mixes, and there are no weights";
  if (step.dst.place != Place::kOutput || step.dst.index != me) return "writes to no own output";
  if (step.src.place != Place::kLanding) return "mixes what is in no landing slot";
  if (options_.in_place && step.input_offset != step.dst.offset)
    return "overlaps its own input in part";
  std::vector<HeldBytes> operands;
  for (int32_t j = 0; j < problem_.size; ++j) {
    if (!Takes(problem_, me, j)) continue;
    Buffer src = step.src;
    src.index = static_cast<int16_t>(j);
    if (j == me) src = OwnInput(me, step.input_offset);
    std::string wrong = LoadInput(me, src, step.length_bytes, &operands.emplace_back());
    if (!wrong.empty()) return wrong;
  }
  HeldBytes sum;
  if (std::string wrong = Combine(operands, step.length_bytes, &sum); !wrong.empty()) return wrong;
  Finish(&sum);
  return Store(me, step.dst, step.length_bytes, sum);
}

std::string Machine::Sum(int32_t me, const Step& step) {
  const uint64_t length = step.length_bytes;
  std::vector<HeldBytes> operands;
  std::string wrong;
  if (step.kind != StepKind::kBeginSum)
    wrong = LoadPartial(me, step.src, length, &operands.emplace_back());
  const bool combines = step.kind == StepKind::kCombineSums;
  if (combines && wrong.empty())
    wrong = LoadPartial(me, step.also, length, &operands.emplace_back());
  if (wrong.empty() && !combines && step.kind != StepKind::kFinishSum)
    wrong = LoadInput(me, OwnInput(me, step.input_offset), length, &operands.emplace_back());
  HeldBytes sum;
  if (wrong.empty()) wrong = Combine(operands, length, &sum);
  if (!wrong.empty()) return wrong;
  if (step.kind != StepKind::kFinishSum) {
    if (step.dst.place != Place::kLanding) return "keeps a partial result in user memory";
    if (step.kind != StepKind::kBeginSum && OverlapInPart(step.dst, step.src, length * widening_))
      return "overwrites a part of its source";
    if (combines && OverlapInPart(step.dst, step.also, length * widening_))
      return "overwrites a part of its source";
    return StorePartial(me, step.dst, length, std::move(sum));
  }
  if (step.dst.place != Place::kOutput || step.dst.index != me) return "writes to no own output";
  Finish(&sum);
  return Store(me, step.dst, length, sum);
}

std::string Machine::SumHost(int32_t me, const Step& step) {
  if (step.src.place != Place::kLanding || step.dst.place != Place::kLanding)
    return "sums up what is in no landing slot";
  std::vector<HeldBytes> operands;
  for (const int16_t j : schedules_[static_cast<size_t>(me)].host) {
    Buffer src = step.src;
    src.index = j;
    if (j == me) src = OwnInput(me, step.input_offset);
    if (ReadsMirror(problem_, me, j)) return "sums up what lies on another host";
    std::string wrong = LoadInput(me, src, step.length_bytes, &operands.emplace_back());
    if (!wrong.empty()) return wrong;
  }
  HeldBytes sum;
  if (std::string wrong = Combine(operands, step.length_bytes, &sum); !wrong.empty()) return wrong;
  return StorePartial(me, step.dst, step.length_bytes, std::move(sum));
}

}  // namespace covey
