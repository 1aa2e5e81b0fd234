#include "core/device/switchboard.h"

#include <algorithm>
#include <utility>

namespace covey {
namespace {

constexpr const char* kStays = "tensors of devices travel without it";

std::string Text(Rank rank) { return std::to_string(ToInt(rank)); }

}  // namespace

const Switchboard::Line* Switchboard::Find(const Group& group) const {
  const auto found = lines_.find(group.key);
  return found == lines_.end() ? nullptr : &found->second;
}

// Says it once: of the own trouble rank 0, or else whoever alone knows it; of a group its first.
void Switchboard::Never(const Group& group, Line* line, const std::string& why, bool own) {
  if (line->never) return;
  line->never = true;
  line->why = why;
  if (log_ == nullptr || (own && std::exchange(said_trouble_, true))) return;
  const bool says = own ? self_ == Rank{0} : group.Coordinator() == self_;
  log_->Write(says ? LogLevel::kWarn : LogLevel::kInfo, why + "; " + kStays);
}

// The stand of this rank, moved on as far as it goes by itself.
Switchboard::Stand Switchboard::Look(const Group& group, Line* line) {
  using Answer = Circuits::Answer;
  if (line->never) return Stand::kNever;
  if (line->circuit != nullptr) {
    const Answer ready = circuits_->IsReady(line->circuit);
    if (ready == Answer::kFailed) {
      Never(group, line, circuits_->Failure(line->circuit), true);
      return Stand::kNever;
    }
    return ready == Answer::kYes ? Stand::kReady : Stand::kWilling;
  }
  Answer there = circuits_->Offers();
  if (there == Answer::kYes && !line->has_id && ToInt(group.my_index) == 0) {
    there = circuits_->MakeId(&line->id);
    line->has_id = there == Answer::kYes;
  }
  if (there == Answer::kFailed) Never(group, line, circuits_->Trouble(), true);
  return there == Answer::kYes      ? Stand::kWilling
         : there == Answer::kFailed ? Stand::kNever
                                    : Stand::kNotYet;
}

uint64_t Switchboard::Word(const Group& group, bool may) {
  if (!HasCircuits() || (!may && Find(group) == nullptr)) return 0;
  Stand stand = Look(group, &lines_[group.key]);
  if (stand == Stand::kReady && !may) stand = Stand::kWilling;
  return circuits_->Device() << 2 | static_cast<uint64_t>(stand);
}

const CircuitId* Switchboard::Offer(const Group& group) const {
  const Line* line = Find(group);
  return line != nullptr && line->has_id ? &line->id : nullptr;
}

CircuitVerdict Switchboard::Judge(const Group& group, std::span<const uint64_t> words,
                                  const char* id, bool may) {
  if (!HasCircuits()) return CircuitVerdict::kStaged;
  size_t ready = 0, willing = 0;
  size_t never = words.size();
  for (size_t j = 0; j < words.size(); ++j) {
    const Stand stand = StandOf(words[j]);
    ready += stand == Stand::kReady;
    willing += stand == Stand::kWilling;
    if (stand == Stand::kNever) never = std::min(never, j);
  }
  // device-C6: the circuit is used only if all headers say ready, so all members choose alike.
  if (ready == words.size()) return CircuitVerdict::kCircuit;
  const auto staged = ready > 0 ? CircuitVerdict::kAgain : CircuitVerdict::kStaged;
  const bool insists = path_ == DevicePath::kCircuit && may;
  if (never < words.size()) {
    // Who still looks says later why it is in none itself, if it is.
    Line& line = lines_[group.key];
    if (Look(group, &line) != Stand::kNotYet)
      Never(group, &line,
            "rank " + Text(group.members[never]) + " can be in no circuit (it says why where " +
                "COVEY_LOG_LEVEL is info)",
            false);
    return insists ? CircuitVerdict::kRefused : staged;
  }
  if (ready + willing < words.size()) return staged;
  // device-C6: the verdict depends on the headers of this exchange alone: headers of an earlier one
  // were seen by some members only.
  Line& line = lines_[group.key];
  for (size_t j = 0; j < words.size(); ++j)
    for (size_t k = 0; k < j; ++k) {
      // device-C5: two ranks of one device cannot be in one circuit: the group goes without.
      if (words[j] >> 2 != words[k] >> 2) continue;
      Never(group, &line,
            "ranks " + Text(group.members[k]) + " and " + Text(group.members[j]) +
                " use one device, and a circuit needs one for each",
            false);
      return insists ? CircuitVerdict::kRefused : staged;
    }
  if (line.never || line.circuit != nullptr) return staged;
  std::copy(id, id + line.id.size(), line.id.begin());
  line.circuit = circuits_->Open(line.id, ToInt(group.my_index), group.size());
  if (line.circuit == nullptr) Never(group, &line, "there is no memory for a circuit", true);
  return staged;
}

std::string Switchboard::Refusal(const Group& group) const {
  const Line* line = Find(group);
  const bool known = line != nullptr && !line->why.empty();
  return "cuda_path is nccl, and " + (known ? line->why : "some rank can be in no circuit") +
         "; COVEY_CUDA_PATH=auto goes another way then";
}

Circuit* Switchboard::CircuitOf(const Group& group) const {
  const Line* line = Find(group);
  return line == nullptr ? nullptr : line->circuit;
}

void Switchboard::Drop(const Group& group, Rank lost, const std::string& how, Time now) {
  Line& line = lines_[group.key];
  if (line.circuit == nullptr || line.dropped) return;
  line.dropped = true;
  line.lost = lost;
  line.how = how;
  line.dropped_at = now;
  Never(group, &line, "the circuit has ended: rank " + Text(lost) + " " + how, false);
  circuits_->Abort(line.circuit);
}

bool Switchboard::IsDropped(const Group& group) const {
  const Line* line = Find(group);
  return line != nullptr && line->dropped;
}

Rank Switchboard::DroppedBy(const Group& group) const { return Find(group)->lost; }

std::string Switchboard::DroppedHow(const Group& group) const { return Find(group)->how; }

bool Switchboard::IsOver(const Group& group, Time now) {
  const auto found = lines_.find(group.key);
  if (found == lines_.end() || found->second.circuit == nullptr) return true;
  Line& line = found->second;
  if (line.given_up || circuits_->IsOver(line.circuit)) return true;
  if (!line.dropped || now - line.dropped_at <= patience_) return false;
  line.given_up = true;
  circuits_->GiveUp(line.circuit);
  if (log_ != nullptr)
    log_->Write(LogLevel::kWarn,
                "a circuit between devices was aborted, which has not ended within nccl_abort: it "
                "is given up");
  return true;
}

}  // namespace covey
