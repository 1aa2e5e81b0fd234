#include "core/engine/trainer_rounds.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace covey {
namespace {

constexpr size_t kOften = 2;   // versions running in whose memory
constexpr size_t kMuchOf = 8;  // an eighth had been written: a page costs as much as some that
constexpr size_t kPageBytes = 4096;  // are copied
constexpr size_t kDonors = 2;        // of a state that late ranks may need
constexpr size_t kLine = 64;         // spans of a snapshot begin on one

}  // namespace

TrainerRounds::TrainerRounds(Options options)
    : options_(std::move(options)),
      block_bytes_(options_.port->BlockBytes()),
      missing_(options_.port->group().members.size()),
      seen_(missing_.size()),
      counted_(missing_.size()),
      counts_(missing_.size()) {
  if (options_.last > 0) options_.port->EndWith(options_.last);
  if (has_models()) return;
  std::vector<std::byte*> spans;
  size_t written = 0;
  if (options_.port->Hold(0, &spans, &written).code() == StatusCode::kUnsupported) UseCopies();
}

bool TrainerRounds::Perform(const Trainer::Exchange& exchange, const Status& fitness,
                            std::span<const double> hypers, Time deadline, Status* status,
                            StageResult* result) {
  RoundsPort::Event event = RoundsPort::Event::kDone;
  *status = Status::Ok();
  switch (exchange.stage) {
    case Stage::kRead:
      *status = Read(exchange, result);
      break;
    case Stage::kSeek:
      if (!Seek(exchange.applied, deadline, status, result)) return false;
      break;
    case Stage::kServe:
      if (!has_models() && IsAsked(exchange.applied)) event = RoundsPort::Event::kAsked;
      break;
    case Stage::kLook:
      break;
    case Stage::kAwait:
    case Stage::kDue:
    case Stage::kFlush:
    case Stage::kMeet:
      *status = Wait(exchange, deadline, &event);
      if (event == RoundsPort::Event::kTime && status->ok()) return false;
      // A pass begins in any case.
      if (exchange.stage == Stage::kDue && status->code() == StatusCode::kTimeout)
        *status = Status::Ok();
      break;
    case Stage::kGoOn:
      *status = GoOn(exchange.unfit);
      break;
    case Stage::kLeaveState:
      options_.port->KeepSnapshot();
      break;
    case Stage::kHandOver:
      *status = HandOver(result);
      break;
    case Stage::kLeave:
    case Stage::kRelease:
      Leave();
      return true;
    default:
      *status = PerformHere(exchange, fitness, hypers, result);
  }
  if (event == RoundsPort::Event::kAsked) result->event = StageResult::Event::kAsked;
  if (event == RoundsPort::Event::kBehind) result->event = StageResult::Event::kBehind;
  result->is_left = event == RoundsPort::Event::kLeft;
  const bool tells = exchange.stage == Stage::kLook || exchange.stage == Stage::kDue;
  if (tells) result->ended_at = options_.port->Ended(&result->executed);
  result->executed = std::max(result->executed, options_.port->executed());
  return true;
}

// The stages that wait for no other rank.
Status TrainerRounds::PerformHere(const Trainer::Exchange& exchange, const Status& fitness,
                                  std::span<const double> hypers, StageResult* result) {
  OuterModel* outer = options_.outer.get();
  const auto steps = static_cast<double>(exchange.steps);
  if (has_models() || outer != nullptr) hypers = std::span(&steps, 1);
  switch (exchange.stage) {
    case Stage::kBegin:
      return options_.port->Begin();
    case Stage::kMerge:
      return Merge(exchange.version, result);
    case Stage::kOfferAgain:
      result->own_step = options_.port->OfferAgain(std::span(&steps, 1));
      return Status::Ok();
    case Stage::kAnchor:
      outer->Anchor(options_.model);
      return Status::Ok();
    case Stage::kDelta:
      outer->Subtract(options_.model, open());
      return Status::Ok();
    case Stage::kAdopt:
      // train-T10: what is pending after a finish() was dropped with this rank's last steps.
      if (exchange.is_last) outer->Drop();
      if (exchange.is_last) result->steps = steps_;
      outer->Adopt(options_.model);
      return Status::Ok();
    case Stage::kGive: {
      std::vector<std::span<const std::byte>> parts;
      for (const std::span<std::byte> array : outer->arrays()) parts.emplace_back(array);
      return Give(exchange.applied, parts);
    }
    default:  // kPublish
      // partial-W11: with unfit contents this rank has come all the same.
      if (!fitness.ok()) result->unfit = fitness.message();
      if (!fitness.ok() && has_models()) return Status::Ok();
      result->version = fitness.ok() ? options_.port->Publish(hypers) : options_.port->Skip();
      published_ = result->version;
      ++counts_.published;
      if (fitness.ok() && outer != nullptr) outer->OnPublished(result->version);
      return Status::Ok();
  }
}

Status TrainerRounds::Merge(uint64_t version, StageResult* result) {
  std::vector<void*> spans;
  for (const size_t offset : options_.port->layout().offsets_bytes())
    spans.push_back(open() + offset);
  Merged merged;
  result->may_differ = result->misses = true;
  // Others had ended finish() without this rank, and go on: its own model lies there still.
  if (options_.port->published() == 0) return Status::Ok();
  RETURN_IF_ERROR(options_.port->Merge(version, spans, &merged));
  result->version = merged.version;
  result->own_step = merged.step;
  if (!merged.record.hypers.empty()) result->steps = static_cast<int64_t>(merged.record.hypers[0]);
  result->is_kept = merged.kept;
  result->may_differ = merged.late || !merged.of_all;
  const std::vector<uint64_t>& missing = merged.record.missing;
  const auto self = static_cast<size_t>(ToInt(options_.port->group().my_index));
  result->is_overdue = missing[self] > 0;
  // train-T7: those that have finished are not missing, and have not come to it either.
  int32_t fresh = 0;
  for (const Contribution& contribution : merged.record.contributions)
    fresh += contribution.count > 0 && contribution.last >= merged.version ? 1 : 0;
  const bool is_any_overdue =
      std::any_of(missing.begin(), missing.end(), [](uint64_t since) { return since > 0; });
  result->misses = is_any_overdue || fresh < merged.record.header.divisor;
  Note(merged.version, merged.record);
  result->has_all = std::find(seen_.begin(), seen_.end(), false) == seen_.end();
  return Status::Ok();
}

Status TrainerRounds::Wait(const Trainer::Exchange& exchange, Time deadline,
                           RoundsPort::Event* event) {
  const uint64_t applied = has_models() ? RoundsPort::kNotServing : exchange.applied;
  if (exchange.stage == Stage::kFlush)
    return options_.port->FinishServing(applied, deadline, event);
  if (exchange.stage == Stage::kMeet)
    return options_.port->MeetServing(exchange.applied, deadline, event);
  const Status status = options_.port->WaitServing(exchange.version, applied, deadline, event);
  const bool is_left = *event == RoundsPort::Event::kLeft;
  if (is_left && !is_left_ && options_.log != nullptr)
    options_.log->Write(LogLevel::kWarn,
                        "the other ranks have ended finish() without this one: until they train on "
                        "its steps are dropped, and its finish() ends with their state");
  if (exchange.stage == Stage::kAwait) is_left_ = is_left;
  return status;
}

Status TrainerRounds::GoOn(const std::string& missing) {
  if (options_.log != nullptr)
    options_.log->Write(LogLevel::kWarn,
                        missing + "; finish() goes on with the ranks that are there");
  return options_.port->GoOnWithout();
}

// train-T18: this rank's contribution counts in its own model if it is in no version.
Status TrainerRounds::HandOver(StageResult* result) {
  const std::byte* content = nullptr;
  RETURN_IF_ERROR(options_.port->Depart(&content));
  result->has_more = content != nullptr;
  if (content != nullptr)
    std::memcpy(options_.copies, content, options_.port->layout().length_bytes());
  return Status::Ok();
}

// Whether ranks that were not in the version, whose record this is, may need this rank's state: it
// is one of the first two that were in it (one may die), or else that were not overdue: those in
// finish() read it, too.
bool TrainerRounds::IsNeeded(const RoundRecord& record) const {
  const uint64_t version = record.header.version;
  std::vector<size_t> in, others;
  int32_t fresh = 0;
  bool is_any_overdue = false;
  for (size_t i = 0; i < record.contributions.size(); ++i) {
    const Contribution& contribution = record.contributions[i];
    is_any_overdue |= record.missing[i] > 0;
    fresh += contribution.count > 0 && contribution.last >= version ? 1 : 0;
    if (contribution.arrived >= version)
      in.push_back(i);
    else if (record.missing[i] == 0)
      others.push_back(i);
  }
  if (!is_any_overdue && fresh >= record.header.divisor) return false;
  in.insert(in.end(), others.begin(), others.end());
  in.resize(std::min<size_t>(in.size(), kDonors));
  const auto self = static_cast<size_t>(ToInt(options_.port->group().my_index));
  return std::find(in.begin(), in.end(), self) != in.end();
}

Status TrainerRounds::Read(const Trainer::Exchange& exchange, StageResult* result) {
  const uint64_t version = exchange.version;
  RoundRecord record;
  std::vector<void*> spans = CopySpans();
  const bool is_copied = !is_in_place_;
  Status status = is_copied ? Status::Ok() : ReadInPlace(version);
  if (status.ok()) status = options_.port->Read(version, spans, &record);
  if (status.code() == StatusCode::kExhausted) {
    result->is_gone = true;
    return Status::Ok();
  }
  RETURN_IF_ERROR(status);
  if (is_copied) gradients_ = options_.copies;
  if (options_.outer == nullptr)
    hypers_ = std::move(record.hypers);
  else if (!record.hypers.empty())
    steps_ = std::max(steps_, static_cast<int64_t>(record.hypers[0]));
  result->steps = steps_;
  result->is_empty = record.header.leader < 0;
  const auto me = static_cast<size_t>(ToInt(options_.port->group().my_index));
  result->is_overdue = record.missing[me] > 0;
  result->misses = std::any_of(record.missing.begin(), record.missing.end(),
                               [](uint64_t since) { return since > 0; });
  // train-T18: one that has fallen out of the log may have come to this version all the same.
  result->is_needed =
      exchange.may_end && (IsNeeded(record) || options_.port->LacksSnapshot(version));
  Note(version, record);
  int64_t deltas = 0;
  for (size_t i = 0; i < counted_.size(); ++i) {
    const Contribution& contribution = record.contributions[i];
    if (contribution.count > 0) counted_[i] = std::max(counted_[i], contribution.last);
    deltas += static_cast<int64_t>(contribution.count);
  }
  const auto self = static_cast<size_t>(ToInt(options_.port->group().my_index));
  if (options_.outer != nullptr && !result->is_empty)
    options_.outer->Combine(gradients_, deltas, counted_[self]);
  return Status::Ok();
}

// From the next version on it is copied if this rank has written to what it has read.
Status TrainerRounds::ReadInPlace(uint64_t version) {
  std::vector<std::byte*> spans;
  size_t written = 0;
  RETURN_IF_ERROR(options_.port->Hold(version, &spans, &written));
  gradients_ = spans[0];
  // Pages written before the first hold were written by an earlier owner of this memory.
  if (held_.insert(gradients_).second) written = 0;
  const size_t pages = options_.port->layout().length_bytes() / kPageBytes;
  // The first and the last page also hold memory of neighbors, which may have been written.
  written_ = written > std::max<size_t>(1, pages / kMuchOf) + 2 ? written_ + 1 : 0;
  if (written_ >= kOften) UseCopies();
  return Status::Ok();
}

void TrainerRounds::UseCopies() {
  is_in_place_ = false;
  // The gradients of a rank's own steps lie there, too: nothing is copied before it is read.
  if (options_.outer == nullptr) options_.port->RegisterOutput(CopySpans());
}

// Where the version is copied to; none if it is not.
std::vector<void*> TrainerRounds::CopySpans() const {
  std::vector<void*> spans;
  if (is_in_place_) return spans;
  for (const size_t offset : options_.port->layout().offsets_bytes())
    spans.push_back(options_.copies + offset);
  return spans;
}

TrainerCounts TrainerRounds::counts() const {
  TrainerCounts counts = counts_;
  if (options_.port != nullptr) counts.made = options_.port->executed();
  counts.missing = missing_;
  counts.is_copied = !is_in_place_;
  counts.memory.rounds = block_bytes_;
  if (options_.outer != nullptr) counts.memory.arrays = options_.outer->HeldBytes();
  return counts;
}

// Counts what is in the version, and names the ranks that have become overdue.
void TrainerRounds::Note(uint64_t version, const RoundRecord& record) {
  counts_.AddVersion(version, record.contributions);
  for (size_t i = 0; i < missing_.size(); ++i) {
    if (record.contributions[i].last > 0) seen_[i] = true;
    const bool was_missing = std::exchange(missing_[i], record.missing[i]) > 0;
    if (record.missing[i] == 0 || was_missing) continue;
    ++counts_.overdue[i];
    if (options_.log == nullptr) continue;
    options_.log->Write(LogLevel::kWarn,
                        "rank " + std::to_string(ToInt(options_.port->group().members[i])) +
                            " was missing at version " + std::to_string(version) +
                            " when max_wait was over: it is not waited for until it has kept up "
                            "for 3 steps; what it has done counts when it publishes it");
  }
}

// ---- Snapshots ----------------------------------------------------------------------------------

size_t TrainerRounds::HeadBytes() const {
  return ((2 * counted_.size() + 1) * sizeof(uint64_t) + kLine - 1) / kLine * kLine;
}

bool TrainerRounds::IsAsked(uint64_t applied) {
  if (applied < 1) return false;
  uint64_t unused = Transport::kNoOffset;
  const bool is_asked = options_.port->IsAsked(applied, &unused);
  if (unused != Transport::kNoOffset) options_.free_block(unused);
  return is_asked;
}

Status TrainerRounds::Give(uint64_t applied, std::span<const std::span<const std::byte>> parts) {
  std::vector<uint64_t> head = counted_;
  head.insert(head.end(), missing_.begin(), missing_.end());
  head.push_back(static_cast<uint64_t>(steps_));
  head.resize(HeadBytes() / sizeof(uint64_t));
  std::vector<Snapshots::Part> all{{reinterpret_cast<const std::byte*>(head.data()), HeadBytes()}};
  for (const std::span<const std::byte> part : parts) all.push_back({part.data(), part.size()});
  uint64_t length_bytes = 0;
  for (const Snapshots::Part& part : all) length_bytes += part.length_bytes;
  if (length_bytes == HeadBytes()) return Status::InvalidArgument("a snapshot is not empty");
  // The old one stays until the new one stands: a peer may be reading it.
  uint64_t offset = Transport::kNoOffset, unused = Transport::kNoOffset;
  if (options_.port->GivesInBlocks()) offset = options_.alloc_block(length_bytes);
  options_.port->Give(applied, offset, all, &unused);
  if (unused != Transport::kNoOffset) options_.free_block(unused);
  return Status::Ok();
}

void TrainerRounds::TellOfSnapshot(uint64_t applied, const Offer& offer) {
  if (counts_.snapshots > 1 || options_.log == nullptr) return;
  const Rank giver = options_.port->group().members[static_cast<size_t>(offer.member)];
  options_.log->Write(LogLevel::kWarn,
                      "this rank was at version " + std::to_string(applied) +
                          ", further behind than the log= of the method reaches: it goes on from "
                          "a snapshot of version " +
                          std::to_string(offer.version) + " by rank " +
                          std::to_string(ToInt(giver)) + "; further ones are counted only");
}

bool TrainerRounds::Seek(uint64_t applied, Time deadline, Status* status, StageResult* result) {
  const auto self = static_cast<size_t>(ToInt(options_.port->group().my_index));
  for (;;) {
    Offer offer;
    *status = options_.port->Seek(applied, deadline, &offer);
    if (!status->ok()) return true;
    if (offer.member < 0) return false;
    image_.resize(offer.length_bytes);
    if (!options_.port->Take(offer, image_.data())) continue;
    result->version = offer.version;
    ++counts_.snapshots;
    const size_t bytes = counted_.size() * sizeof(uint64_t);
    std::memcpy(counted_.data(), image_.data(), bytes);
    std::memcpy(missing_.data(), image_.data() + bytes, bytes);
    // train-T25: this rank is as far as the one whose state it takes.
    std::memcpy(&steps_, image_.data() + 2 * bytes, sizeof(steps_));
    result->steps = steps_;
    result->misses = std::any_of(missing_.begin(), missing_.end(), [](auto it) { return it > 0; });
    result->is_overdue = missing_[self] > 0;
    TellOfSnapshot(applied, offer);
    if (options_.outer != nullptr) options_.outer->Load(image(), counted_[self]);
    return true;
  }
}

}  // namespace covey
