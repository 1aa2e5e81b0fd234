#include "core/device/communicator_registry.h"

#include <algorithm>
#include <utility>

namespace covey {
namespace {

constexpr const char* kStays = "tensors of devices travel without it";

std::string Text(Rank rank) { return std::to_string(ToInt(rank)); }

}  // namespace

const CommunicatorRegistry::Entry* CommunicatorRegistry::Find(const Group& group) const {
  const auto found = entries_.find(group.key);
  return found == entries_.end() ? nullptr : &found->second;
}

// Says it once: rank 0, or the one rank that has the trouble; of a group its first member.
void CommunicatorRegistry::Never(const Group& group, Entry* entry, const std::string& why,
                                 bool own) {
  if (entry->never) return;
  entry->never = true;
  entry->why = why;
  if (log_ == nullptr || (own && std::exchange(said_trouble_, true))) return;
  const bool says = own ? self_ == Rank{0} : group.Coordinator() == self_;
  log_->Write(says ? LogLevel::kWarn : LogLevel::kInfo, why + "; " + kStays);
}

// The readiness of this rank, moved on as far as it goes by itself.
CommunicatorRegistry::Readiness CommunicatorRegistry::Look(const Group& group, Entry* entry) {
  using Answer = Communicators::Answer;
  if (entry->never) return Readiness::kNever;
  if (entry->communicator != nullptr) {
    const Answer ready = communicators_->IsReady(entry->communicator);
    if (ready == Answer::kFailed) {
      Never(group, entry, communicators_->Failure(entry->communicator), true);
      return Readiness::kNever;
    }
    return ready == Answer::kYes ? Readiness::kReady : Readiness::kWilling;
  }
  Answer there = communicators_->Offers();
  if (there == Answer::kYes && !entry->has_id && ToInt(group.my_index) == 0) {
    there = communicators_->MakeId(&entry->id);
    entry->has_id = there == Answer::kYes;
  }
  if (there == Answer::kFailed) Never(group, entry, communicators_->Trouble(), true);
  return there == Answer::kYes      ? Readiness::kWilling
         : there == Answer::kFailed ? Readiness::kNever
                                    : Readiness::kNotYet;
}

uint64_t CommunicatorRegistry::Word(const Group& group, bool may) {
  if (!HasCommunicators() || (!may && Find(group) == nullptr)) return 0;
  Readiness readiness = Look(group, &entries_[group.key]);
  if (readiness == Readiness::kReady && !may) readiness = Readiness::kWilling;
  return communicators_->Device() << 2 | static_cast<uint64_t>(readiness);
}

const CommunicatorId* CommunicatorRegistry::OfferedId(const Group& group) const {
  const Entry* entry = Find(group);
  return entry != nullptr && entry->has_id ? &entry->id : nullptr;
}

CommunicatorVerdict CommunicatorRegistry::Judge(const Group& group, std::span<const uint64_t> words,
                                                const char* id, bool may) {
  if (!HasCommunicators()) return CommunicatorVerdict::kStaged;
  size_t ready = 0, willing = 0;
  size_t never = words.size();
  for (size_t j = 0; j < words.size(); ++j) {
    const Readiness readiness = ReadinessOf(words[j]);
    ready += readiness == Readiness::kReady;
    willing += readiness == Readiness::kWilling;
    if (readiness == Readiness::kNever) never = std::min(never, j);
  }
  // device-C6: the communicator is used only if all headers say ready, so all members choose alike.
  if (ready == words.size()) return CommunicatorVerdict::kCommunicator;
  const auto staged = ready > 0 ? CommunicatorVerdict::kAgain : CommunicatorVerdict::kStaged;
  const bool insists = path_ == DevicePath::kCommunicator && may;
  if (never < words.size()) {
    // A rank that still looks says its own reason later.
    Entry& entry = entries_[group.key];
    if (Look(group, &entry) != Readiness::kNotYet)
      Never(group, &entry,
            "rank " + Text(group.members[never]) +
                " can be in no communicator (it says why where COVEY_LOG_LEVEL is info)",
            false);
    return insists ? CommunicatorVerdict::kRefused : staged;
  }
  if (ready + willing < words.size()) return staged;
  // device-C6: the verdict depends on the headers of this exchange alone: headers of an earlier one
  // were seen by some members only.
  Entry& entry = entries_[group.key];
  for (size_t j = 0; j < words.size(); ++j)
    for (size_t k = 0; k < j; ++k) {
      // device-C5: two ranks of one device cannot be in one communicator: the group goes without.
      if (words[j] >> 2 != words[k] >> 2) continue;
      Never(group, &entry,
            "ranks " + Text(group.members[k]) + " and " + Text(group.members[j]) +
                " use one device, and a communicator needs one for each",
            false);
      return insists ? CommunicatorVerdict::kRefused : staged;
    }
  if (entry.never || entry.communicator != nullptr) return staged;
  std::copy(id, id + entry.id.size(), entry.id.begin());
  entry.communicator = communicators_->Open(entry.id, ToInt(group.my_index), group.size());
  if (entry.communicator == nullptr)
    Never(group, &entry, "there is no memory for a communicator", true);
  return staged;
}

std::string CommunicatorRegistry::Refusal(const Group& group) const {
  const Entry* entry = Find(group);
  const bool known = entry != nullptr && !entry->why.empty();
  return "cuda_path is nccl, and " + (known ? entry->why : "some rank can be in no communicator") +
         "; COVEY_CUDA_PATH=auto goes another way then";
}

Communicator* CommunicatorRegistry::CommunicatorOf(const Group& group) const {
  const Entry* entry = Find(group);
  return entry == nullptr ? nullptr : entry->communicator;
}

void CommunicatorRegistry::Abort(const Group& group, Rank lost, const std::string& how, Time now) {
  Entry& entry = entries_[group.key];
  if (entry.communicator == nullptr || entry.aborted) return;
  entry.aborted = true;
  entry.lost = lost;
  entry.how = how;
  entry.aborted_at = now;
  Never(group, &entry, "the communicator has ended: rank " + Text(lost) + " " + how, false);
  communicators_->Abort(entry.communicator);
}

bool CommunicatorRegistry::IsAborted(const Group& group) const {
  const Entry* entry = Find(group);
  return entry != nullptr && entry->aborted;
}

Rank CommunicatorRegistry::AbortedBy(const Group& group) const { return Find(group)->lost; }

std::string CommunicatorRegistry::AbortedHow(const Group& group) const { return Find(group)->how; }

bool CommunicatorRegistry::IsOver(const Group& group, Time now) {
  const auto found = entries_.find(group.key);
  if (found == entries_.end() || found->second.communicator == nullptr) return true;
  Entry& entry = found->second;
  if (entry.given_up || communicators_->IsOver(entry.communicator)) return true;
  if (!entry.aborted || now - entry.aborted_at <= patience_) return false;
  entry.given_up = true;
  communicators_->GiveUp(entry.communicator);
  if (log_ != nullptr)
    log_->Write(LogLevel::kWarn,
                "a communicator between devices was aborted, which has not ended within "
                "nccl_abort: it is given up");
  return true;
}

}  // namespace covey
