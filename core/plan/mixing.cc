#include "core/plan/mixing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/rng.h"

namespace covey {
namespace {

constexpr int64_t kRoundsOfRandom = 64;
constexpr int64_t kMostRows = 1 << 20;  // of a period that is looked at
constexpr int kMostPasses = 3000;       // of the power iteration: it ends when it stands still,
constexpr double kStandsStill = 1e-13;  // from one pass to the next
constexpr double kNothing = 1e-12;      // the remainder of a round, if it is rounding
constexpr double kRounding = 1e-12;     // of a contraction: nearer to 1 it is 1

using Vector = std::vector<double>;
using Matrix = std::vector<MixingRow>;  // by rows

std::vector<Matrix> MatricesOf(const Topology& topology) {
  const int64_t period = PeriodOf(topology);
  const int64_t wanted = period > 0 ? period : kRoundsOfRandom * topology.cross_every;
  const int64_t most = std::max({kRoundsOfRandom, topology.cross_every, kMostRows / topology.size});
  std::vector<Matrix> matrices(static_cast<size_t>(std::min(wanted, most)));
  for (size_t round = 0; round < matrices.size(); ++round)
    for (int32_t rank = 0; rank < topology.size; ++rank)
      matrices[round].push_back(RowOf(topology, round, rank));
  return matrices;
}

Vector Times(const Matrix& matrix, const Vector& x) {
  Vector y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back(matrix[i].own * x[i]);
    for (const Neighbor& one : matrix[i].from)
      y[i] += one.weight * x[static_cast<size_t>(one.rank)];
  }
  return y;
}

Vector TransposedTimes(const Matrix& matrix, const Vector& x) {
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] += matrix[i].own * x[i];
    for (const Neighbor& one : matrix[i].from)
      y[static_cast<size_t>(one.rank)] += one.weight * x[i];
  }
  return y;
}

// Takes the mean away and makes the length 1. The length before that; 0: nothing is left.
double MakeUnit(Vector* x) {
  double sum = 0, square = 0;
  for (const double one : *x) sum += one;
  for (double& one : *x) {
    one -= sum / static_cast<double>(x->size());
    square += one * one;
  }
  const double length = std::sqrt(square);
  if (length < kNothing) return 0;
  for (double& one : *x) one /= length;
  return length;
}

// Of a round: the largest singular value of the product of the matrices, seen between vectors
// without mean, to the power of one by their number. By its logarithm, and a vector that is as long
// before each round: over many rounds the product itself is no more than rounding.
double ContractionOf(const std::vector<Matrix>& matrices, size_t size) {
  Rng rng(size);
  Vector x(size);
  for (double& one : x) one = static_cast<double>(rng.Below(2001)) - 1000;
  double logarithm = 0;
  for (int pass = 0; pass < kMostPasses; ++pass) {
    if (MakeUnit(&x) == 0) return 0;
    const double before = logarithm;
    logarithm = 0;
    for (const Matrix& matrix : matrices) {
      x = Times(matrix, x);
      const double length = MakeUnit(&x);
      if (length == 0) return 0;
      logarithm += std::log(length);
    }
    if (pass > 0 && std::abs(logarithm - before) <= kStandsStill) break;
    for (size_t i = matrices.size(); i > 0; --i) {
      x = TransposedTimes(matrices[i - 1], x);
      MakeUnit(&x);
    }
  }
  const double contraction = std::exp(logarithm / static_cast<double>(matrices.size()));
  return std::abs(contraction - 1) < kRounding ? 1 : contraction;
}

// The ranks that hear of `origin` within many periods, or (`backwards`) that it hears of.
std::vector<bool> ReachOf(const std::vector<Matrix>& matrices, size_t size, bool backwards) {
  std::vector<bool> reached(size);
  reached[0] = true;
  for (bool grows = true; grows;) {
    grows = false;
    for (const Matrix& matrix : matrices)
      for (size_t i = 0; i < size; ++i)
        for (const Neighbor& one : matrix[i].from) {
          const auto j = static_cast<size_t>(one.rank);
          const size_t from = backwards ? i : j, to = backwards ? j : i;
          if (!reached[from] || reached[to]) continue;
          reached[to] = grows = true;
        }
  }
  return reached;
}

void ExamineReach(const std::vector<Matrix>& matrices, size_t size, MixingReport* report) {
  for (const bool backwards : {false, true}) {
    const std::vector<bool> reached = ReachOf(matrices, size, backwards);
    for (size_t i = 0; i < size && report->is_connected; ++i) {
      if (reached[i]) continue;
      report->is_connected = false;
      report->unheard = backwards ? static_cast<int32_t>(i) : 0;
      report->unreached = backwards ? 0 : static_cast<int32_t>(i);
    }
  }
}

}  // namespace

MixingReport Examine(const Topology& topology) {
  const auto size = static_cast<size_t>(topology.size);
  const std::vector<Matrix> matrices = MatricesOf(topology);
  MixingReport report;
  for (const Matrix& matrix : matrices) {
    const Vector columns = TransposedTimes(matrix, Vector(size, 1));
    for (size_t i = 0; i < size; ++i) {
      const double error = std::abs(columns[i] - 1);
      if (error <= report.column_error) continue;
      report.column_error = error;
      report.column = static_cast<int32_t>(i);
    }
  }
  ExamineReach(matrices, size, &report);
  report.contraction = ContractionOf(matrices, size);
  return report;
}

}  // namespace covey
