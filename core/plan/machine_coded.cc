// The effect of steps with codes on symbolic memory. A code is whole or it is nothing: its bytes
// stand for a range of the message that was encoded at once, and only all of them together can be
// decoded.
#include "core/plan/machine.h"

namespace covey {

// The own input from `begin` on.
std::string Machine::Encode(int32_t me, const Buffer& slot, uint64_t begin, uint64_t length) {
  if (slot.place != Place::kLanding || slot.index != me) return "encodes to no own landing slot";
  if (length == 0) return {};
  const Buffer input{Place::kInput, static_cast<int16_t>(me), 0, begin};
  HeldBytes terms;
  if (std::string wrong = LoadInput(me, input, length, &terms); !wrong.empty()) return wrong;
  for (const Held& h : terms)
    if (h.content.origin != begin + h.at || h.content.symbol != symbols_.Term(me))
      return "encodes other than the own input";
  const int32_t number = coded_.NumberOf({begin, length});
  const uint64_t coded_bytes = TravellingBytes(problem_.form, length);
  const HeldBytes code = {{0, coded_bytes, {symbols_.Encoded(me, number), 0, 1}}};
  return Store(me, slot, coded_bytes, code);
}

// `terms`: the decoded `length` bytes of the message.
std::string Machine::LoadCoded(int32_t me, const Buffer& b, uint64_t length, HeldBytes* terms) {
  const uint64_t coded_bytes = TravellingBytes(problem_.form, length);
  HeldBytes code;
  if (std::string wrong = Load(me, b, coded_bytes, &code); !wrong.empty()) return wrong;
  const Content& content = code[0].content;
  if (!symbols_.IsEncoded(content.symbol))
    return "decodes " + symbols_.ToString(content.symbol) + " as if it were a code";
  const auto& [begin, coded_length] = coded_.At(symbols_.RangeOf(content.symbol));
  if (code.size() != 1 || content.origin != 0 || coded_length != length)
    return "decodes a part of " + symbols_.ToString(content.symbol);
  const int32_t rank = symbols_.RankOf(content.symbol);
  *terms = {{0, length, {symbols_.DecodedTerm(rank), begin, 1}}};
  return {};
}

std::string Machine::ReduceCoded(int32_t me, const Step& step) {
  if (step.src.place != Place::kLanding || step.src.index != kEveryRank)
    return "decodes what is not in every rank's landing slot";
  if (step.dst.place != Place::kOutput || step.dst.index != me) return "writes to no own output";
  std::vector<HeldBytes> operands(members_.size());
  for (int32_t j = 0; j < problem_.size; ++j) {
    Buffer src = step.src;
    src.index = static_cast<int16_t>(j);
    std::string wrong = LoadCoded(me, src, step.length_bytes, &operands[static_cast<size_t>(j)]);
    if (!wrong.empty()) return wrong;
  }
  HeldBytes sum;
  if (std::string wrong = Combine(operands, step.length_bytes, &sum); !wrong.empty()) return wrong;
  Finish(&sum);
  return Store(me, step.dst, step.length_bytes, sum);
}

// One sum, of which no rank has encoded any byte yet: two codes of the same need not be the same.
std::string Machine::EncodeSum(int32_t me, const Step& step) {
  for (const Buffer& b : {step.src, step.dst})
    if (b.place != Place::kLanding || b.index != me) return "encodes a sum in no own landing slot";
  const CodedRanges::Range range{step.input_offset, step.length_bytes};
  HeldBytes held;
  if (std::string wrong = LoadPartial(me, step.src, step.length_bytes, &held); !wrong.empty())
    return wrong;
  const Symbol sum = held[0].content.symbol;
  for (const Held& h : held)
    if (h.content.symbol != sum || h.content.origin != range.begin + h.at)
      return "encodes other than one sum of the bytes it names";
  if (const int32_t other = coded_.AddSum(sum, range, me); other >= 0)
    return "encodes " + symbols_.ToString(sum) + ", which rank " + std::to_string(other) +
           " has encoded";
  const uint64_t coded_bytes = TravellingBytes(problem_.form, step.length_bytes);
  const Symbol code = symbols_.EncodedSum(sum, coded_.NumberOf(range));
  return Store(me, step.dst, coded_bytes, {{0, coded_bytes, {code, 0, 1}}});
}

std::string Machine::DecodeSum(int32_t me, const Step& step) {
  if (step.src.place != Place::kLanding || step.dst.place != Place::kLanding)
    return "decodes what is in no landing slot, or to none";
  HeldBytes code;
  const uint64_t coded_bytes = TravellingBytes(problem_.form, step.length_bytes);
  if (std::string wrong = Load(me, step.src, coded_bytes, &code); !wrong.empty()) return wrong;
  const Content& content = code[0].content;
  const std::string what = symbols_.ToString(content.symbol);
  if (!symbols_.IsEncodedSum(content.symbol)) return "decodes " + what + " as if it were a sum's";
  const auto& [begin, length] = coded_.At(symbols_.RangeOf(content.symbol));
  if (code.size() != 1 || content.origin != 0 || length != step.length_bytes)
    return "decodes a part of " + what;
  std::vector<HeldBytes> operands;
  if (step.kind == StepKind::kAddDecoded) {
    std::string wrong = LoadPartial(me, step.dst, length, &operands.emplace_back());
    if (!wrong.empty()) return wrong;
  }
  const Symbol decoded = symbols_.DecodedSum(symbols_.SumOf(content.symbol));
  operands.push_back({{0, length, {decoded, begin, 1}}});
  HeldBytes sum;
  if (std::string wrong = Combine(operands, length, &sum); !wrong.empty()) return wrong;
  return StorePartial(me, step.dst, length, std::move(sum));
}

// The own input counts as decoded: its residual does not travel.
std::string Machine::MixCoded(int32_t me, const Step& step) {
  if (!Mixes(problem_.kind)) return "mixes, and there are no weights";
  if (step.dst.place != Place::kOutput || step.dst.index != me) return "writes to no own output";
  if (step.src.place != Place::kLanding) return "decodes what is in no landing slot";
  if (options_.in_place && step.input_offset != step.dst.offset)
    return "overlaps its own input in part";
  const Buffer input{Place::kInput, static_cast<int16_t>(me), 0, step.input_offset};
  HeldBytes own;
  if (std::string wrong = LoadInput(me, input, step.length_bytes, &own); !wrong.empty())
    return wrong;
  std::vector<HeldBytes> operands;
  for (int32_t j = 0; j < problem_.size; ++j) {
    if (j != me && !Takes(problem_, me, j)) continue;
    Buffer src = step.src;
    src.index = static_cast<int16_t>(j);
    std::string wrong = LoadCoded(me, src, step.length_bytes, &operands.emplace_back());
    if (!wrong.empty()) return wrong;
    if (j == me && !operands.back().empty() && !own.empty() &&
        operands.back()[0].content.origin != own[0].content.origin)
      return "adds to other bytes than it decodes";
  }
  HeldBytes sum;
  if (std::string wrong = Combine(operands, step.length_bytes, &sum); !wrong.empty()) return wrong;
  Finish(&sum);
  return Store(me, step.dst, step.length_bytes, sum);
}

}  // namespace covey
