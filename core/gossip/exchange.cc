#include "core/gossip/exchange.h"

namespace covey {
namespace {

uint64_t FirstWord(const PairRecord& record) {
  return static_cast<uint64_t>(record.partner) << 16 | uint64_t{record.others_buffer} << 8 |
         record.buffer;
}

}  // namespace

ModelWord PairExchange::Settled(int32_t i) {
  for (;;) {
    const ModelWord model = ModelWord::Of(words_->Load(memory_->ModelAt(i)));
    if (!model.engaged) return model;
    // gossip-P3: any rank carries the exchange to its end: the initiator may have been stopped.
    Help(model);
  }
}

bool PairExchange::Commit(const PairRecord& record) {
  ++number_;
  words_->Store(memory_->RecordAt(self_, 0), FirstWord(record));
  words_->Store(memory_->RecordAt(self_, 1), record.own.Word());
  words_->Store(memory_->RecordAt(self_, 2), record.others.Word());
  words_->Store(memory_->RecordWordAt(self_), RecordWord{RecordState::kOpen, number_}.Word());
  Decide(self_, number_, record);
  const uint64_t word = words_->Load(memory_->RecordWordAt(self_));
  return RecordWord::Of(word).state == RecordState::kCommitted;
}

// A record that its initiator rewrites while it is read is not used: the initiator rewrites it only
// once this exchange is decided, and no model word names it any more.
void PairExchange::Help(const ModelWord& engaged) {
  const int32_t initiator = engaged.owner;
  uint64_t fields[3];
  for (size_t i = 0; i < 3; ++i) fields[i] = words_->Load(memory_->RecordAt(initiator, i));
  Decide(initiator, engaged.number,
         {.partner = static_cast<int32_t>(fields[0] >> 16),
          .buffer = static_cast<uint32_t>(fields[0] & 0xff),
          .others_buffer = static_cast<uint32_t>(fields[0] >> 8 & 0xff),
          .own = ModelWord::Of(fields[1]),
          .others = ModelWord::Of(fields[2])});
}

bool PairExchange::Engage(int32_t i, const ModelWord& expected, const ModelWord& engaged) {
  uint64_t* word = memory_->ModelAt(i);
  return words_->CompareExchange(word, expected.Word(), engaged.Word()) ||
         words_->Load(word) == engaged.Word();
}

void PairExchange::Decide(int32_t initiator, uint64_t number, const PairRecord& record) {
  const ModelWord engaged{.engaged = true, .owner = initiator, .buffer = 0, .number = number};
  uint64_t* word = memory_->RecordWordAt(initiator);
  RecordWord decision = RecordWord::Of(words_->Load(word));
  if (decision == RecordWord{RecordState::kOpen, number}) {
    // gossip-P3: all helpers engage the lower member first, so two exchanges never block each
    // other.
    const bool is_lower = initiator < record.partner;
    const bool both = Engage(is_lower ? initiator : record.partner,
                             is_lower ? record.own : record.others, engaged) &&
                      Engage(is_lower ? record.partner : initiator,
                             is_lower ? record.others : record.own, engaged);
    // gossip-P1: committed only if both words are engaged: one mean alone would move the sum.
    const RecordState state = both ? RecordState::kCommitted : RecordState::kAborted;
    words_->CompareExchange(word, decision.Word(), RecordWord{state, number}.Word());
    decision = RecordWord::Of(words_->Load(word));
  }
  // gossip-P4: numbers tell this exchange from a later one of the same initiator.
  if (decision.number != number) return;  // it is over: no word names it any more
  const bool committed = decision.state == RecordState::kCommitted;
  for (const bool own : {true, false}) {
    ModelWord after = own ? record.own : record.others;
    if (committed) {
      after.owner = initiator;
      // gossip-P8: with a codec each of the two has a result of its own.
      after.buffer = own ? record.buffer : record.others_buffer;
    }
    // gossip-P4: an aborted exchange takes a number too, or a stopped helper would engage again.
    ++after.number;
    words_->CompareExchange(memory_->ModelAt(own ? initiator : record.partner), engaged.Word(),
                            after.Word());
  }
}

}  // namespace covey
