#include "core/plan/symbols.h"

#include <numeric>

namespace covey {

Symbol Symbols::Intern(Kind kind, int32_t a, int32_t b) {
  const auto [at, fresh] = ids_.emplace(std::make_tuple(kind, a, b), Symbol(nodes_.size()));
  if (fresh) nodes_.push_back({kind, a, b});
  return at->second;
}

Symbol Symbols::Input(int32_t rank) { return Intern(Kind::kInput, rank, 0); }
Symbol Symbols::Term(int32_t rank) { return Intern(Kind::kTerm, rank, 0); }
Symbol Symbols::Sum(Symbol a, Symbol b) { return Intern(Kind::kSum, a, b); }
Symbol Symbols::Finished(Symbol sum) { return Intern(Kind::kFinished, sum, 0); }

Symbol Symbols::Encoded(int32_t rank, int32_t range) { return Intern(Kind::kEncoded, rank, range); }
Symbol Symbols::DecodedTerm(int32_t rank) { return Intern(Kind::kTerm, rank, 1); }
Symbol Symbols::EncodedSum(Symbol sum, int32_t range) {
  return Intern(Kind::kEncodedSum, sum, range);
}
Symbol Symbols::DecodedSum(Symbol sum) { return Intern(Kind::kDecodedSum, sum, 0); }

Symbol Symbols::SumInTurn(int32_t size, bool coded) {
  std::vector<int32_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return SumInTurn(ranks, coded);
}

Symbol Symbols::SumInTurn(const std::vector<int32_t>& ranks, bool coded) {
  const auto term = [&](int32_t rank) { return coded ? DecodedTerm(rank) : Term(rank); };
  Symbol sum = term(ranks[0]);
  for (size_t i = 1; i < ranks.size(); ++i) sum = Sum(sum, term(ranks[i]));
  return Finished(sum);
}

std::vector<int32_t> Symbols::RanksIn(Symbol s) const {
  std::vector<int32_t> ranks;
  std::vector<Symbol> open = {s};
  while (!open.empty()) {
    const Symbol top = open.back();
    open.pop_back();
    if (top == kNothing) continue;
    const Node& node = At(top);
    if (node.kind == Kind::kInput || node.kind == Kind::kEncoded || node.kind == Kind::kTerm) {
      ranks.push_back(node.a);
    } else {
      if (node.kind == Kind::kSum) open.push_back(node.b);
      open.push_back(node.a);
    }
  }
  return ranks;
}

std::string Symbols::ToString(Symbol s) const {
  if (s == kNothing) return "nothing";
  if (IsInput(s)) return "the input of rank " + std::to_string(RankOf(s));
  if (IsEncoded(s)) return "the code of rank " + std::to_string(RankOf(s));
  std::string text = IsEncodedSum(s) ? "the code of " : "";
  text += IsFinished(s) ? "the result over ranks" : "the partial result over ranks";
  for (int32_t rank : RanksIn(s)) text += " " + std::to_string(rank);
  return text;
}

}  // namespace covey
