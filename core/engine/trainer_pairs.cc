#include "core/engine/trainer_pairs.h"

#include <array>
#include <utility>

namespace covey {

TrainerPairs::TrainerPairs(Options options)
    : options_(std::move(options)),
      block_bytes_(options_.port->BlockBytes()),
      counts_(options_.port->group().members.size()) {
  for (const TrainerLayout::Piece& piece : options_.layout->pieces())
    spans_.push_back(options_.model + piece.offset_bytes);
}

bool TrainerPairs::Perform(const Trainer::Exchange& exchange, Time deadline, Status* status,
                           StageResult* result) {
  *status = Status::Ok();
  switch (exchange.stage) {
    case Stage::kEnter:
      options_.port->Tell(exchange.step);
      options_.port->Begin({const_cast<const void* const*>(spans_.data()), spans_.size()});
      return true;
    case Stage::kTurn:
      options_.port->Tell(exchange.step + 1);
      result->is_due = options_.port->CountStep();
      return true;
    case Stage::kPair: {
      TakeBack();
      const PairsPort::Met met = options_.port->Exchange(spans_);
      counts_.begun += met.partner >= 0 ? 1 : 0;
      counts_.met += met.merged ? 1 : 0;
      return true;
    }
    case Stage::kMean:
      TakeBack();
      *status = options_.port->Finish(spans_, deadline, exchange.ends_part);
      // With a peer max_wait is over.
      return status->code() != StatusCode::kTimeout || status->peer() != kNoRank;
    case Stage::kSettle:
      TakeBack();
      *status = options_.port->Settle(spans_, deadline);
      return status->code() != StatusCode::kTimeout || status->peer() != kNoRank;
    case Stage::kSeenMean:
      ShowSeenMean(exchange.unfit);
      return true;
    default:  // kQuit
      Leave();
      return true;
  }
}

PairsPort::Seen TrainerPairs::Peek(int32_t member, std::byte* to) {
  std::vector<void*> spans;
  if (to == nullptr) return options_.port->Peek(member, spans);
  for (const TrainerLayout::Piece& piece : options_.layout->pieces())
    spans.push_back(to + piece.offset_bytes);
  return options_.port->Peek(member, spans);
}

TrainerCounts TrainerPairs::counts() const {
  TrainerCounts counts = counts_;
  counts.memory.pairs = block_bytes_;
  return counts;
}

void TrainerPairs::ShowSeenMean(const std::string& missing) {
  if (options_.log != nullptr)
    options_.log->Write(LogLevel::kWarn,
                        missing + "; finish() goes on with the ranks that are there");
  std::vector<std::byte> own(options_.model, options_.model + options_.layout->length_bytes());
  if (!options_.port->GoOnWithout(spans_)) return;
  Combine(own.data(), options_.model, -1, own.data());
  hidden_ = std::move(own);
}

// The model becomes this rank's own again, with what was trained since.
void TrainerPairs::TakeBack() {
  if (hidden_.empty()) return;
  Combine(options_.model, hidden_.data(), 1, options_.model);
  hidden_.clear();
}

// to = model + scale * with.
void TrainerPairs::Combine(const std::byte* model, const std::byte* with, double scale,
                           std::byte* to) const {
  std::vector<std::byte> scaled(options_.layout->length_bytes());
  for (const TrainerLayout::Piece& piece : options_.layout->pieces()) {
    const auto count = static_cast<size_t>(piece.count);
    const std::array<const std::byte*, 1> from = {with + piece.offset_bytes};
    const std::array<std::byte*, 1> beside = {scaled.data() + piece.offset_bytes};
    options_.kernels->reduce({.dtype = piece.dtype, .op = Op::kSum, .prescale = scale}, from,
                             beside, count, Stores::kCached);
    const std::array<const std::byte*, 2> both = {model + piece.offset_bytes, beside[0]};
    const std::array<std::byte*, 1> result = {to + piece.offset_bytes};
    options_.kernels->reduce({.dtype = piece.dtype, .op = Op::kSum}, both, result, count,
                             Stores::kCached);
  }
}

}  // namespace covey
