#include "core/plan/schedule.h"

#include <cstdio>

namespace covey {
namespace {

std::string Name(const Buffer& b) {
  constexpr const char* kPlaces[] = {"input", "output", "landing"};
  char text[96];
  const std::string who = b.index == kEveryRank ? "*" : std::to_string(b.index);
  const std::string slot = b.place == Place::kLanding ? "." + std::to_string(b.slot) : "";
  std::snprintf(text, sizeof(text), "%s[%s]%s+%llu", kPlaces[static_cast<int>(b.place)],
                who.c_str(), slot.c_str(), static_cast<unsigned long long>(b.offset));
  return text;
}

std::string At(const Step& s) { return "+" + std::to_string(s.input_offset); }

std::string Line(const Step& s) {
  const std::string peer = s.peer == kEveryRank ? "*" : std::to_string(s.peer);
  const std::string bytes =
      " " + std::to_string(s.length_bytes) + " bytes" + (s.streaming ? " streaming" : "");
  switch (s.kind) {
    case StepKind::kCopy:
      return "copy " + Name(s.dst) + " <- " + Name(s.src) + bytes;
    case StepKind::kReduce:
      return "reduce " + Name(s.dst) + " <- " + Name(s.src) + bytes;
    case StepKind::kFetch:
      return "fetch " + Name(s.dst) + " <- " + Name(s.src) + bytes;
    case StepKind::kReduceFetched:
      return "reduce fetched " + Name(s.dst) + bytes;
    case StepKind::kBeginSum:
      return "begin sum " + Name(s.dst) + " <- input" + At(s) + bytes;
    case StepKind::kAddToSum:
      return "add to sum " + Name(s.dst) + " <- " + Name(s.src) + " + input" + At(s) + bytes;
    case StepKind::kFinishSum:
      return "finish sum " + Name(s.dst) + " <- " + Name(s.src) + bytes;
    case StepKind::kSignal:
      return "signal " + std::to_string(s.tick);
    case StepKind::kWait:
      return "wait " + peer + " >= " + std::to_string(s.tick);
  }
  return "?";
}

}  // namespace

std::string ToString(const Schedule& schedule) {
  std::string text = std::string(schedule.algorithm) + " ticks " + std::to_string(schedule.ticks) +
                     " slots " + std::to_string(schedule.slots) + "\n";
  for (const Step& s : schedule.steps) text += "  " + Line(s) + "\n";
  return text;
}

}  // namespace covey
