// The possible meanings of a byte of a collective: a rank's contribution, a partial result, a
// result.
//
// Interned: equal symbols have equal ids, so equal ids on two ranks are equal bits. Not
// thread-safe.
#ifndef COVEY_CORE_PLAN_SYMBOLS_H_
#define COVEY_CORE_PLAN_SYMBOLS_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace covey {

using Symbol = int32_t;
inline constexpr Symbol kNothing = -1;  // bytes that no rank wrote

class Symbols {
 public:
  Symbol Input(int32_t rank);  // the input of `rank`
  Symbol Term(int32_t rank);   // pre * input, in the accumulator type
  // The input of `rank`, encoded; ranges of it that are encoded each on their own are numbered by
  // the caller. And pre * the decoded code.
  Symbol Encoded(int32_t rank, int32_t range);
  Symbol DecodedTerm(int32_t rank);
  // The same of a partial result; what is decoded is one, too.
  Symbol EncodedSum(Symbol sum, int32_t range);
  Symbol DecodedSum(Symbol sum);
  Symbol Sum(Symbol a, Symbol b);  // a op b, both a Term or a Sum
  Symbol Finished(Symbol sum);     // post * sum
  // (((0 op 1) op 2) op ...), finished: kernels-K1; of what decoding gives, if `coded`.
  Symbol SumInTurn(int32_t size, bool coded);
  // The same of these ranks alone. REQUIRES: ranks is not empty.
  Symbol SumInTurn(const std::vector<int32_t>& ranks, bool coded);
  bool IsInput(Symbol s) const { return s != kNothing && At(s).kind == Kind::kInput; }
  bool IsFinished(Symbol s) const { return s != kNothing && At(s).kind == Kind::kFinished; }
  bool IsPartial(Symbol s) const {
    return s != kNothing && (At(s).kind == Kind::kTerm || At(s).kind == Kind::kSum ||
                             At(s).kind == Kind::kDecodedSum);
  }
  bool IsEncoded(Symbol s) const { return s != kNothing && At(s).kind == Kind::kEncoded; }
  bool IsEncodedSum(Symbol s) const { return s != kNothing && At(s).kind == Kind::kEncodedSum; }
  // REQUIRES: IsInput(s) or IsEncoded(s); IsEncoded(s) or IsEncodedSum(s); IsEncodedSum(s).
  int32_t RankOf(Symbol s) const { return At(s).a; }
  int32_t RangeOf(Symbol s) const { return At(s).b; }
  Symbol SumOf(Symbol s) const { return At(s).a; }

  // The ranks whose contributions are in it, in the order in which they are combined.
  std::vector<int32_t> RanksIn(Symbol s) const;
  std::string ToString(Symbol s) const;  // "the sum of 0 1 2"

 private:
  enum class Kind : int32_t { kInput, kEncoded, kTerm, kSum, kEncodedSum, kDecodedSum, kFinished };
  struct Node {
    Kind kind;
    int32_t a;  // a rank, or a symbol
    int32_t b;
  };
  const Node& At(Symbol s) const { return nodes_[static_cast<size_t>(s)]; }
  Symbol Intern(Kind kind, int32_t a, int32_t b);

  std::vector<Node> nodes_;
  std::map<std::tuple<Kind, int32_t, int32_t>, Symbol> ids_;
};

}  // namespace covey
#endif  // COVEY_CORE_PLAN_SYMBOLS_H_
