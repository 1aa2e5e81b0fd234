#include "core/plan/schedule.h"

#include <cstdio>

namespace covey {

std::string ToString(const Buffer& b) {
  constexpr const char* kPlaces[] = {"input", "output", "landing"};
  char text[96];
  const std::string who = b.index == kEveryRank ? "*" : std::to_string(b.index);
  const std::string slot = b.place == Place::kLanding ? "." + std::to_string(b.slot) : "";
  std::snprintf(text, sizeof(text), "%s[%s]%s+%llu", kPlaces[static_cast<int>(b.place)],
                who.c_str(), slot.c_str(), static_cast<unsigned long long>(b.offset));
  return text;
}

std::string ToString(const Step& s) {
  const std::string at = "+" + std::to_string(s.input_offset);
  const std::string peer = s.peer == kEveryRank ? "*" : std::to_string(s.peer);
  const std::string bytes =
      " " + std::to_string(s.length_bytes) + " bytes" + (s.streaming ? " streaming" : "");
  switch (s.kind) {
    case StepKind::kCopy:
      return "copy " + ToString(s.dst) + " <- " + ToString(s.src) + bytes;
    case StepKind::kReduce:
      return "reduce " + ToString(s.dst) + " <- " + ToString(s.src) + bytes;
    case StepKind::kFetch:
      return "fetch " + ToString(s.dst) + " <- " + ToString(s.src) + bytes;
    case StepKind::kReduceFetched:
      return "reduce fetched " + ToString(s.dst) + bytes;
    case StepKind::kBeginSum:
      return "begin sum " + ToString(s.dst) + " <- input" + at + bytes;
    case StepKind::kAddToSum:
      return "add to sum " + ToString(s.dst) + " <- " + ToString(s.src) + " + input" + at + bytes;
    case StepKind::kFinishSum:
      return "finish sum " + ToString(s.dst) + " <- " + ToString(s.src) + bytes;
    case StepKind::kCombineSums:
      return "combine sums " + ToString(s.dst) + " <- " + ToString(s.src) + " + " +
             ToString(s.also) + bytes;
    case StepKind::kSumHost:
      return "sum host " + ToString(s.dst) + " <- " + ToString(s.src) + ", input" + at + bytes;
    case StepKind::kEncode:
      return "encode " + ToString(s.dst) + " <- input" + at + bytes;
    case StepKind::kReduceCoded:
      return "reduce coded " + ToString(s.dst) + " <- " + ToString(s.src) + bytes;
    case StepKind::kEncodeSum:
      return "encode sum " + ToString(s.dst) + " <- " + ToString(s.src) + ", message" + at + bytes;
    case StepKind::kDecodeSum:
      return "decode sum " + ToString(s.dst) + " <- " + ToString(s.src) + bytes;
    case StepKind::kAddDecoded:
      return "add decoded " + ToString(s.dst) + " <- " + ToString(s.src) + bytes;
    case StepKind::kMix:
      return "mix " + ToString(s.dst) + " <- " + ToString(s.src) + ", input" + at + bytes;
    case StepKind::kMixCoded:
      return "mix coded " + ToString(s.dst) + " <- " + ToString(s.src) + ", input" + at + bytes;
    case StepKind::kPush:
      return "push " + ToString(s.src) + " to " + peer + bytes +
             (s.src.place == Place::kInput ? " as " + ToString(s.dst) : "");
    case StepKind::kSignal:
      return "signal " + std::to_string(s.tick) + (s.peer == kOwnHost ? " to the host" : "");
    case StepKind::kWait:
      return "wait " + peer + " >= " + std::to_string(s.tick);
  }
  return "?";
}

uint64_t InputBytes(const Problem& p, int32_t rank) {
  const OutputRule output = TraitsOf(p.kind).output;
  const auto share = p.shares.begin() + rank * (output == OutputRule::kBlocks ? p.size : 1);
  if (output == OutputRule::kInputs) return *share;
  if (output == OutputRule::kBlocks) return std::accumulate(share, share + p.size, uint64_t{0});
  return p.length_bytes;
}

uint64_t OutputBytes(const Problem& p, int32_t rank) {
  if (Scatters(p.kind)) return p.shares[static_cast<size_t>(rank)];
  if (!Gathers(p.kind)) return p.length_bytes;
  if (!Gets(p.kind, rank == p.root)) return 0;
  const bool blocks = TraitsOf(p.kind).output == OutputRule::kBlocks;
  uint64_t bytes = 0;
  for (int32_t j = 0; j < p.size; ++j) bytes += blocks ? BlockBytes(p, j, rank) : InputBytes(p, j);
  return bytes;
}

}  // namespace covey
